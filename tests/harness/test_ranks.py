"""Ranks: what precedes every launch, one process as a world of one, and several that agree."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tirbench import codec
from tirbench.aot.case import CompiledCase
from tirbench.errors import MeasurementError, UsageError
from tirbench.harness import Program, driver, open_program, timed
from tirbench.harness.case import Shared
from tirbench.harness.declarations import Timing
from tirbench.harness.device import Device
from tirbench.harness.pairs import bench_arms
from tirbench.harness.ranks import Ranks, join
from tirbench.model import (
    CaseJob,
    CompileJob,
    CompileTarget,
    Failed,
    Outcome,
    Plan,
    Row,
    Skipped,
    Timed,
    Verified,
    Wrong,
)
from tirbench.tensors import Arena

TIMEOUT_S = 20.0  # a rank that waits longer than this would wait for ever

HEAD = """\
import torch

from tirbench import harness as tb
from tirbench.expression import functions as f

program = tb.Program("w", workload="w.toml", file=__file__, seed=0)
CALLS = []


@program.case("c", {{}}, world_size={world_size})
def c(case: tb.Case) -> None:
    device = case.device
    x, s, acc, y = case.tensors(
        tb.Tensor("x", shape=(64,), dtype=torch.float32, init=tb.normal()),  # w.toml:10
        tb.Tensor("s", shape=(64,), dtype=torch.float32, init=tb.normal(), replicated=True),  # w.toml:11
        tb.Tensor("acc", role="inout", shape=(64,), dtype=torch.float32, init=tb.full(3.0)),  # w.toml:12
        tb.Tensor("y", role="out", shape=(64,), dtype=torch.float32),  # w.toml:13
    )
"""

PREPARE = """
    @case.prepare  # w.toml:20
    def prepare():
        fill = torch.Tensor.fill_
        return lambda: (CALLS.append("prepare"), fill(acc, float(acc.max()) - 3.0))
"""

KERNEL = """
    @case.kernel('adds')  # w.toml:30
    def kernel_adds():
        def launch():
            CALLS.append("launch")
            acc.add_(x)
            y.copy_(acc)

        return launch
"""

TAIL = """
    @case.oracle(returns=("y",), dtype=torch.float64)  # w.toml:40
    def oracle(x):
        return x

    case.check(
        tb.Rule("y"),  # w.toml:41
    )
