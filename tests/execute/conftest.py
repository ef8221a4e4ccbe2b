from __future__ import annotations

import json
import os
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tirbench.execute.deadlines import Deadlines
from tirbench.execute.events import CaseDone, Event, Reported, RowDone, WorkerReplaced
from tirbench.execute.jobs import Surroundings, execute_in
from tirbench.execute.pool import Workers
from tirbench.model import CaseJob, Failed, Job, Outcome, Plan, Row, Verified

if TYPE_CHECKING:
    from collections.abc import Iterator

# Deadlines that a busy machine keeps and a test can wait for.
QUICK = Deadlines(
    load_s=10, allocate_s=1.0, build_s=10, verify_s=1.0, time_s=1.0, reverify_s=1.0, grace_s=0.3
)


@dataclass
class Ran:
    """What a run said, in forms that read well in a test."""

    events: list[Event] = field(default_factory=list)

    @property
    def outcomes(self) -> dict[str, Outcome]:
        found = {}
        for event in self.events:
            if isinstance(event, RowDone):
                row = event.outcome.row
                assert f"{row.case}.{row.implementation}" not in found
                found[f"{row.case}.{row.implementation}"] = event.outcome
        return found

    @property
    def good(self) -> set[str]:
        return {name for name, outcome in self.outcomes.items() if isinstance(outcome, Verified)}

    def failed(self, name: str) -> Failed:
        outcome = self.outcomes[name]
        assert isinstance(outcome, Failed), outcome
        return outcome

    def process_of(self, name: str) -> str:
        outcome = self.outcomes[name]
        assert isinstance(outcome, Verified), outcome
        return outcome.verification.detail

    @property
    def replaced(self) -> list[str]:
        return [event.reason for event in self.events if isinstance(event, WorkerReplaced)]

    @property
    def reported(self) -> list[dict[str, Any]]:
        return [dict(event.data) for event in self.events if isinstance(event, Reported)]

    def log(self, case: str) -> str:
        return self.log_path(case).read_text()

    def log_path(self, case: str) -> Path:
        return next(
            Path(event.log)
            for event in self.events
            if isinstance(event, CaseDone) and event.case == case
        )


def rows_of(case: str, *names: str) -> tuple[Row, ...]:
    return tuple(Row(workload="w", case=case, implementation=name, role="kernel") for name in names)


def job_of(folder: Path, cases: dict[str, dict[str, str]], harness: str = "w.json") -> Job:
    """A job whose harness makes each implementation of each case behave as said."""
    path = folder / harness
    path.write_text(json.dumps(cases))
    return Job(
        workload="w",
        harness=str(path),
        plan=Plan(device="cpu"),
        cases=tuple(
            CaseJob(
                case=case,
                rows=rows_of(case, *(n for n in behaviours if n not in {"allocate", "after"})),
            )
            for case, behaviours in cases.items()
        ),
    )


@pytest.fixture(scope="session")
def note(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where foreign code writes the process ids of the children it leaves."""
    return tmp_path_factory.mktemp("note") / "pids"


@pytest.fixture(scope="session")
def workers(tmp_path_factory: pytest.TempPathFactory, note: Path) -> Iterator[Workers]:
    """Workers without torch, so that their server is up at once, that can import `foreign`."""
    environ = {**os.environ, "TIRBENCH_TEST_NOTE": str(note)}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        with Workers(
            tmp_path_factory.mktemp("servers"), preload=("tirbench.codec",), environ=environ
        ) as pool:
            pool.warm("cpu")
            yield pool


@pytest.fixture
def surroundings(tmp_path: Path, workers: Workers) -> Surroundings:
    return Surroundings(
        log_dir=tmp_path / "logs",
        start_worker=workers.start,
        lock=lambda *_: nullcontext(),
        deadlines=QUICK,
        opener="foreign:open_program",
    )


class Runner:
    """Runs cases of behaviours in real processes."""

    def __init__(self, folder: Path, surroundings: Surroundings) -> None:
        self.folder = folder
        self.surroundings = surroundings

    def __call__(self, cases: dict[str, dict[str, str]], harness: str = "w.json") -> Ran:
        ran = Ran()
        with closing(
            execute_in(self.surroundings, [job_of(self.folder, cases, harness)])
        ) as events:
            ran.events.extend(events)
        return ran


@pytest.fixture
def run(tmp_path: Path, surroundings: Surroundings) -> Runner:
    return Runner(tmp_path, surroundings)
