"""Evidence made up: workers whose quads say exactly so much."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import pytest

from tirbench.model import Estimate, PairEvidence, PairReading, PairSide, PinnedRow, Row

MakePair: TypeAlias = "Callable[..., PairEvidence]"
MakeEstimate: TypeAlias = "Callable[[float], Estimate]"


def readings(
    values: Sequence[float], quad_sd: float = 0.01, first: int = 0
) -> tuple[PairReading, ...]:
    return tuple(
        PairReading(placement=first + k, log_ratio=value, quad_variance=quad_sd**2, quads=40)
        for k, value in enumerate(values)
    )


@pytest.fixture(scope="session")
def row() -> Row:
    return Row(workload="rmsnorm", case="hs4096_bs128", implementation="triton", role="kernel")


@pytest.fixture(scope="session")
def pair(row: Row) -> MakePair:
    def make(
        screening: Sequence[float] = (),
        confirming: Sequence[float] = (),
        *,
        quad_sd: float = 0.01,
        slower_than: float = 0.01,
        same_code: bool = False,
    ) -> PairEvidence:
        return PairEvidence(
            row=row,
            slower_than=slower_than,
            same_code=same_code,
            screening=readings(screening, quad_sd),
            confirming=readings(confirming, quad_sd, first=len(screening)),
        )

    return make


@pytest.fixture(scope="session")
def side() -> PairSide:
    return PairSide(
        problem="aa",
        timer="proton",
        l2="cold-dirty",
        regime="burst",
        hardware="nvidia-h200",
        settings=(("allow_tf32", "False"),),
        code="sass:0123",
        launch="cc",
    )


@pytest.fixture(scope="session")
def estimate() -> MakeEstimate:
    def make(midmean_us: float) -> Estimate:
        return Estimate(
            timer="proton",
            midmean_us=midmean_us,
            half_width_us=0.01,
            mean_us=midmean_us,
            median_us=midmean_us,
            min_us=midmean_us,
            p10_us=midmean_us,
            p90_us=midmean_us,
            calls=320,
            placements_us=(midmean_us,) * 5,
            within_sd=0.002,
        )

    return make


@pytest.fixture(scope="session")
def pin() -> PinnedRow:
    return PinnedRow(
        case="hs4096_bs128",
        implementation="triton",
        midmean_us=10.0,
        band=0.012,
        anchor_us=10.0,
        problem="aa",
        protocol="bb",
        code="sass:0123",
        source="cc",
        env="driver 580.159",
        unit="3f9a",
    )