"""


def written(tmp_path: Path, *parts: str, world_size: int | None = 1) -> Program:
    """A harness of one case."""
    (tmp_path / "w.toml").touch()
    file = tmp_path / "w.py"
    file.write_text(HEAD.format(world_size=world_size) + "".join(parts))
    program = open_program(file)
    assert isinstance(program, Program)
    return program


def job_of(*names: str, time: bool = False) -> CaseJob:
    rows = tuple(Row(workload="w", case="c", implementation=n, role="kernel") for n in names)
    return CaseJob(case="c", rows=rows, time=time, untimed="" if time else "only verified")


def outcomes_of(events: list[dict[str, Any]]) -> dict[str, Outcome]:
    found = [codec.load(Outcome, one["outcome"]) for one in events if one["event"] == "outcome"]
    assert len({outcome.row for outcome in found}) == len(found)
    return {outcome.row.implementation: outcome for outcome in found}


def ran(program: Program, *names: str, time: bool = False) -> dict[str, Outcome]:
    """The case in this process alone."""
    events: list[dict[str, Any]] = []
    plan = Plan(device="cpu", placements=2, rounds=2)
    program.run(job_of(*names, time=time), plan, events.append)
    return outcomes_of(events)


def calls_of(program: Program) -> list[Any]:
    calls: list[Any] = program.cases["c"].function.__globals__["CALLS"]
    return calls


@pytest.fixture(autouse=True)
def _no_group_is_left() -> Iterator[None]:
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


# --- What precedes every launch -------------------------------------------------------------------


def test_prepare_runs_before_every_launch_on_restored_tensors(tmp_path: Path) -> None:
    program = written(tmp_path, PREPARE, KERNEL, TAIL)
    outcome = ran(program, "adds", time=True)["adds"]
    assert isinstance(outcome, Timed), outcome
    calls = calls_of(program)
    assert calls[::2] == ["prepare"] * (len(calls) // 2)
    assert calls[1::2] == ["launch"] * (len(calls) // 2)
    assert "prepare of [ranks] before every launch, untimed" in outcome.notes


def test_without_what_prepare_does_the_kernel_is_wrong(tmp_path: Path) -> None:
    outcome = ran(written(tmp_path, KERNEL, TAIL), "adds")["adds"]
    assert isinstance(outcome, Wrong)


def test_prepare_is_there_where_nothing_is_restored(tmp_path: Path) -> None:
    program = written(tmp_path, PREPARE.replace("acc", "y"), KERNEL, TAIL)
    case = program.open("c", Device("cpu"), 0, Shared(Arena("cpu")))
    assert case.before_launch == case.reset


def test_both_sides_of_a_comparison_are_prepared_before_every_launch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr("tirbench.timing.bench", lambda *_, **options: given.update(options))
    sides: Any = {
        "base:k": SimpleNamespace(case=SimpleNamespace(before_launch=print)),
        "head:k": SimpleNamespace(case=SimpleNamespace(before_launch=None)),
    }
    bench_arms(Plan(device="cpu"), Timing(), dict.fromkeys(sides, print), sides)
    assert given["prepare"] == {"base:k": print}


def test_a_prepare_that_raises_fails_every_row_with_its_line_of_the_toml(tmp_path: Path) -> None:
    bad = PREPARE.replace('CALLS.append("prepare")', "f.no_such_function()")
    outcome = ran(written(tmp_path, bad, KERNEL, TAIL), "adds")["adds"]
    assert isinstance(outcome, Failed)
    assert (outcome.stage, outcome.place) == ("verify", "w.toml:20")
    assert "no_such_function" in outcome.reason


def test_a_prepare_that_cannot_be_loaded_is_said_with_its_line_of_the_toml(tmp_path: Path) -> None:
    bad = PREPARE.replace("fill = torch.Tensor.fill_", "fill = case.load('no_such_module.fill')")
    outcome = ran(written(tmp_path, bad, KERNEL, TAIL), "adds")["adds"]
    assert isinstance(outcome, Failed)
    assert outcome.place == "w.toml:20"
    assert outcome.reason == "ModuleNotFoundError: No module named 'no_such_module'"


# --- One process ----------------------------------------------------------------------------------


def test_a_world_of_one_has_a_rank_and_gathers_its_own_tensor(tmp_path: Path) -> None:
    named = "\n    CALLS.append((device.rank, device.local_rank, device.world_size))\n"
    kernel = KERNEL.replace("acc.add_(x)", "acc.copy_(x)")
    tail = TAIL.replace("return x", "return f.gathered(x)")
    program = written(tmp_path, named, kernel, tail)
    assert isinstance(ran(program, "adds")["adds"], Verified)
    assert calls_of(program)[0] == (0, 0, 1)


def test_a_world_of_one_has_a_process_group_for_its_kernels(tmp_path: Path) -> None:
    kernel = KERNEL.replace("acc.add_(x)", "acc.copy_(x); torch.distributed.all_reduce(acc)")
    assert isinstance(ran(written(tmp_path, kernel, TAIL), "adds")["adds"], Verified)


def test_a_workload_without_ranks_gets_no_process_group(tmp_path: Path) -> None:
    ran(written(tmp_path, KERNEL, TAIL, world_size=None), "adds")
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize(
    ("needed", "there", "sentence"),
    [
        (2, 1, "c needs 2 ranks and runs as 1: torchrun --nproc-per-node 2 w.py c"),
        (2, 4, "c needs 2 ranks and runs as 4: torchrun --nproc-per-node 2 w.py c"),
        (1, 2, "c needs 1 process and runs as 2: python w.py c"),
        (None, 2, "c needs 1 process and runs as 2: python w.py c"),
    ],
)
def test_a_case_of_another_number_of_ranks_is_refused_with_how_it_is_started(
    tmp_path: Path, needed: int | None, there: int, sentence: str
) -> None:
    program = written(tmp_path, KERNEL, TAIL, world_size=needed)
    device = Device("cpu", ThreadRank(World(there), 0))
    with pytest.raises(UsageError) as refused:
        program.open("c", device, 0, Shared(Arena("cpu")))
    assert str(refused.value) == sentence


def test_what_is_compiled_without_a_device_is_the_first_of_its_ranks(tmp_path: Path) -> None:
    named = "\n    CALLS.append((device.rank, device.local_rank, device.world_size))\n"
    program = written(tmp_path, named, PREPARE, KERNEL, TAIL, world_size=4)
    target = CompileTarget(
        arch="sm_90", sm_count=1, l2_bytes=1, smem_bytes=1, memory_bytes=1, product=""
    )
    job = CompileJob(harness="", case="c", rows=(), target=target)
    case = CompiledCase(program, job, tmp_path)
    program.cases["c"].function(case)
    case.build(case.implementations["adds"])
    assert calls_of(program) == [(0, 0, 4)]


def test_a_process_that_torchrun_did_not_start_is_alone() -> None:
    assert type(join("cpu", {"RANK": "1", "PATH": "/bin"})) is Ranks


def test_a_rank_without_a_gpu_of_its_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    environ = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "localhost"}
    with pytest.raises(MeasurementError) as refused:
        join("cuda", environ)
    assert str(refused.value) == (
        "rank 3 has no GPU of its own: this host has 1; start no more ranks, or --device cpu"
    )


# --- Several ranks, as threads --------------------------------------------------------------------


class World:
    """What ranks say to each other; they fail instead of waiting for ever."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.said: list[Any] = [None] * size
        self.meeting = threading.Barrier(size, timeout=TIMEOUT_S)


