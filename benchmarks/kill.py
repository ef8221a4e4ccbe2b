"""Kill a run with SIGKILL at random moments and look at what is left of it.

    python benchmarks/kill.py --times 100 --whole 10 --out benchmarks/results/kill.md

A run is a process that keeps its rows, a fork server, a builder that is at the cases to come, and workers
whose kernels start children (one of them in a session of its own), as the builder does. It says on a pipe
which rows it has finished. After the kill:

- every row it said is in the run's file exactly once, and at most one more: the one it was about to say;
- no process of it is left (found by a variable of the environment that all of them inherit);
- the lock of the device can be taken;
- resumed, the run has every row exactly once.

`--times` runs hold a program without torch, so that the kills fall into the run and not into imports; a
quarter as many kills hit the worker, the server and the builder each, which the run must survive. `--whole`
runs are `tirbench exec` of a workload, with torch, killed as often and continued with `--resume`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tirbench import codec, store
from tirbench.execute import DeviceLock, Workers, execute
from tirbench.execute.ahead import Ahead, ToBuild
from tirbench.execute.events import RowDone
from tirbench.model import CaseJob, Failed, Job, Machine, Plan, Row, Verification, Verified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT: Final = Path(__file__).resolve().parents[1]
MARK: Final = "TIRBENCH_KILL"
CASES: Final = 12
NAMES: Final = ("quick", "slow", "parent_of_two")
GONE_S: Final = 10.0
"""How long processes may take to be gone; longer is a failure."""

WORKLOAD: Final = """\
#:schema ./workload.schema.json
schema = 1
description = "A copy, twice"
id = "n{n}"
[matrix]
n = [64, 128, 256, 512, 1024, 2048]
[select]
smoke = ["*"]
cpu = ["*"]
[tensors]
x = { shape = ["n"], dtype = "float32", init = "normal" }
y = { role = "out", like = "x" }
[kernels.ours]
target = "torch.clone"
args = ["x"]
returns = "y"
[references.theirs]
target = "torch.clone"
args = ["x"]
returns = "y"
[check.oracle]
target = "torch.clone"
args = ["x"]
returns = "y"
"""


# --- The run that is killed -----------------------------------------------------------------------


class Program:
    """A harness without torch: kernels that take a while and start children."""

    def run(self, job: CaseJob, plan: Plan, report: Callable[[dict[str, Any]], None]) -> None:
        """Answer every row."""
        for row in job.rows:
            stage = {"implementation": row.implementation, "stage": "verify"}
            report({"event": "stage", "case": job.case, **stage})
            if row.implementation == "slow":
                time.sleep(0.02)
            elif row.implementation == "parent_of_two":
                sleep = ["sleep", "600"]
                subprocess.Popen(sleep)  # noqa: S603 - left behind on purpose
                subprocess.Popen(sleep, start_new_session=True)  # noqa: S603
            verified = Verified(
                row=row,
                verification=Verification(method="unchecked", worst=None, detail=plan.device),
                untimed="a test",
            )
            report({"event": "outcome", "outcome": codec.dump(verified)})


def open_program(_: str) -> Program:
    """What a worker calls."""
    return Program()


def build(_: Any, goes_on: Callable[[str], bool]) -> dict[str, int]:
    """What a builder does with a case: it takes a while and starts children."""
    if goes_on(""):
        subprocess.Popen(["sleep", "600"])  # noqa: S607 - left behind on purpose
        subprocess.Popen(["sleep", "600"], start_new_session=True)  # noqa: S607
        time.sleep(0.05)
    return {"kernels": 1}


def keep_a_run(root: Path, *, again: bool) -> None:
    """Start a run in `root`, or go on with the one that is there; finished rows are said on stdout."""
    if again:
        kept = store.read_run(root)
        with store.resume_run(root, kept) as writer:
            left = set(writer.unanswered)
            cases = [
                case
                for job in kept.jobs
                for one in job.cases
                if (case := _only(one, left)) is not None
            ]
            _execute([_with(kept.jobs[0], cases)] if cases else [], writer)
        return
    case_jobs = tuple(
        CaseJob(
            case=f"c{number}",
            rows=tuple(
                Row(workload="w", case=f"c{number}", implementation=name, role="kernel")
                for name in NAMES
            ),
        )
        for number in range(CASES)
    )
    rows = [row for case in case_jobs for row in case.rows]
    machine = Machine(hardware="cpu-test", device="none", kind="cpu")
    tree = store.Tree(commit=None, dirty=())
    with store.open_run(root, machine=machine, rows=rows, tree=tree) as writer:
        harness = str(writer.harness("w.py", "# answered by benchmarks/kill.py\n"))
        job = Job(workload="w", harness=harness, plan=Plan(device="cpu"), cases=case_jobs)
        writer.jobs([job], (), "x")
        _execute([job], writer)


def _only(case: CaseJob, rows: set[Row]) -> CaseJob | None:
    kept = tuple(row for row in case.rows if row in rows)
    return CaseJob(case=case.case, rows=kept) if kept else None


def _with(job: Job, cases: list[CaseJob]) -> Job:
    return Job(workload=job.workload, harness=job.harness, plan=job.plan, cases=tuple(cases))


def _execute(jobs: list[Job], writer: store.RunWriter) -> None:
    with Workers(writer.log_folder, preload=("tirbench.codec",)) as workers:
        todo = [ToBuild(case=f"w/{case.case}", request={}) for job in jobs for case in job.cases]
        ahead = Ahead(
            [todo[1:]],
            lambda: workers.start_builder("cpu", ()),
            opener="kill:build",
            log=writer.log_folder / "ahead.log",
        )
        events = execute(
            jobs, log_dir=writer.log_folder, workers=workers, opener="kill:open_program"
        )
        with closing(ahead), closing(events):
            for event in events:
                ahead.look(event)
                if isinstance(event, RowDone):
                    writer.outcome(event.outcome)
                    os.write(1, event.outcome.row.key.encode() + b"\n")


# --- Killing and looking --------------------------------------------------------------------------


@dataclass
class Found:
    """What was left after kills of one kind."""

    kills: int = 0
    before_the_run: int = 0
    finished_first: int = 0
    rows_said: int = 0
    rows_lost: int = 0
    rows_twice: int = 0
    rows_ahead: int = 0
    unreadable: int = 0
    orphans: int = 0
    locks_held: int = 0
    not_completed: int = 0
    slowest_gone_s: float = 0.0
    failed_rows: Counter[str] = field(default_factory=Counter)

    @property
    def bad(self) -> int:
        """How much of what must never be was seen."""
        return (
            self.rows_lost + self.rows_twice + self.unreadable + self.orphans + self.locks_held
        ) + self.not_completed


def marked(mark: str) -> dict[int, int]:
    """The living processes of a run: process id to that of the parent."""
    found = {}
    needle = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                if needle in (entry / "environ").read_bytes().split(b"\0"):
                    stat = (entry / "stat").read_text().rpartition(")")[2].split()
                    if stat[0] != "Z":
                        found[int(entry.name)] = int(stat[1])
    return found


def command(pid: int) -> str:
    """The command line of a process."""
    return (Path("/proc") / str(pid) / "cmdline").read_text().replace("\0", " ")


def niceness(pid: int) -> int:
    """How much a process yields to others: builders do."""
    with suppress(OSError):
        return os.getpriority(os.PRIO_PROCESS, pid)
    return 0


def wait_until_gone(mark: str) -> float | None:
    """How long it took until no process of a run was left; `None` if some stayed."""
    start = time.monotonic()
    while marked(mark):
        if time.monotonic() - start > GONE_S:
            return None
        time.sleep(0.01)
    return time.monotonic() - start


def victims(process: subprocess.Popen[bytes], mark: str) -> dict[str, int]:
    """The process ids of a run by what they are."""
    parents = marked(mark)
    found = {"parent": process.pid}
    for pid, parent in parents.items():
        if parent == process.pid:
            found["server"] = pid
    for pid, parent in parents.items():
        if parent == found.get("server"):
            found["builder" if niceness(pid) > 0 else "worker"] = pid
    return found


class Killer:
    """Starts runs in fresh folders, kills them, and counts what is left."""

    def __init__(self, folder: Path, start: Callable[[Path, bool], list[str]], seed: int) -> None:
        self.folder = folder
        self.start = start
        self.random = random.Random(seed)  # noqa: S311 - no secret
        self.number = 0

    def run(self, root: Path, *, again: bool, mark: str) -> subprocess.Popen[bytes]:
        """Start a run, or go on with it."""
        environ = {
            **os.environ,
            MARK: mark,
            "TIRBENCH_LOCK_DIR": str(self.folder / "locks"),
            "PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}",
            "OMP_NUM_THREADS": "1",
        }
        return subprocess.Popen(  # noqa: S603 - ourselves
            self.start(root, again),
            cwd=root,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=(root / f"stderr-{mark}").open("wb"),
        )

    def fresh(self) -> tuple[Path, str]:
        """A folder and a mark for the next run."""
        self.number += 1
        root = self.folder / f"run{self.number}"
        root.mkdir()
        (root / "pyproject.toml").touch()
        (root / "copy.toml").write_text(WORKLOAD)
        return root, f"{self.folder.name}-{self.number}"

    def length_s(self) -> float:
        """How long a run takes that nobody kills."""
        root, mark = self.fresh()
        start = time.monotonic()
        process = self.run(root, again=False, mark=mark)
        process.communicate()
        if process.returncode != 0:
            raise SystemExit((root / f"stderr-{mark}").read_text())
        return time.monotonic() - start

    def kill_parent(self, length_s: float, found: Found) -> None:
        """One kill of the process that keeps the run."""
        root, mark = self.fresh()
        process = self.run(root, again=False, mark=mark)
        time.sleep(self.random.uniform(0, length_s))
        process.kill()
        said = process.communicate()[0].decode().split("\n")[:-1]
        found.kills += 1
        found.finished_first += process.returncode == 0
        found.rows_said += len(said)
        self.look(root, mark, said, found)

    def look(self, root: Path, mark: str, said: Sequence[str], found: Found) -> None:
        """Count what is left of a killed run, and complete it."""
        gone_s = wait_until_gone(mark)
        if gone_s is None:
            found.orphans += len(marked(mark))
            for pid in marked(mark):
                status = Path(f"/proc/{pid}/status").read_text().split("\n")
                print(f"left of {mark}: {command(pid)}", *status[:9], file=sys.stderr)
                os.kill(pid, signal.SIGKILL)
        found.slowest_gone_s = max(found.slowest_gone_s, gone_s or 0.0)
        try:
            lock = DeviceLock("cpu", folder=self.folder / "locks", timeout_s=1)
            (self.folder / "locks").mkdir(exist_ok=True)
            with lock:
                pass
        except Exception:  # noqa: BLE001 - counted, whatever it is
            found.locks_held += 1
        kept = self.kept(root, said, found)
        if kept is None or kept.run.complete:
            return
        if not kept.inputs:
            found.before_the_run += 1
            return
        process = self.run(root, again=True, mark=mark)
        process.communicate()
        whole = self.kept(root, said, found)
        complete = whole is not None and whole.run.complete and process.returncode == 0
        found.not_completed += not complete

    def kept(self, root: Path, said: Sequence[str], found: Found) -> store.KeptRun | None:
        """The run as it lies on the disk, held against what it said."""
        if not (root / ".tirbench" / "runs" / "latest").exists():
            found.before_the_run += 1
            found.rows_lost += len(said)
            return None
        lines = next((root / ".tirbench" / "runs").glob("*/outcomes.jsonl")).read_bytes()
        rows = [json.loads(line)["row"] for line in lines.split(b"\n")[:-1]]
        written = Counter(f"{r['workload']}/{r['case']}/{r['implementation']}" for r in rows)
        found.rows_twice += sum(count - 1 for count in written.values())
        found.rows_lost += len(set(said) - set(written))
        try:
            kept = store.read_run(root)
        except Exception:  # noqa: BLE001 - counted, whatever it is
            found.unreadable += 1
            return None
        if not kept.run.complete and said:
            found.rows_ahead = max(found.rows_ahead, len(set(written) - set(said)))
        return kept

    def kill_child(self, what: str, length_s: float, found: Found) -> None:
        """One kill of the worker or of the server, which the run must survive."""
        root, mark = self.fresh()
        process = self.run(root, again=False, mark=mark)
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        first = process.stdout.readline()
        time.sleep(self.random.uniform(0, length_s / 2))
        if (pid := victims(process, mark).get(what)) is not None:
            found.kills += 1
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        said = (first + process.communicate()[0]).decode().split("\n")[:-1]
        found.rows_said += len(said)
        found.not_completed += process.returncode != 0
        self.look(root, mark, said, found)
        outcomes = store.read_run(root).run.outcomes
        found.failed_rows.update(o.cause for o in outcomes if isinstance(o, Failed))


def light(root: Path, again: bool) -> list[str]:
    """The command of a run without torch."""
    return [sys.executable, __file__, "--child", str(root), *(["--again"] if again else [])]


def whole(_: Path, again: bool) -> list[str]:
    """The command of a run of tirbench itself."""
    quick = ["--placements", "1", "--rounds", "1", "--device", "cpu"]
    arguments = ["--resume", "latest"] if again else ["copy.toml", *quick]
    return [sys.executable, "-m", "tirbench", "exec", *arguments, "--format", "json"]


def measure(times: int, of_whole: int, seed: int) -> dict[str, Found]:
    """Kill, and count."""
    results: dict[str, Found] = {}
    with tempfile.TemporaryDirectory() as name:
        (folder := Path(name) / "light").mkdir()
        killer = Killer(folder, light, seed)
        length_s = killer.length_s()
        found = results[f"parent, of a run of {CASES * len(NAMES)} rows"] = Found()
        for _ in range(times):
            killer.kill_parent(length_s, found)
        for what in ("worker", "server", "builder"):
            found = results[f"{what}, while the run goes on"] = Found()
            for _ in range(times // 4):
                killer.kill_child(what, length_s, found)
        if of_whole:
            (folder := Path(name) / "whole").mkdir()
            killer = Killer(folder, whole, seed)
            length_s = killer.length_s()
            found = results["parent, `tirbench exec` of 12 rows with torch"] = Found()
            for _ in range(of_whole):
                root, mark = killer.fresh()
                process = killer.run(root, again=False, mark=mark)
                time.sleep(killer.random.uniform(0, length_s))
                process.kill()
                process.communicate()
                found.kills += 1
                killer.look(root, mark, (), found)
    return results


def report(results: dict[str, Found], seed: int) -> Iterator[str]:
    """The counts as a page."""
    yield "# What a SIGKILL leaves of a run"
    yield ""
    yield f"`python benchmarks/kill.py --seed {seed}`: killed at uniformly random moments of its life."
    yield ""
    columns = {
        "kills": "kills",
        "rows_said": "rows said",
        "rows_lost": "lost",
        "rows_twice": "twice",
        "unreadable": "runs unreadable",
        "orphans": "orphan processes",
        "locks_held": "locks held",
        "not_completed": "not completed after",
    }
    yield "| killed | " + " | ".join(columns.values()) + " | processes gone within |"
    yield "|---|" + "---:|" * (len(columns) + 1)
    for name, found in results.items():
        cells = [str(getattr(found, key)) for key in columns]
        yield f"| {name} | " + " | ".join(cells) + f" | {found.slowest_gone_s:.2f} s |"
    yield ""
    for name, found in results.items():
        facts = [f"{found.before_the_run} kills fell before the first row was planned"]
        facts += [f"{found.finished_first} came after its end"] if found.finished_first else []
        facts += [f"at most {found.rows_ahead} row on disk that it had not said yet"]
        facts += [f"rows failed as {dict(found.failed_rows)}"] if found.failed_rows else []
        yield f"- {name}: {'; '.join(facts)}."


def main() -> int:
    """Kill runs and print the counts; 1 where anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--whole", type=int, default=10)
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--again", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        keep_a_run(options.child, again=options.again)
        return 0
    results = measure(options.times, options.whole, options.seed)
    text = "\n".join(report(results, options.seed)) + "\n"
    if options.out is not None:
        store.write(options.out, text)
    print(text, end="")
    return 1 if any(found.bad for found in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
