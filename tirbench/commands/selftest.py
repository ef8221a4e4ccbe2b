"""`tirbench selftest`: how often the verdicts of this machine are right."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tirbench.commands import shared

if TYPE_CHECKING:
    from tirbench.selftest import Asked, Kept, Record, Tally


@click.command("selftest")
@partial(shared.files, required=False)
@click.option(
    "--device", type=click.Choice(["cuda", "cpu"]), help="Default: cuda where there is one."
)
@click.option("--timer", type=click.Choice(shared.TIMERS), help="Instead of the workloads' timer.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    default=300.0,
    show_default=True,
    help="How long to measure; 0 shows what is kept.",
)
@click.option("--gpus", type=click.IntRange(min=0), help="How many GPUs share it; 0 is all.")
@click.option(
    "--loads",
    type=click.IntRange(min=2),
    default=5,
    show_default=True,
    help="How many times the files are loaded side by side.",
)
@click.option(
    "--planted",
    type=click.IntRange(min=0),
    default=4,
    show_default=True,
    help="Virtual runs with a planted slowdown.",
)
@click.option("--anew", is_flag=True, help="Forget what earlier self-tests of this machine read.")
@click.option("--pin", is_flag=True, help="Keep the result beside the baselines, for gates.")
@shared.form
def command(**given: Any) -> int:
    """Compare equal code, and code with a planted slowdown, as `ab` does, and count the verdicts.

    FILES default to workloads. What several self-tests read adds up, as long as driver, torch and Triton
    are the same. Exits 0, or 3 where nothing could be tried.
    """
    from tirbench import selftest
    from tirbench.execute import describe

    root = shared.root()
    asked = _asked(root, given)
    machine = describe(asked.device)
    path = root / ".tirbench" / "selftest" / f"{machine.hardware}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    if given["anew"]:
        path.unlink(missing_ok=True)
    if asked.seconds > 0:
        with shared.progress() as watch:
            selftest.measure(asked, machine=machine, readings=path, say=shared.say, watch=watch)
    records = selftest.of_protocol(selftest.of_latest(selftest.read([path])))
    found = selftest.tallied(records)
    if found is None:
        shared.say("nothing was tried yet")
        return 3
    kept = selftest.Kept.of([one for one in records if one["type"] == "run"], found)
    folders = selftest.folders(asked) if given["pin"] else ()
    for written in selftest.keep(root, kept, folders)[1:]:
        shared.say(f"wrote {written.relative_to(root)}")
    shown = shared.look()
    text = _shown(kept, found, records, given["form"], shown)
    click.echo(text, nl=False, color=shown["color"])
    return 0 if kept.whole.equal.decisions else 3


def _asked(root: Path, given: dict[str, Any]) -> Asked:
    from tirbench import selftest
    from tirbench.errors import UsageError
    from tirbench.execute import gpus

    files = given["files"]
    if not files:
        if not (root / "workloads").is_dir():
            raise UsageError("no folder workloads here: name the workloads to try")
        files = (str(root / "workloads"),)
    device = shared.device(given["device"])
    return selftest.Asked(
        files=files,
        keyword=given["keyword"],
        select=given["select"],
        device=device,
        timer=given["timer"],
        seconds=given["seconds"],
        loads=given["loads"],
        planted=given["planted"],
        gpus=gpus(given["gpus"]) if given["gpus"] is not None and device == "cuda" else (),
    )


def _shown(
    kept: Kept, found: Tally, records: list[Record], form: str, shown: dict[str, Any]
) -> str:
    from dataclasses import asdict

    from tirbench import selftest
    from tirbench.report import columns
    from tirbench.selftest import tables

    if form == "json":
        data = {"schema": 1, "kept": asdict(kept), "rows": [asdict(one) for one in found.rows]}
        return json.dumps(data, ensure_ascii=False, indent=2) + "\n"
    failed = {one["row"]: one["reason"] for one in records if one["type"] == "failed"}
    said = [
        ("Equal code", tables.equal(found)),
        ("Planted slowdowns of 1 %", tables.planted_by_class(found)),
        ("Planted slowdowns by true size", tables.planted(found.bins, "true size of")),
        ("Scatter of one worker's log-ratio", tables.spreads(found)),
    ]
    lines: list[str] = []
    for title, one in said:
        if form == "markdown":
            lines += [f"### {title}", "", *one.markdown(), ""]
            continue
        look = columns.Look(**shown)
        right = frozenset(range(1, len(one.head)))
        # The last column of `columns` is a sentence: here there is none.
        body = columns.table(
            (*one.head, ""), [(*line, "") for line in one.lines], look, right=right
        )
        lines += [look.paint(title, "bold"), *(line.rstrip() for line in body), ""]
    lines += [f"not tried: {row}: {reason}" for row, reason in failed.items()]
    lines.append(selftest.sentence(kept))
    return "\n".join(lines) + "\n"