class ThreadRank(Ranks):
    """A thread as a rank."""

    def __init__(self, world: World, rank: int) -> None:
        self.world = world
        self.rank = self.local_rank = rank
        self.world_size = world.size

    def _exchange(self, said: Any) -> list[Any]:
        self.world.said[self.rank] = said
        self.world.meeting.wait()
        found = list(self.world.said)
        self.world.meeting.wait()
        return found

    def gather(self, said: str | None) -> list[str | None]:
        return self._exchange(said)

    def barrier(self) -> None:
        self.world.meeting.wait()

    def max_reduce(self, value: float) -> float:
        largest: float = max(self._exchange(value))
        return largest


def on_ranks(main: Callable[[ThreadRank], Any], size: int = 2) -> list[Any]:
    """What `main` returns or raises on every rank."""
    world = World(size)
    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(main, ThreadRank(world, rank)) for rank in range(size)]
        return [future.exception(2 * TIMEOUT_S) or future.result() for future in futures]


@pytest.fixture
def over_ranks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Outcome]]]:
    """Runs a case of two ranks; the outcomes of each."""
    # Counting sets a listener of the whole process, which threads would take from each other.
    monkeypatch.setattr(driver, "counting", lambda _: contextlib.nullcontext())

    def run(
        program: Program, *names: str, time: bool = False, device: Any = "cpu"
    ) -> list[dict[str, Outcome]]:
        plan = Plan(device=device, placements=2, rounds=2)

        def main(rank: ThreadRank) -> dict[str, Outcome]:
            events: list[dict[str, Any]] = []
            program.run(job_of(*names, time=time), plan, events.append, rank)
            return outcomes_of(events)

        found = on_ranks(main)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return found

    return run


OverRanks = Callable[..., "list[dict[str, Outcome]]"]


def test_every_rank_verifies_its_own_draws(tmp_path: Path, over_ranks: OverRanks) -> None:
    note = "\n    CALLS.append((device.rank, float(x[0]), float(s[0])))\n"
    program = written(tmp_path, note, PREPARE, KERNEL, TAIL, world_size=2)
    for outcomes in over_ranks(program, "adds"):
        assert isinstance(outcomes["adds"], Verified)
        assert "over 2 ranks, the slowest of which counts" in outcomes["adds"].notes
    (first, second) = sorted(call for call in calls_of(program) if isinstance(call, tuple))
    assert [first[0], second[0]] == [0, 1]
    assert first[1] != second[1]
    assert first[2] == second[2]


def test_what_is_wrong_on_one_rank_is_wrong_on_all(tmp_path: Path, over_ranks: OverRanks) -> None:
    kernel = KERNEL.replace("y.copy_(acc)", "y.copy_(acc + device.rank)")
    found = over_ranks(written(tmp_path, PREPARE, kernel, TAIL, world_size=2), "adds")
    for outcomes in found:
        wrong = outcomes["adds"]
        assert isinstance(wrong, Wrong)
        assert wrong.reason.startswith("rank 1: y: 64 of 64 elements off")


def test_what_one_rank_cannot_build_no_rank_launches(tmp_path: Path, over_ranks: OverRanks) -> None:
    bad = KERNEL.replace("def launch", "assert device.rank == 0, 'no peer'\n        def launch")
    program = written(tmp_path, bad, TAIL, world_size=2)
    first, second = over_ranks(program, "adds")
    assert isinstance(first["adds"], Failed)
    assert isinstance(second["adds"], Failed)
    assert first["adds"].reason == "MeasurementError: rank 1: AssertionError: no peer"
    assert second["adds"].reason == "AssertionError: no peer"
    assert first["adds"].stage == second["adds"].stage == "build"
    assert first["adds"].place == "w.toml:30"
    assert "launch" not in calls_of(program)


def test_a_launch_that_raises_on_one_rank_leaves_none_waiting(
    tmp_path: Path, over_ranks: OverRanks
) -> None:
    bad = KERNEL.replace("acc.add_(x)", "assert device.rank == 0, 'late'; acc.add_(x)")
    good = KERNEL.replace("adds", "good")
    found = over_ranks(written(tmp_path, PREPARE, bad, good, TAIL, world_size=2), "adds", "good")
    for outcomes in found:
        assert isinstance(outcomes["adds"], Failed)
        assert isinstance(outcomes["good"], Verified)


