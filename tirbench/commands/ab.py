"""`tirbench ab`: two revisions, or two candidates of one workload, measured against each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from tirbench.commands import shared

if TYPE_CHECKING:
    from tirbench.comparing import Asked


@click.command("ab")
@click.argument("named", nargs=-1, metavar="BASE [HEAD] [FILES...]")
@click.option("-k", "keyword", metavar="TEXT", help="Only cases whose workload/case contains TEXT.")
@click.option("--select", metavar="LIST", help="A list of [select]: default, smoke, cpu, all, …")
@click.option(
    "--device", type=click.Choice(["cuda", "cpu"]), help="Default: cuda where there is one."
)
@click.option("--timer", type=click.Choice(shared.TIMERS), help="Instead of the workloads' timer.")
@click.option(
    "--candidate",
    "candidates",
    multiple=True,
    metavar="NAME",
    help="Twice: the second implementation against the first, both of the working tree.",
)
@click.option(
    "--resolve",
    metavar="SHARE",
    callback=shared.share_of_time,
    help="Find a smaller change (0.5%) with more workers.",
)
@click.option("--references", is_flag=True, help="Compare references that did not change, too.")
@click.option("--plan", is_flag=True, help="Say what each row can find and costs; measure nothing.")
@shared.form
def command(named: tuple[str, ...], **given: Any) -> int:
    """Measure the code of HEAD (the working tree where none is named) against that of BASE.

    Exits 0 where nothing is slower, 1 where a row is, 3 where one could not be decided.
    """
    from tirbench import comparing
    from tirbench.report import verdicts

    root = shared.root()
    asked = _asked(root, named, given)
    shown = shared.look()
    if given["plan"]:
        prices = comparing.prices(root, asked)
        as_json = given["form"] == "json"
        text = verdicts.prices_json(prices) if as_json else verdicts.prices_text(prices, **shown)
        click.echo(text, nl=False, color=shown["color"])
        return 0
    with shared.progress() as watch:
        report = comparing.compare(root, asked, watch, shared.say)
    code = comparing.exit_code(report)
    text = verdicts.render(report, given["form"], code=code, **shown)
    click.echo(text, nl=False, color=shown["color"])
    return code


def _asked(root: Path, named: tuple[str, ...], given: dict[str, Any]) -> Asked:
    from tirbench.comparing import Asked

    candidates = given["candidates"]
    if candidates and len(candidates) != 2:
        raise click.UsageError("write --candidate twice: the old one, then the new one")
    base, head, files = _sides(root, named, candidates=bool(candidates))
    device: Literal["cuda", "cpu"] = shared.device(given["device"])
    return Asked(
        base=base,
        head=head,
        files=files,
        keyword=given["keyword"],
        select=given["select"],
        device=device,
        timer=given["timer"],
        candidates=(candidates[0], candidates[1]) if candidates else None,
        resolve=given["resolve"],
        references=given["references"],
    )


def _sides(
    root: Path, named: tuple[str, ...], *, candidates: bool
) -> tuple[str, str | None, tuple[str, ...]]:
    """BASE, HEAD and FILES: what is a file is none of the revisions."""
    from tirbench.store import revisions

    if candidates:
        return "HEAD", None, named
    if not named:
        raise click.UsageError("Missing argument 'BASE'.")
    base, *rest = named
    head = None
    if rest and not _is_file(rest[0]) and revisions.is_revision(root, rest[0]):
        head = rest.pop(0)
    return base, head, tuple(rest)


def _is_file(text: str) -> bool:
    name = text.partition("::")[0]
    return name.endswith(".toml") or "::" in text or Path(name).exists()
