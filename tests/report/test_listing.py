"""Listings: what a reviewer and a program see of an expanded workload."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tirbench.model import (
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
    Requirements,
    Source,
    Workload,
)
from tirbench.report import listing
from tirbench.values import OMIT, Code, CScalar, Dtype, Phase, TensorRef

HERE = Path(__file__).parent
Golden = Callable[[Path, str], None]


@pytest.fixture
def case() -> Case:
    bf16 = Dtype("bfloat16")
    x = TensorRef(name="x")
    tensors = (
        BoundTensor(
            name="x",
            path=(),
            role="inout",
            dtype=bf16,
            shape=(128, 4096),
            strides=(8192, 1),
            init=BoundInit(kind="normal", parameters=(("std", 0.02),)),
            reset="restore",
        ),
        BoundTensor(name="s", path=(), role="in", dtype=Dtype("float32"), shape=(128,)),
        BoundTensor(
            name="partial",
            path=(),
            role="scratch",
            dtype=Dtype("float32"),
            shape=(Code(text="device.sm_count", phase=Phase.DEVICE), 4096),
        ),
        BoundTensor(
            name="xt", path=(), role="in", dtype=bf16, shape=(4096, 128), view="x", permute=(1, 0)
        ),
        BoundTensor(name="y", path=(), role="out", dtype=bf16, shape=(128, 4096)),
    )
    triton = BoundImplementation(
        name="triton",
        role="kernel",
        path=(),
        steps=(
            BoundLaunch(
                kind="triton",
                target="kernels/k.py:kernel",
                path=(),
                args=BoundArguments(
                    named=(("x_ptr", x), ("N", 4096), ("n", CScalar(ctype="int", value=4096)))
                ),
                options=(("grid", (128,)), ("num_warps", 4)),
            ),
        ),
        requires=Requirements(device="cuda", capability=">=9.0"),
    )
    library = BoundImplementation(
        name="library",
        role="reference",
        path=(),
        steps=(
            BoundLaunch(
                kind="call",
                target="library.norm",
                path=(),
                args=BoundArguments(positional=(x, "NHD", (4096,), bf16, OMIT)),
                options=(("compile", "default"),),
            ),
        ),
        returns=("y",),
        unchecked="it rounds twice",
        skipped="one row has no stride",
    )
    fill = BoundFunction(
        target="kernels/k.py:scales",
        path=(),
        args=BoundArguments(positional=(x,)),
        returns=("s",),
    )
    return Case(
        workload=Workload(
            name="norm",
            source=Source(root="", path="workloads/norm.toml", text=""),
            description="A norm\x1b[31m",
            params=(("eps", 1e-6),),
        ),
        id="m128_bfloat16",
        values=(("rows", 128), ("dtype", bf16)),
        tensors=tensors,
        inits=(fill,),
        implementations=(triton, library),
        check=BoundCheck(
            oracle=BoundFunction(
                target="kernels/k.py:oracle",
                path=(),
                args=BoundArguments(positional=(x,)),
                returns=("x", "y"),
            ),
            outputs=(
                BoundOutput(tensor="x", path=()),
                BoundOutput(
                    tensor="y",
                    path=(),
                    rtol=0.02,
                    matched=0.999,
                    lengths="s",
                    reason="two roundings",
                ),
            ),
        ),
        work=BoundWork(
            bytes=2 * 128 * 4096 * 2,
            flops=Code(text="f.sum(s)", phase=Phase.DATA, tensors=("s",)),
            roof=bf16,
        ),
        slower_than=0.01,
        selected_by=frozenset({"default", "smoke"}),
    )


def test_a_case_reads_like_this(case: Case, golden: Golden) -> None:
    golden(HERE / "show.txt", listing.show(case))


def test_a_line_for_each_case_with_its_lists_and_why_it_is_skipped(case: Case) -> None:
    skipped = replace(case, id="m1", selected_by=frozenset(), skipped="one row has no stride")
    assert listing.list_text([case, skipped]) == (
        "norm/m128_bfloat16  [default, smoke]\nnorm/m1             skipped: one row has no stride\n"
    )
    assert listing.list_text([]) == ""


def test_a_program_gets_ids_files_values_and_implementations(case: Case) -> None:
    (data,) = json.loads(listing.list_json([case]))
    assert data["key"] == "norm/m128_bfloat16"
    assert data["file"] == "workloads/norm.toml"
    assert data["values"] == {"rows": 128, "dtype": {"type": "dtype", "name": "bfloat16"}}
    assert data["implementations"][1] == {
        "name": "library",
        "role": "reference",
        "skipped": "one row has no stride",
    }