def test_what_one_rank_lacks_is_skipped_on_all(tmp_path: Path, over_ranks: OverRanks) -> None:
    head = "@case.kernel('adds', requires=tb.Requires(device=('cpu', 'cuda')[device.rank]))"
    program = written(tmp_path, KERNEL.replace("@case.kernel('adds')", head), TAIL, world_size=2)
    for outcomes in over_ranks(program, "adds"):
        skipped = outcomes["adds"]
        assert isinstance(skipped, Skipped)
        assert skipped.reason == "rank 1: needs a CUDA device: run with --device cuda"


def test_symmetric_tensors_of_other_shapes_on_another_rank_are_refused(
    tmp_path: Path, over_ranks: OverRanks
) -> None:
    program = written(tmp_path, KERNEL, TAIL, world_size=2)
    text = Path(program.file).read_text()
    Path(program.file).write_text(
        text.replace(
            'role="out", shape=(64,)', 'role="out", memory="symmetric", shape=(64 + device.rank,)'
        )
    )
    changed = open_program(program.file)
    assert isinstance(changed, Program)
    for rank, outcomes in enumerate(over_ranks(changed, "adds")):
        failed = outcomes["adds"]
        assert isinstance(failed, Failed)
        mine, other = (64, 65) if rank == 0 else (65, 64)
        assert failed.reason == (
            f"UsageError: symmetric tensors: y ({mine},) on rank {rank}, y ({other},) on rank {1 - rank}"
        )


def test_a_kernel_with_a_tuner_is_refused_over_ranks(
    tmp_path: Path, over_ranks: OverRanks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tirbench.launch.triton.is_tuned", lambda kernel: kernel == "tuned")
    tuned = "case._building.tuned.append('tuned')\n        def launch"
    program = written(tmp_path, KERNEL.replace("def launch", tuned), TAIL, world_size=2)
    for outcomes in over_ranks(program, "adds"):
        assert isinstance(outcomes["adds"], Failed)
        assert "give the kernel one configuration" in outcomes["adds"].reason


def test_every_rank_calls_bench_with_its_context_and_answers_the_same_times(
    tmp_path: Path, over_ranks: OverRanks, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def bench(funcs: Any, **options: Any) -> dict[str, Any]:
        asked.append(options)
        context = options["distributed"]
        for name, launch in funcs.items():
            options["prepare"][name]()
            launch()
        slowest = context.max_reduce(10.0 + context.rank)
        return {
            "samples": {name: [[slowest] * 30] * options["rounds"] for name in funcs},
            "impls": dict.fromkeys(funcs, slowest),
            "activity": {},
            "benchmark_protocol": {},
        }

    monkeypatch.setattr(timed, "bench", bench)
    monkeypatch.setattr(timed, "choose", lambda *_: timed.Choice("kineto"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "the stream")
    program = written(tmp_path, PREPARE, KERNEL, TAIL, world_size=2)
    for outcomes in over_ranks(program, "adds", time=True):
        outcome = outcomes["adds"]
        assert isinstance(outcome, Timed), outcome
        assert outcome.estimate.midmean_us == 11.0
    contexts = [options["distributed"] for options in asked]
    assert sorted(context.rank for context in contexts) == [0, 0, 1, 1]
    assert {context.world_size for context in contexts} == {2}
    assert {options["rounds"] for options in asked} == {2}
    assert all(set(o) == {"timer", "prepare", "cooldown_s", "rounds", "distributed"} for o in asked)


@pytest.mark.parametrize(
    ("plan", "timing", "refused"),
    [
        (Plan(device="cuda"), Timing(), None),
        (Plan(device="cuda", timer="kineto"), Timing(rounds=3, cooldown_s=1.0), None),
        (Plan(device="cpu"), Timing(), "several ranks are timed on CUDA devices only"),
        (
            Plan(device="cuda", timer="proton"),
            Timing(name="kineto"),
            "timing over ranks has one protocol, of kineto with fixed counts: without timer proton",
        ),
        (
            Plan(device="cuda"),
            Timing(name="event", l2="warm", regime="sustained", repeat=50.0),
            (
                "timing over ranks has one protocol, of kineto with fixed counts: without timer event, "
                "l2 warm, regime sustained, repeat 50.0"
            ),
        ),
    ],
)
def test_what_the_protocol_over_ranks_fixes_cannot_be_asked_for(
    plan: Plan, timing: Timing, refused: str | None
) -> None:
    assert timed.choose(plan, timing, 2) == timed.Choice("kineto", refused)


def test_ranks_agree_on_a_result_or_on_the_first_failure() -> None:
    def main(rank: ThreadRank) -> int:
        assert rank.agree(lambda: rank.rank) == rank.rank
        return rank.agree(lambda: 1 // (1 - rank.rank))

    zero, one, two = on_ranks(main, 3)
    assert isinstance(zero, MeasurementError)
    assert str(zero) == "rank 1: ZeroDivisionError: integer division or modulo by zero"
    assert isinstance(one, ZeroDivisionError)
    assert isinstance(two, MeasurementError)
