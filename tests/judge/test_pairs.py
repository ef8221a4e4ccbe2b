"""From calls in µs to a log-ratio with its standard error."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench.judge.pairs import estimate, read_worker, row_tau_squared, tau_squared
from tirbench.judge.rule import TAU_FLOOR
from tirbench.model import PairEvidence, PairQuad, PairReading, PairWorker, Row

TIMES = st.floats(0.5, 1e5)
BLOCKS = st.lists(TIMES, min_size=1, max_size=9).map(tuple)
QUADS = st.builds(PairQuad, base=st.tuples(BLOCKS, BLOCKS), head=st.tuples(BLOCKS, BLOCKS))
WORKERS = st.builds(
    PairWorker,
    placement=st.integers(0, 20),
    quads=st.lists(QUADS, min_size=2, max_size=6).map(tuple),
)
ROW = Row(workload="w", case="c", implementation="k", role="kernel")


def evidence(*workers: tuple[float, ...], quad_sd: float = 0.01, quads: int = 40) -> PairEvidence:
    (values,) = workers
    return PairEvidence(
        row=ROW,
        screening=tuple(
            PairReading(placement=k, log_ratio=value, quad_variance=quad_sd**2, quads=quads)
            for k, value in enumerate(values)
        ),
    )


def test_a_quad_cancels_drift_that_is_linear_in_it() -> None:
    drift = [math.exp(0.001 * position) for position in range(4)]
    quad = PairQuad(base=((drift[0],), (drift[3],)), head=((1.01 * drift[1],), (1.01 * drift[2],)))
    reading = read_worker(PairWorker(placement=3, quads=(quad, quad)))
    assert reading.log_ratio == pytest.approx(math.log(1.01))
    assert reading.quad_variance == pytest.approx(0)
    assert (reading.placement, reading.quads) == (3, 2)


@given(WORKERS)
def test_swapping_the_sides_of_a_worker_turns_its_sign(worker: PairWorker) -> None:
    swapped = replace(
        worker,
        quads=tuple(PairQuad(base=quad.head, head=quad.base) for quad in worker.quads),
    )
    one, other = read_worker(worker), read_worker(swapped)
    assert other.log_ratio == -one.log_ratio
    assert other.quad_variance == one.quad_variance


@given(WORKERS, st.floats(0.1, 10))
def test_the_unit_of_time_does_not_matter(worker: PairWorker, factor: float) -> None:
    def scaled(block: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(factor * call for call in block)

    longer = replace(
        worker,
        quads=tuple(
            PairQuad(
                base=(scaled(quad.base[0]), scaled(quad.base[1])),
                head=(scaled(quad.head[0]), scaled(quad.head[1])),
            )
            for quad in worker.quads
        ),
    )
    assert read_worker(longer).log_ratio == pytest.approx(read_worker(worker).log_ratio, abs=1e-9)


@pytest.mark.parametrize("calls", [(), (0.0,), (-1.0,), (math.nan,), (math.inf,)])
def test_a_call_without_a_time_is_refused(calls: tuple[float, ...]) -> None:
    quad = PairQuad(base=((1.0,), calls), head=((1.0,), (1.0,)))
    with pytest.raises(ValueError, match="not all of them positive and finite"):
        read_worker(PairWorker(placement=0, quads=(quad, quad)))


def test_one_quad_tells_nothing_of_its_spread() -> None:
    quad = PairQuad(base=((1.0,), (1.0,)), head=((1.0,), (1.0,)))
    with pytest.raises(ValueError, match="at least 2 quads, got 1"):
        read_worker(PairWorker(placement=0, quads=(quad,)))


def test_the_standard_error_is_that_of_quads_and_workers() -> None:
    measured = estimate(evidence((0.01, 0.02, 0.03)).screening, tau_sq=0.002**2)
    assert measured.log_ratio == pytest.approx(0.02)
    assert measured.standard_error == pytest.approx(math.sqrt((0.01**2 / 40 + 0.002**2) / 3))
    assert measured.workers == 3


def test_tau_is_what_the_noise_of_quads_does_not_explain() -> None:
    tau_sq = tau_squared([evidence((-0.003, 0.0, 0.003)), evidence((0.007, 0.010, 0.013))])
    assert tau_sq == pytest.approx(0.003**2 - 0.01**2 / 40)


def test_tau_has_a_floor_in_a_quiet_suite_and_in_none() -> None:
    assert tau_squared([evidence((0.0, 0.0, 0.0))]) == TAU_FLOOR**2
    assert tau_squared([]) == TAU_FLOOR**2
    assert tau_squared([evidence((0.0,))]) == TAU_FLOOR**2


def test_a_row_that_scatters_unlike_its_suite_can_be_kept_out_of_the_pool() -> None:
    quiet = [evidence((-0.001, 0.0, 0.001, 0.0, 0.0))] * 9
    wild = evidence((-0.03, 0.03, 0.0, 0.02, -0.02))
    assert tau_squared([*quiet, wild], own_spread=False) > 0.007**2
    pooled = tau_squared([*quiet, wild], own_spread=True)
    assert pooled == tau_squared(quiet, own_spread=False)
    assert row_tau_squared(wild, pooled) > 0.02**2
    assert row_tau_squared(quiet[0], pooled) == pooled


@given(st.lists(st.floats(-0.05, 0.05), min_size=2, max_size=10), st.booleans())
def test_tau_does_not_know_which_side_is_which(values: list[float], own: bool) -> None:
    mirrored = evidence(tuple(-value for value in values))
    pair = evidence(tuple(values))
    assert tau_squared([mirrored], own_spread=own) == tau_squared([pair], own_spread=own)
