"""Digests: equal where the meaning is equal, on every machine."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tirbench import digest
from tirbench.expression import Expression
from tirbench.model import (
    Arguments,
    BoundArguments,
    BoundCheck,
    BoundFunction,
    BoundImplementation,
    BoundInit,
    BoundLaunch,
    BoundOutput,
    BoundTensor,
    BoundWork,
    Case,
    Check,
    Function,
    Implementation,
    Launch,
    Machine,
    Source,
    Tensor,
    TimerChoice,
    Workload,
)
from tirbench.values import Dtype, TensorRef

E = Expression
FILES = {
    "w/kernels/k.py": (
        "import torch\n\ndef kernel(x):\n    return x\n\ndef fill(n):\n    return n\n\n"
        "def oracle(x):\n    return x\n"
    ),
    "w/data.pt": "contents",
}
F16 = Dtype("float16")


def read(path: str) -> bytes | None:
    return FILES[path].encode() if path in FILES else None


def make_case(**changes: Any) -> Case:
    """A workload of one case: x goes in, y comes out, s is computed, each launch takes eps."""
    arguments = Arguments(named=(("x", E("x")), ("eps", E("eps"))))
    step = Launch(
        kind="triton",
        target="kernels/k.py:kernel",
        path=("kernels", "triton"),
        args=arguments,
        options=(("grid", (E("blocks"),)), ("num_warps", E("warps"))),
    )
    workload = Workload(
        name="rmsnorm",
        source=Source(root="/private", path="w/rmsnorm.toml", text="# anything"),
        description="what it is",
        params=(("eps", 1e-6), ("warps", 4), ("unused", 1)),
        matrix=(("hidden", ((("hidden", 4096),),)),),
        derive=(("blocks", E("cdiv(hidden, 128)")), ("half", E("hidden // 2"))),
        tensors=(
            Tensor(name="x", path=(), shape=(E("hidden"),), dtype=E("float16")),
            Tensor(name="y", path=(), role="out", shape=(E("half"),), dtype=E("float16")),
        ),
        inits=(Function(target="kernels/k.py:fill", path=(), returns=("s",)),),
        kernels=(Implementation(name="triton", role="kernel", path=(), steps=(step,)),),
        check=Check(oracle=Function(target="kernels/k.py:oracle", path=())),
    )
    launch = BoundLaunch(
        kind="triton",
        target="kernels/k.py:kernel",
        path=("kernels", "triton"),
        args=BoundArguments(named=(("x", TensorRef(name="x")), ("eps", 1e-6))),
        options=(("grid", (32,)), ("num_warps", 4)),
    )
    case = Case(
        workload=workload,
        id="hs4096",
        values=(
            ("hidden", 4096),
            ("blocks", 32),
            ("half", 2048),
        ),
        tensors=(
            BoundTensor(
                name="x", path=(), role="in", dtype=F16, shape=(4096,), init=init("normal")
            ),
            BoundTensor(name="y", path=(), role="out", dtype=F16, shape=(2048,)),
            BoundTensor(name="s", path=(), role="in", dtype=F16, shape=(4096,)),
        ),
        inits=(
            BoundFunction(
                target="kernels/k.py:fill",
                path=("init", 0),
                args=BoundArguments(positional=(4096,)),
                returns=("s",),
            ),
        ),
        implementations=(
            BoundImplementation(name="triton", role="kernel", path=(), steps=(launch,)),
            BoundImplementation(
                name="liger",
                role="reference",
                path=(),
                steps=(BoundLaunch(kind="call", target="liger_kernel.ops.f", path=()),),
            ),
        ),
        check=BoundCheck(outputs=(BoundOutput(tensor="y", path=(), rtol=1e-3),)),
        work=BoundWork(bytes=4096),
        slower_than=0.01,
    )
    return replace(case, **changes)


def init(kind: str, **parameters: Any) -> BoundInit:
    return BoundInit(kind=kind, parameters=tuple(parameters.items()))


def with_tensor(**changes: Any) -> Case:
    case = make_case()
    return replace(case, tensors=(replace(case.tensors[0], **changes), *case.tensors[1:]))


def with_workload(**changes: Any) -> Case:
    case = make_case()
    return replace(case, workload=replace(case.workload, **changes))


def with_launch(**changes: Any) -> Case:
    case = make_case()
    kernel = case.implementations[0]
    steps = (replace(kernel.steps[0], **changes),)
    return replace(case, implementations=(replace(kernel, steps=steps), case.implementations[1]))


def with_value(name: str, value: Any) -> Case:
    case = make_case()
    values = tuple((key, value if key == name else old) for key, old in case.values)
    return replace(case, values=values)


PROBLEM = digest.problem(make_case(), read)


@pytest.mark.parametrize(
    "other",
    [
        with_tensor(name="z"),
        with_tensor(shape=(64, 64)),
        with_tensor(dtype=Dtype("bfloat16")),
        with_tensor(strides=(2,)),
        with_tensor(role="inout"),
        with_tensor(reset="restore"),
        with_tensor(view="y"),
        with_tensor(init=init("normal", std=2)),
        with_tensor(init=init("zeros")),
        with_workload(seed=1),
        with_workload(params=(("eps", 1e-5), ("warps", 4), ("unused", 1))),
        with_value("hidden", 8192),
        with_workload(derive=(("half", E("hidden // 4")), ("blocks", E("cdiv(hidden, 128)")))),
        make_case(inits=()),
        make_case(world_size=8),
    ],
)
def test_the_problem_changes_with_what_is_computed(other: Case) -> None:
    assert digest.problem(other, read) != PROBLEM


@pytest.mark.parametrize(
    "other",
    [
        with_workload(description="something else"),
        with_workload(derive=(("blocks", E("cdiv(hidden, 64)")), ("half", E("hidden//2")))),
        with_workload(check=Check()),
        with_workload(timer=TimerChoice(l2="warm")),
        with_workload(params=(("eps", 1e-6), ("warps", 8), ("unused", 2))),
        with_value("half", 4711),
        with_launch(options=(("grid", (64,)), ("num_warps", 8))),
        with_launch(target="kernels/other.py:kernel"),
        with_tensor(path=("tensors", "x")),
        make_case(id="renamed"),
        make_case(check=BoundCheck()),
        make_case(work=BoundWork()),
        make_case(slower_than=0.05),
        make_case(tensors=make_case().tensors[::-1]),
        make_case(implementations=make_case().implementations[:1]),
    ],
)
def test_the_problem_stays_when_only_its_solution_or_its_check_changes(other: Case) -> None:
    assert digest.problem(other, read) == PROBLEM


def test_the_problem_follows_the_function_that_fills_a_tensor_and_no_kernel_beside_it() -> None:
    def digest_with(old: str, new: str) -> str:
        files = {path: text.replace(old, new) for path, text in FILES.items()}
        return digest.problem(make_case(), lambda path: files[path].encode())

    assert digest_with("return n", "return n + 1") != PROBLEM
    assert digest_with("def kernel(x):\n    return x", "def kernel(x):\n    return 2*x") == PROBLEM


def test_data_from_a_file_counts_by_its_contents() -> None:
    case = with_tensor(init=init("file", path="data.pt", key="x"))
    before = digest.problem(case, read)
    assert (
        digest.problem(case, lambda path: b"other" if path == "w/data.pt" else read(path)) != before
    )


PROTOCOL = digest.protocol(make_case(), "proton", 5, 2)


@pytest.mark.parametrize(
    "other",
    [
        digest.protocol(make_case(), "event", 5, 2),
        digest.protocol(make_case(), "proton", 10, 2),
        digest.protocol(make_case(), "proton", 5, 1),
        digest.protocol(with_workload(timer=TimerChoice(l2="warm")), "proton", 5, 2),
        digest.protocol(with_workload(timer=TimerChoice(regime="sustained")), "proton", 5, 2),
        digest.protocol(with_workload(timer=TimerChoice(repeat=50)), "proton", 5, 2),
    ],
)
def test_the_protocol_changes_with_how_a_time_is_taken(other: str) -> None:
    assert other != PROTOCOL


def test_on_a_cpu_the_l2_policy_is_warm_whatever_is_asked() -> None:
    warm = with_workload(timer=TimerChoice(l2="warm"))
    assert digest.protocol(warm, "wall", 5, 2) == digest.protocol(make_case(), "wall", 5, 2)
    assert digest.protocol(with_workload(seed=3), "proton", 5, 2) == PROTOCOL


SOURCE = digest.source(make_case(), "triton", read)


def test_the_source_changes_with_the_file_the_arguments_and_the_options() -> None:
    other = {**FILES, "w/kernels/k.py": FILES["w/kernels/k.py"] + "x = 1\n"}
    changed = [
        digest.source(
            make_case(), "triton", lambda path: other[path].encode() if path in other else None
        ),
        digest.source(with_launch(args=BoundArguments()), "triton", read),
        digest.source(with_launch(options=()), "triton", read),
        digest.source(with_launch(target="kernels/k.py:other"), "triton", read),
    ]
    assert SOURCE not in changed
    assert len(set(changed)) == 4
    assert digest.source(with_workload(seed=1), "triton", read) == SOURCE


def test_the_source_of_a_library_is_its_name_and_version() -> None:
    def source(version: str | None) -> str:
        return digest.source(make_case(), "liger", read, lambda _: version)

    assert len({source("0.5.0"), source("0.6.0"), source(None)}) == 3


def test_versions_that_the_environment_states_do_not_make_another_source() -> None:
    case = with_launch(kind="call", target="torch.nn.functional.rms_norm")
    assert digest.source(case, "triton", read, lambda _: "1") == digest.source(
        case, "triton", read, lambda _: "2"
    )


def test_digests_are_what_they_were_on_other_machines_and_versions_of_python() -> None:
    assert [PROBLEM, PROTOCOL, SOURCE] == [
        "f5416164ccfa9a08",
        "40a8f8a117e7033e",
        "9126f6f0ea5f3790",
    ]


def test_digests_are_the_same_under_every_hash_seed() -> None:
    code = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('t', {str(Path(__file__))!r})\n"
        "t = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(t)\n"
        "print(t.PROBLEM, t.PROTOCOL, t.SOURCE)"
    )
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        result = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert result.stdout.split() == [PROBLEM, PROTOCOL, SOURCE]


def test_a_reader_reads_nothing_outside_of_its_root(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    root = tmp_path / "root"
    (root / "w").mkdir(parents=True)
    (root / "w" / "k.py").write_text("a = 1\n")
    reading = digest.reader(root)
    assert reading("w/k.py") == b"a = 1\n"
    assert reading("../secret") is None
    assert reading("w") is None


def test_the_environment_is_a_line_of_versions() -> None:
    machine = Machine(
        hardware="nvidia-h200",
        device="NVIDIA H200",
        kind="cuda",
        versions=(("liger-kernel", "0.5"), ("torch", "2.11.0"), ("triton", "3.6.0")),
        facts=(("driver", "580.159"),),
    )
    assert digest.environment(machine) == "driver 580.159 · torch 2.11.0 · triton 3.6.0"


def test_the_version_of_a_module_is_that_of_its_distribution() -> None:
    assert digest.installed_version("pytest") == pytest.__version__
    assert digest.installed_version("no_such_module_at_all") is None
