"""Every command as a composition of stages; nothing here prints, measures or decides about numbers."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tirbench import digest, store
from tirbench.bands import Taught
from tirbench.errors import UsageError
from tirbench.expand import expand
from tirbench.model import (
    Baseline,
    Failed,
    Harness,
    Outcome,
    Plan,
    Row,
    Run,
    Workload,
    Wrong,
)
from tirbench.plan import Ask, Planned, plan, rows_of
from tirbench.reading import Reading
from tirbench.running import Finisher, Options, run_jobs
from tirbench.selection import Chosen
from tirbench.store.files import write

if TYPE_CHECKING:
    from tirbench.execute.events import Event

IMPORTED: Final = frozenset({"numpy", "packaging", "tirbench", "torch", "triton", "tvm_tirx"})
"""Top-level modules that a harness imports, besides those of the standard library."""


def compile_(reading: Reading, out: Path) -> list[Path]:
    """render: one program for each workload, written below `out`.

    Raises:
        UsageError: a program would hide a module: Python looks in a program's own folder first.
    """
    for chosen in reading.chosen:
        if chosen.workload.name in sys.stdlib_module_names | IMPORTED:
            name, path = chosen.workload.name, chosen.workload.source.path
            raise UsageError(
                f"{path}: {out / name}.py would hide the module {name} from every program beside it; "
                "give the workload another name to compile it"
            )
    written = []
    for chosen in reading.chosen:
        harness = rendered(chosen)
        write(out / harness.name, harness.text)
        written.append(out / harness.name)
    return written


def rendered(chosen: Chosen) -> Harness:
    """The program of a workload and its chosen cases."""
    from tirbench.render import render

    return render(chosen.workload, chosen.cases)


def run(
    reading: Reading,
    options: Options,
    tree: store.Tree,
    watch: Callable[[Event], None],
    say: Callable[[str], None],
) -> store.KeptRun:
    """Render → execute → store: every row of the chosen cases is answered and kept as it comes.

    Args:
        reading: what to run.
        options: on which device, how.
        tree: what git said before anything was measured.
        watch: is shown every event as it happens.
        say: takes a sentence when another run holds the device.
    """
    from tirbench.execute import describe
    from tirbench.execute.events import RowDone

    rows = [row for chosen in reading.chosen for case in chosen.cases for row in rows_of(case)]
    machine = describe(options.device)
    with store.open_run(
        reading.root,
        machine=machine,
        rows=rows,
        tree=tree,
        suite=_suite(reading.chosen),
        workload_paths=[chosen.workload.source.path for chosen in reading.chosen],
    ) as kept:
        pinned = {} if options.retune else _pinned(reading, machine.hardware, say)
        planned = _planned(reading, options, kept, pinned)
        finish = Finisher(reading.chosen, options, reading.root, machine)
        for skipped in planned.answered:
            watch(RowDone(outcome=skipped))
        for event in run_jobs(planned.jobs, options, kept, finish, say):
            watch(event)
    return store.read_run(reading.root, kept.id)


def _planned(
    reading: Reading, options: Options, kept: store.RunWriter, pinned: Mapping[str, Baseline]
) -> Planned:
    """Render → plan: the programs and what is done with them, kept before anything runs."""
    base = Plan(
        device=options.device,
        timer=options.timer,
        placements=options.placements,
        rounds=options.rounds,
    )
    every = Planned()
    for chosen in reading.chosen:
        harness = rendered(chosen)
        path = str(kept.harness(harness.name, harness.text))
        ask = Ask(
            plan=base,
            time=options.time,
            explicit=chosen.explicit,
            deadlines=options.deadlines,
            baseline=pinned.get(chosen.workload.name),
            retune=options.retune,
        )
        planned = plan([(path, chosen.cases)], ask)
        every.jobs += planned.jobs
        every.answered += planned.answered
    kept.outcome(*every.answered)
    # Last: a run that has these can be continued, and then every row is answered or in a job.
    explicit = [chosen.workload.name for chosen in reading.chosen if chosen.explicit]
    kept.jobs(every.jobs, explicit, inputs(reading))
    return every


def _pinned(reading: Reading, hardware: str, say: Callable[[str], None]) -> Mapping[str, Baseline]:
    """What is pinned on this hardware, by workload; a file that cannot be used keeps no run from going on."""
    found: dict[str, Baseline] = {}
    for chosen in reading.chosen:
        try:
            path = store.baseline_path(chosen.workload, hardware)
            baseline = store.read_baseline(reading.root, path)
        except store.BaselineError as error:
            say(f"{error}; its tuned kernels choose anew")
            continue
        if baseline is not None:
            found[chosen.workload.name] = baseline
    return found


def _suite(chosen: Iterable[Chosen]) -> str:
    texts = "\0".join(item.workload.source.text for item in chosen)
    return hashlib.sha256(texts.encode()).hexdigest()[:16]


def inputs(reading: Reading) -> str:
    """Digest of everything that the rows depend on and a person can edit: workloads and kernels."""
    read_file = digest.reader(reading.root)
    sources = [
        f"{case.key}/{one.name} {digest.source(case, one.name, read_file)}"
        for chosen in reading.chosen
        for case in chosen.cases
        for one in case.implementations
    ]
    text = "\n".join([_suite(reading.chosen), *sorted(sources)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class PinOptions:
    """How a run is pinned."""

    allow_dirty: bool = False
    accept: tuple[str, ...] = ()
    reason: str = ""
    prune: bool = False


def pin(
    reading: Reading,
    run_: Run,
    tree: store.Tree,
    asked: PinOptions,
    measure_again: Callable[[tuple[Row, ...]], Sequence[Outcome]],
) -> tuple[store.Pinned, ...]:
    """Accept a run into the baselines of its workloads; numbers move only where they left their band twice.

    Args:
        reading: the workloads as they are now; a partial run never deletes a row.
        run_: what was measured.
        tree: what git said before it was.
        asked: what the user accepts, and why.
        measure_again: runs rows in fresh workers; called once, where numbers left their bands.
    """
    _require_known(asked.accept, {chosen.workload.name for chosen in reading.chosen})
    hardware = run_.machine.hardware
    taught = {
        folder: store.taught(reading.root, store.sessions_path(folder, hardware))
        for folder in {chosen.workload.source.folder for chosen in reading.chosen}
    }
    planned = [
        _planned_pin(reading, one.workload, run_, tree, asked, taught[one.workload.source.folder])
        for one in reading.chosen
    ]
    pinned: dict[str, store.Pinned] = {}
    settled = [one for one in planned if not one.to_measure]
    for one in settled:  # first: an interruption of what follows keeps these
        pinned[one.baseline.workload] = _applied(reading, one, run_, (), asked)
    open_ = {one.baseline.workload: one for one in planned if one.to_measure}
    suspects = tuple(
        done.row
        for done in run_.outcomes
        if done.row.workload in open_
        and (done.row.case, done.row.implementation) in open_[done.row.workload].to_measure
    )
    again = measure_again(suspects) if suspects else ()
    for name, one in open_.items():
        ours = tuple(done for done in again if done.row.workload == name)
        pinned[name] = _applied(reading, one, run_, ours, asked)
    return tuple(pinned[chosen.workload.name] for chosen in reading.chosen)


def _planned_pin(
    reading: Reading,
    workload: Workload,
    run_: Run,
    tree: store.Tree,
    asked: PinOptions,
    taught: Taught,
) -> store.PinPlan:
    """What a run changes in the baseline of one workload, and what must be confirmed first."""
    every = ((row.case, row.implementation) for case in expand(workload) for row in rows_of(case))
    pinning = store.Pinning(
        machine=run_.machine,
        known=frozenset(every),
        reference=workload.gate.reference,
        uncommitted=tree.commit is None or bool(tree.uncommitted_inputs),
        accept=tuple((key, asked.reason) for key in _accepted(asked.accept, workload.name)),
        taught=taught,
    )
    path = store.baseline_path(workload, run_.machine.hardware)
    ours = tuple(one for one in run_.outcomes if one.row.workload == workload.name)
    return store.plan_pin(workload.name, store.read_baseline(reading.root, path), ours, pinning)


def _applied(
    reading: Reading,
    planned: store.PinPlan,
    run_: Run,
    again: Sequence[Outcome],
    asked: PinOptions,
) -> store.Pinned:
    """The plan carried out and written."""
    workload = next(
        c.workload for c in reading.chosen if c.workload.name == planned.baseline.workload
    )
    hardware = run_.machine.hardware
    done = store.apply(planned, again, prune=asked.prune)
    store.write_baseline(reading.root, store.baseline_path(workload, hardware), done.baseline)
    if done.baseline.rows:
        store.write_device(reading.root, store.device_path(workload, hardware), run_.machine)
    return done


def only(reading: Reading, rows: Iterable[Row]) -> Reading:
    """The reading cut down to the cases and implementations of these rows."""
    wanted = {(row.workload, row.case, row.implementation) for row in rows}
    chosen = []
    for item in reading.chosen:
        cases = []
        for case in item.cases:
            kept = tuple(
                one
                for one in case.implementations
                if (item.workload.name, case.id, one.name) in wanted
            )
            if kept:
                cases.append(replace(case, implementations=kept))
        if cases:
            chosen.append(replace(item, cases=tuple(cases)))
    return replace(reading, chosen=tuple(chosen))


def cases_of(reading: Reading, rows: Iterable[Row]) -> Reading:
    """The reading cut down to the cases of these rows, with all their implementations.

    A time holds what was measured beside it: on an H200 a softmax of 128 rows read 1.50 µs among five
    kernels of its size and 1.98 µs beside a longer one alone. What is measured again to be held against
    an earlier time is measured in the same company.
    """
    wanted = {(row.workload, row.case) for row in rows}
    return only(
        reading,
        (
            row
            for item in reading.chosen
            for case in item.cases
            if (item.workload.name, case.id) in wanted
            for row in rows_of(case)
        ),
    )


def _require_known(keys: Iterable[str], workloads: Collection[str]) -> None:
    """Refuse a row to accept that is none of the run.

    Raises:
        UsageError: it is not written as a row, or no workload of the run has that name.
    """
    for key in keys:
        if key.count("/") != 2:
            raise UsageError(f"--accept {key}: write workload/case/implementation")
        name = key.partition("/")[0]
        if name not in workloads:
            known = ", ".join(sorted(workloads))
            raise UsageError(f"--accept {key}: the run has no workload {name!r}, but {known}")


def _accepted(keys: Iterable[str], workload: str) -> list[tuple[str, str]]:
    """`workload/case/implementation` of `--accept` as row keys of one workload."""
    parts = (key.split("/") for key in keys)
    return [(case, name) for of, case, name in parts if of == workload]


def exit_code(outcomes: Iterable[Outcome], *, invalid: bool) -> int:
    """What the command line answers: 2 before 1 before 3 before 0.

    1 is a kernel of ours that is wrong or cannot be built or launched, 3 is what could not be measured. A
    reference that fails costs nothing but its own row.
    """
    codes = {_code(outcome) for outcome in outcomes} | ({2} if invalid else set())
    return next((code for code in (2, 1, 3) if code in codes), 0)


def _code(outcome: Outcome) -> int:
    if outcome.row.role == "reference":
        return 0
    if isinstance(outcome, Wrong):
        return 1
    if isinstance(outcome, Failed):
        lacking = outcome.cause in {"out_of_memory", "interfered", "throttled", "unavailable"}
        return 1 if outcome.stage in {"build", "verify", "reverify"} and not lacking else 3
    return 0


__all__ = [
    "Finisher",
    "Options",
    "PinOptions",
    "compile_",
    "exit_code",
    "inputs",
    "only",
    "pin",
    "rendered",
    "run",
]
