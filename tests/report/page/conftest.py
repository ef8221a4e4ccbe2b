"""A page with everything on it: timed, wrong, failed and skipped rows, pins, history, raw times."""

from __future__ import annotations

import random
from typing import Literal

import pytest

from tirbench.model import (
    CodeFacts,
    Estimate,
    Failed,
    Machine,
    Outcome,
    PinnedRow,
    Rates,
    Roofs,
    Row,
    Run,
    Skipped,
    Timed,
    Verification,
    WorkDone,
    Wrong,
)
from tirbench.report.page import Page, Pinned, spread

HOSTILE = '<img src=x onerror="alert(1)">&</script>'


def row(name: str, role: Literal["kernel", "reference"] = "kernel", case: str = "n4096") -> Row:
    return Row(workload="double", case=case, implementation=name, role=role)


def timed(one: Row, time_us: float, flops: float = 4e9, roof: str | None = "bfloat16") -> Timed:
    return Timed(
        row=one,
        verification=Verification(method="oracle", worst=0.2),
        estimate=Estimate(
            timer="proton",
            midmean_us=time_us,
            half_width_us=0.01 * time_us,
            mean_us=1.01 * time_us,
            median_us=time_us,
            min_us=0.97 * time_us,
            p10_us=0.98 * time_us,
            p90_us=1.03 * time_us,
            calls=1200,
            placements_us=tuple(time_us * (1 + 0.002 * k) for k in range(5)),
            within_sd=0.001,
        ),
        work=WorkDone(flops=flops, bytes=2e7, roof=roof),
        rates=Rates(
            gbytes_per_s=2e4 / time_us, tflops=flops / time_us / 1e6, roof=0.5, roof_by="compute"
        ),
        code=CodeFacts(digest="sass:0123456789abcdef", registers=64, spills=0, shared_bytes=1024),
        problem="p",
        protocol="q",
        source="s",
    )


def pin(one: Row, time_us: float) -> PinnedRow:
    return PinnedRow(
        case=one.case,
        implementation=one.implementation,
        midmean_us=time_us,
        band=0.01,
        anchor_us=time_us,
        problem="p",
        protocol="q",
        code="sass:fedcba9876543210",
        source="t",
        env="torch 2.11.0",
        unit="3f9a",
        reason=HOSTILE,
    )


@pytest.fixture(scope="session")
def page() -> Page:
    draw = random.Random(1)  # noqa: S311 - noise of a drawing
    fast, slow, torch = row("fast"), row("slow"), row("torch", "reference")
    outcomes: tuple[Outcome, ...] = (
        timed(fast, 10.0),
        timed(slow, 22.0),
        timed(torch, 20.0),
        timed(row("memory", case="n8192"), 30.0, flops=1e6, roof=None),
        Wrong(row=row("bad"), reason=f"y: 1 of 2 elements off {HOSTILE}", stage="verify"),
        Failed(row=row(HOSTILE), stage="build", reason=HOSTILE, detail=f"Traceback\n{HOSTILE}"),
        Skipped(row=row("absent", "reference"), reason="needs a CPU"),
    )
    run = Run(
        id="20250131-142503-7f3a1c",
        machine=Machine(
            hardware="nvidia-h200",
            device=f"NVIDIA H200 {HOSTILE}",
            kind="cuda",
            unit="3f9a",
            versions=(("torch", "2.11.0"),),
            facts=(("sm_count", "132"),),
        ),
        commit="0123456789abcdef",
        dirty=(),
        outcomes=outcomes,
        roofs=Roofs(copy_gbytes_per_s=4280.0, tflops=(("bfloat16", 790.0),)),
    )
    samples = [(k, tuple(draw.gauss(10, 0.1) for _ in range(200))) for k in range(5)]
    found = spread([*samples, (0, (55.0,))])
    assert found is not None
    return Page(
        run=run,
        notes=(HOSTILE,),
        spreads={fast.key: found},
        pins={
            fast.key: Pinned(
                row=pin(fast, 10.05),
                history=(("2025-01-01", "aaaa", 12.0), ("2025-01-20", "bbbb", 10.05)),
            ),
            slow.key: Pinned(row=pin(slow, 20.0)),
        },
        places={fast.key: "workloads/double.toml:12"},
        harnesses=(("double.py", f'"""{HOSTILE}"""\n@program.case("n4096")\n'),),
        references={"double": "torch"},
    )
