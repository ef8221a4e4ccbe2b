"""What the tests of the store measure: outcomes and machines made up."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tirbench.model import (
    CodeFacts,
    Estimate,
    ImplementationRole,
    Machine,
    Row,
    Timed,
    Verification,
)

MakeTimed: TypeAlias = "Callable[..., Timed]"


@pytest.fixture(scope="session")
def machine() -> Machine:
    return Machine(
        hardware="nvidia-h200",
        device="NVIDIA H200",
        kind="cuda",
        unit="3f9a",
        memory_bytes=150_754_820_096,
        versions=(("driver", "580.159"), ("torch", "2.11.0"), ("triton", "3.6.0")),
        facts=(("capability", "9.0"), ("sm_count", "132")),
    )


@pytest.fixture(scope="session")
def timed() -> MakeTimed:
    def make(
        midmean_us: float = 3.412,
        case: str = "hs4096_bs128",
        implementation: str = "triton",
        *,
        role: ImplementationRole = "kernel",
        within_sd: float = 0.002,
        problem: str = "00000000000000aa",
        protocol: str = "00000000000000bb",
        source: str = "00000000000000cc",
        code: CodeFacts | None = None,
        method: str = "oracle",
    ) -> Timed:
        return Timed(
            row=Row(workload="rmsnorm", case=case, implementation=implementation, role=role),
            verification=Verification(method=method, worst=0.2),  # type: ignore[arg-type]
            estimate=Estimate(
                timer="proton",
                midmean_us=midmean_us,
                half_width_us=0.01 * midmean_us,
                mean_us=midmean_us,
                median_us=midmean_us,
                min_us=midmean_us,
                p10_us=midmean_us,
                p90_us=midmean_us,
                calls=320,
                placements_us=(midmean_us,) * 5,
                within_sd=within_sd,
            ),
            code=code or CodeFacts(digest="sass:0123", registers=32, spills=0, shared_bytes=128),
            problem=problem,
            protocol=protocol,
            source=source,
        )

    return make


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., str]:
    """Run git in a fresh repository, as somebody who does not exist."""

    def run(*arguments: str, check: bool = True) -> str:
        identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.invalid"]
        result = subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *arguments],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    run("init", "--quiet", "--initial-branch=main")
    return run
