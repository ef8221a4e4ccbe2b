"""Every command as a composition of stages; nothing here prints, measures or decides about numbers."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from tirbench import codec, digest, store
from tirbench.diagnostics import locate
from tirbench.errors import UsageError
from tirbench.expand import expand
from tirbench.model import (
    Baseline,
    CaseJob,
    DeadlineChoice,
    Failed,
    Harness,
    Job,
    Machine,
    Outcome,
    Plan,
    Roofs,
    Row,
    Run,
    Timed,
    TimerName,
    Wrong,
)
from tirbench.plan import Ask, Planned, plan, rows_of
from tirbench.reading import Reading
from tirbench.selection import Chosen
from tirbench.store.files import write

if TYPE_CHECKING:
    from tirbench.execute import Workers
    from tirbench.execute.events import Event, Reported

IMPORTED: Final = frozenset({"numpy", "packaging", "tirbench", "torch", "triton", "tvm_tirx"})
"""Top-level modules that a harness imports, besides those of the standard library."""

COPY: Final = "copy"
"""Row of the roof measurement that is the copy bandwidth; the others are dtypes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a run is made."""

    device: Literal["cuda", "cpu"]
    timer: TimerName | None = None
    placements: int = 5
    rounds: int = 2
    time: bool = True
    deadlines: DeadlineChoice = field(default_factory=DeadlineChoice)
    gpus: int | None = None
    """How many of the visible GPUs to spread over: 0 for all of them, `None` to use the first alone."""
    retune: bool = False
    """Whether tuned kernels choose again, instead of taking the configurations that are pinned."""


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


def run_jobs(
    jobs: Sequence[Job],
    options: Options,
    kept: store.RunWriter,
    finish: Finisher,
    say: Callable[[str], None],
) -> Iterator[Event]:
    """Run what can be run and keep every outcome before it is shown."""
    from tirbench.execute import Workers
    from tirbench.execute.events import Reported, RowDone

    if not jobs:
        return
    with closing(Workers(kept.log_folder)) as workers:
        workers.warm(options.device)
        if options.time and options.device == "cuda" and not finish.roofs.copy_gbytes_per_s:
            measure_device(jobs, kept, workers, finish)
        with closing(_events(jobs, options, kept, workers, say)) as events:
            for event in events:
                if isinstance(event, RowDone):
                    event = RowDone(outcome=finish(event.outcome))  # noqa: PLW2901 - finished here
                    kept.outcome(event.outcome)
                elif isinstance(event, Reported) and event.data.get("event") == "samples":
                    _keep_samples(event, kept)
                yield event


def _events(
    jobs: Sequence[Job],
    options: Options,
    kept: store.RunWriter,
    workers: Workers,
    say: Callable[[str], None],
) -> Generator[Event, None, None]:
    """On the first GPU or the CPU with workers that are up already, or spread over several GPUs."""
    from tirbench.execute import execute, execute_over, gpus

    if options.gpus is None or options.device == "cpu":
        return execute(jobs, log_dir=kept.log_folder, workers=workers, on_wait=say)
    return execute_over(gpus(options.gpus), jobs, log_dir=kept.log_folder, on_wait=say)


def _keep_samples(event: Reported, kept: store.RunWriter) -> None:
    """Raw times of single calls: later rules can be replayed on them."""
    data = event.data
    row = next(
        row
        for row in kept.rows
        if (row.workload, row.case, row.implementation)
        == (event.workload, event.case, data["implementation"])
    )
    for index, samples in enumerate(data["rounds"]):
        kept.samples(row, data["placement"], index, samples)


class Finisher:
    """Adds to an outcome what a worker does not know: digests of meaning, rates, plausibility."""

    def __init__(
        self, chosen: Iterable[Chosen], options: Options, root: Path, machine: Machine
    ) -> None:
        """Look the cases up once."""
        self.machine = machine
        self.cases = {case.key: case for item in chosen for case in item.cases}
        self.options = options
        self.read_file = digest.reader(root)
        self.roofs = Roofs()
        self.l2_bytes = int(dict(machine.facts).get("l2_bytes", "0"))

    def __call__(self, outcome: Outcome) -> Outcome:
        """The outcome as it is kept."""
        from tirbench.rates import rated

        if isinstance(outcome, Failed) and not outcome.place:
            outcome = replace(outcome, place=self.place(outcome.row))
        outcome = rated(outcome, self.roofs, self.l2_bytes)
        if not isinstance(outcome, Timed):
            return outcome
        case = self.cases.get(f"{outcome.row.workload}/{outcome.row.case}")
        if case is None:  # replayed from a workload that was rewritten since: nothing to digest
            return outcome
        return replace(
            outcome,
            problem=digest.problem(case, self.read_file),
            protocol=digest.protocol(
                case, outcome.estimate.timer, self.options.placements, self.options.rounds
            ),
            source=digest.source(case, outcome.row.implementation, self.read_file),
        )

    def place(self, row: Row) -> str:
        """The line of the TOML that asks for a row: what crashed or hung could not say it itself."""
        case = self.cases.get(f"{row.workload}/{row.case}")
        if case is None:
            return ""
        path = next(
            (item.path for item in case.implementations if item.name == row.implementation), ()
        )
        line = locate(case.workload.source.text, path).line
        return f"{case.workload.source.path}:{line}"


def measure_device(
    jobs: Sequence[Job], kept: store.RunWriter, workers: Workers, finish: Finisher
) -> None:
    """Measure the ceilings of the device in this run, and ask it what only it can tell.

    Copy bandwidth is always measured; of matrix products only the dtypes that a chosen case is compared to.
    """
    from tirbench.execute import execute
    from tirbench.execute.events import Reported

    dtypes = sorted({str(case.work.roof) for case in finish.cases.values() if case.work.roof})
    rows = tuple(
        Row(workload="roofs", case="device", implementation=name, role="reference")
        for name in (COPY, *dtypes)
    )
    program = Path(__file__).parent / "harness" / "roofs.py"  # named, not imported: it needs torch
    cases = (CaseJob(case="device", rows=rows),)
    job = Job(workload="roofs", harness=str(program), plan=jobs[0].plan, cases=cases)
    with closing(execute([job], log_dir=kept.log_folder, workers=workers)) as events:
        for event in events:
            if isinstance(event, Reported) and event.data.get("event") == "roofs":
                data = event.data
                finish.roofs = codec.load(Roofs, data["roofs"])
                finish.l2_bytes = int(data["device"]["l2_bytes"])
                kept.roofs(finish.roofs)
                facts = {**dict(finish.machine.facts), **data["device"]}
                kept.machine(replace(finish.machine, facts=tuple(sorted(facts.items()))))


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
        measure_again: runs rows in fresh workers; called once a workload, where a number left its band.
    """
    pinned = []
    for chosen in reading.chosen:
        workload = chosen.workload
        path = store.baseline_path(workload, run_.machine.hardware)
        ours = {
            (o.row.case, o.row.implementation): o
            for o in run_.outcomes
            if o.row.workload == workload.name
        }
        every = (
            (row.case, row.implementation) for case in expand(workload) for row in rows_of(case)
        )
        pinning = store.Pinning(
            machine=run_.machine,
            known=frozenset(every),
            reference=workload.gate.reference,
            uncommitted=tree.commit is None or bool(tree.uncommitted_inputs),
            accept=tuple((key, asked.reason) for key in _accepted(asked.accept, workload.name)),
        )
        baseline = store.read_baseline(reading.root, path)
        planned = store.plan_pin(workload.name, baseline, tuple(ours.values()), pinning)
        rows = tuple(ours[key].row for key in planned.to_measure if key in ours)
        done = store.apply(planned, measure_again(rows) if rows else (), prune=asked.prune)
        store.write_baseline(reading.root, path, done.baseline)
        if done.baseline.rows:
            store.write_device(
                reading.root, store.device_path(workload, run_.machine.hardware), run_.machine
            )
        pinned.append(done)
    return tuple(pinned)


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


def _accepted(keys: Iterable[str], workload: str) -> list[tuple[str, str]]:
    """`workload/case/implementation` of `--accept` as row keys of one workload."""
    parts = [tuple(key.split("/")) for key in keys]
    for part in parts:
        if len(part) != 3:
            raise UsageError(f"--accept {'/'.join(part)}: write workload/case/implementation")
    return [(part[1], part[2]) for part in parts if part[0] == workload]


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
