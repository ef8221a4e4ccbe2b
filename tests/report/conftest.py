"""A run with one row of every kind."""

from __future__ import annotations

import pytest

from tirbench.model import (
    Estimate,
    Failed,
    ImplementationRole,
    Machine,
    Outcome,
    Rates,
    Roofs,
    Row,
    Run,
    Skipped,
    Timed,
    Verification,
    Verified,
    Wrong,
)

ORACLE = Verification(method="oracle", worst=0.123)


def estimate(midmean_us: float) -> Estimate:
    return Estimate(
        timer="proton",
        midmean_us=midmean_us,
        half_width_us=0.005 * midmean_us,
        mean_us=midmean_us,
        median_us=midmean_us,
        min_us=midmean_us,
        p10_us=midmean_us,
        p90_us=midmean_us,
        calls=320,
        placements_us=(midmean_us,) * 5,
        within_sd=0.002,
    )


def outcomes_of(case: str, time_us: float) -> tuple[Outcome, ...]:
    def row(name: str, role: ImplementationRole = "kernel") -> Row:
        return Row(workload="rmsnorm", case=case, implementation=name, role=role)

    def timed(name: str, role: ImplementationRole, us: float, *notes: str) -> Timed:
        rates = Rates(gbytes_per_s=8000 / us, roof=3 / us, roof_by="bandwidth")
        return Timed(
            row=row(name, role),
            verification=ORACLE,
            estimate=estimate(us),
            rates=rates,
            notes=notes,
        )

    return (
        timed("torch", "reference", 2.1 * time_us),
        timed("compiled", "reference", 0.98 * time_us),
        Failed(
            row=row("liger", "reference"),
            stage="build",
            reason="ModuleNotFoundError: No module named 'liger_kernel'",
            place="workloads/rmsnorm.toml:41",
            detail="Traceback\nModuleNotFoundError: No module named 'liger_kernel'\n",
        ),
        timed("triton", "kernel", time_us, "acc restored, untimed"),
        Skipped(row=row("tirx_a"), reason="needs a CPU"),
        Skipped(row=row("tirx_b"), reason="needs a CPU"),
        Wrong(row=row("bad"), reason=f"y: 12 of 96 elements off in {case}", stage="verify"),
        Verified(
            row=row("interpreted"),
            verification=Verification(method="interpreter", worst=0.04),
            untimed="verified in Triton's interpreter; no CUDA device here to time it on",
        ),
    )


@pytest.fixture(scope="session")
def run() -> Run:
    return Run(
        id="20250131-142503-7f3a1c",
        machine=Machine(
            hardware="nvidia-h200",
            device="NVIDIA H200",
            kind="cuda",
            unit="3f9a",
            versions=(("torch", "2.11.0"), ("triton", "3.6.0")),
            facts=(("driver", "580.159"),),
        ),
        commit="c0ffee",
        dirty=(),
        outcomes=(*outcomes_of("hs4096_bs128", 3.412), *outcomes_of("hs8192_bs4113", 187.41)),
        roofs=Roofs(copy_gbytes_per_s=4280.0),
    )
