"""Jobs run: every outcome finished with what a worker does not know, and kept before it is shown."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypedDict

from tirbench import codec, digest, store
from tirbench.diagnostics import locate
from tirbench.model import (
    CaseJob,
    DeadlineChoice,
    Failed,
    Job,
    Machine,
    Outcome,
    Roofs,
    Row,
    Timed,
    TimerName,
)
from tirbench.selection import Chosen

if TYPE_CHECKING:
    from tirbench.execute import Workers
    from tirbench.execute.ahead import Ahead
    from tirbench.execute.events import Event, Reported
    from tirbench.execute.spending import Spending

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
    wait_s: float | None = None
    """How long to wait for a device that another run holds; `None`: as long as it takes, 0: not at all."""
    retune: bool = False
    """Whether tuned kernels choose again, instead of taking the configurations that are pinned."""


class Waiting(TypedDict):
    """How `execute` waits for a device."""

    on_wait: Callable[[str], None]
    lock_timeout_s: float | None


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
    from tirbench.execute.spending import Spending

    if not jobs:
        return
    with closing(Workers(kept.log_folder)) as workers:
        workers.warm(options.device)
        if options.time and options.device == "cuda" and not finish.roofs.copy_gbytes_per_s:
            measure_device(jobs, kept, workers, finish, say)
        lanes = _lanes(options)
        spending = Spending(devices=max(1, len(lanes)))
        with (
            _spent(spending, kept),
            _built_ahead(jobs, options, kept, finish, workers, lanes) as builders,
            closing(_events(jobs, options, lanes, kept, workers, say)) as events,
        ):
            for event in events:
                spending.look(event)
                if isinstance(event, RowDone):
                    event = RowDone(outcome=finish(event.outcome))  # noqa: PLW2901 - finished here
                    kept.outcome(event.outcome)
                elif isinstance(event, Reported) and event.data.get("event") == "samples":
                    _keep_samples(event, kept)
                if builders is not None:
                    builders.look(event)
                yield event


def _lanes(options: Options) -> Sequence[str]:
    """The GPUs that a run is spread over; empty for the first of them, or the CPU."""
    from tirbench.execute import gpus

    return () if options.gpus is None or options.device == "cpu" else gpus(options.gpus)


def _events(
    jobs: Sequence[Job],
    options: Options,
    lanes: Sequence[str],
    kept: store.RunWriter,
    workers: Workers,
    say: Callable[[str], None],
) -> Generator[Event, None, None]:
    """On the first GPU or the CPU with workers that are up already, or spread over several GPUs."""
    from tirbench.execute import Workers, execute, execute_over

    waiting: Waiting = {"on_wait": say, "lock_timeout_s": options.wait_s}
    if not lanes:
        return execute(jobs, log_dir=kept.log_folder, workers=workers, **waiting)

    def of_gpu(folder: Path, environ: Mapping[str, str]) -> Workers:
        made = Workers(folder, environ=environ)
        made.cores = workers.cores
        return made

    return execute_over(lanes, jobs, log_dir=kept.log_folder, workers_of=of_gpu, **waiting)


@contextmanager
def _built_ahead(
    jobs: Sequence[Job],
    options: Options,
    kept: store.RunWriter,
    finish: Finisher,
    workers: Workers,
    lanes: Sequence[str],
) -> Iterator[Ahead | None]:
    """What builds cases to come while others are measured, if anything does; the run says how much."""
    from tirbench import ahead

    target = ahead.target_of(finish.machine) if options.device == "cuda" and options.time else None
    if target is None:
        yield None
        return
    todo = list(ahead.to_build(jobs, finish.cases, target))
    log = kept.log_folder / "ahead.log"
    with ahead.building(todo, workers, gpus=max(1, len(lanes)), log=log) as builders:
        try:
            yield builders
        finally:
            kept.built_ahead(builders.built)


@contextmanager
def _spent(spending: Spending, kept: store.RunWriter) -> Iterator[None]:
    """Keep where the time went, also of a run that is interrupted."""
    try:
        yield
    finally:
        kept.spent(spending.spent())


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
    jobs: Sequence[Job],
    kept: store.RunWriter,
    workers: Workers,
    finish: Finisher,
    say: Callable[[str], None],
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
    waiting: Waiting = {"on_wait": say, "lock_timeout_s": finish.options.wait_s}
    with closing(execute([job], log_dir=kept.log_folder, workers=workers, **waiting)) as events:
        for event in events:
            if isinstance(event, Reported) and event.data.get("event") == "roofs":
                data = event.data
                finish.roofs = codec.load(Roofs, data["roofs"])
                finish.l2_bytes = int(data["device"]["l2_bytes"])
                kept.roofs(finish.roofs)
                facts = {**dict(finish.machine.facts), **data["device"]}
                finish.machine = replace(finish.machine, facts=tuple(sorted(facts.items())))
                kept.machine(finish.machine)
