"""A workload that is compiled, pinned beside the other one, and facts of it made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.diff.conftest import HARDWARE, Project
from tirbench import digest, store
from tirbench.expand import expand
from tirbench.load import load
from tirbench.model import (
    Baseline,
    CodeFacts,
    Compilation,
    CompiledSides,
    CompiledSuite,
    PinnedRow,
    Row,
)
from tirbench.store.baseline import sealed

SCALE = """\
schema = 1
description = "y = 2 x, compiled"
id = "n{n}"

[matrix]
n = [1024, 2048]

[tensors]
x = { shape = ["n"], dtype = "float16", init = "normal" }
y = { role = "out", like = "x" }

[kernels.plain]
kind = "triton"
target = "kernels/scale.py:scale"
grid = ["cdiv(n, 256)"]
args = { x_ptr = "x", y_ptr = "y", n = "n", BLOCK = 256 }

[[kernels.cleared.steps]]
kind = "call"
target = "kernels/scale.py:clear"
args = ["y"]

[[kernels.cleared.steps]]
kind = "triton"
target = "kernels/scale.py:scale"
grid = ["cdiv(n, 256)"]
args = { x_ptr = "x", y_ptr = "y", n = "n", BLOCK = 256 }

[check.oracle]
target = "kernels/right.py:doubled"
args = ["x"]
returns = "y"
"""

KERNELS = '''\
"""A kernel, and a step in Python."""

import triton
import triton.language as tl


def clear(y):
    y.zero_()


@triton.jit
def scale(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)
'''

BASELINE = f"workloads/baselines/{HARDWARE}/scale.toml"
KEYS = ("n1024/cleared", "n1024/plain", "n2048/cleared", "n2048/plain")


def add_scale(project: Project) -> None:
    """Write and pin the workload on an H200, and commit it."""
    project.write("workloads/scale.toml", SCALE)
    project.write("workloads/kernels/scale.py", KERNELS)
    project.write(f"workloads/baselines/{HARDWARE}/device.toml", 'capability = "9.0"\n')
    pin(project)
    project.commit("a compiled one")


def digests(project: Project) -> dict[str, tuple[str, str, str]]:
    """Problem, protocol and source of every row as the files are now."""
    read = digest.reader(project.root)
    return {
        f"{case.id}/{one.name}": (
            digest.problem(case, read),
            digest.protocol(case, "proton", 5, 2),
            digest.source(case, one.name, read),
        )
        for case in expand(load(project.root / "workloads/scale.toml", project.root))
        for one in case.implementations
    }


def pin(project: Project, *keys: str, **changes: Any) -> None:
    """Pin rows as a run of now would; `changes` are fields that it says otherwise."""
    known = store.read_baseline(project.root, BASELINE)
    rows = {f"{row.case}/{row.implementation}": row for row in (known.rows if known else ())}
    for key, (problem, protocol, source) in digests(project).items():
        if keys and key not in keys:
            continue
        case, implementation = key.split("/")
        row = PinnedRow(
            case=case,
            implementation=implementation,
            midmean_us=4.0,
            band=0.01,
            anchor_us=4.0,
            problem=problem,
            protocol=protocol,
            code="sass:1",
            source=source,
            env="driver 580 · torch 2.11.0 · triton 3.6.0",
            unit="97eb71098a6e",
            resources=(("registers", 96), ("shared_bytes", 0), ("spills", 0)),
        )
        rows[key] = sealed(replace(row, **changes))
    store.write_baseline(
        project.root,
        BASELINE,
        Baseline(workload="scale", hardware=HARDWARE, rows=tuple(rows.values())),
    )


def suite(
    project: Project,
    code: CodeFacts | str,
    *,
    arch: str = "sm_90",
    triton: str = "3.6.0",
    notes: tuple[str, ...] = (),
    **rows: CodeFacts | str,
) -> CompiledSuite:
    """What `aot` would say of the files as they are now; a text instead of facts is a failure.

    Rows by name (`n1024_plain`) say something else than the others.
    """
    found = []
    for key, (problem, _, source) in digests(project).items():
        case, implementation = key.split("/")
        said = rows.get(key.replace("/", "_"), code)
        facts = None if isinstance(said, str) else said
        found.append(
            Compilation(
                row=Row(workload="scale", case=case, implementation=implementation, role="kernel"),
                arch=arch,
                code=facts,
                failure=said if isinstance(said, str) else "",
                notes=notes,
                problem=problem,
                source=source,
            )
        )
    return CompiledSuite(compilers=(("triton", triton),), compilations=tuple(found))


def facts(digest_: str = "sass:1", registers: int = 96, **more: Any) -> CodeFacts:
    return CodeFacts(digest=digest_, registers=registers, spills=0, shared_bytes=0, **more)


def edit_body(project: Project) -> None:
    """Another text of the kernel."""
    project.replace("mask=at < n) * 2", "mask=at < n) * 2.0", "workloads/kernels/scale.py")


def both(base: CompiledSuite, head: CompiledSuite) -> CompiledSides:
    return CompiledSides(base=base, head=head)
