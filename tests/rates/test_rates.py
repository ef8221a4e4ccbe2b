"""Time and work become rates, and what the device cannot have reached becomes no number."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench.model import Estimate, Failed, Roofs, Row, Skipped, Timed, Verification, WorkDone
from tirbench.rates import IMPOSSIBLE, L2_SHARE, rated, rates

ROOFS = Roofs(copy_gbytes_per_s=4000.0, tflops=(("bfloat16", 800.0), ("float32", 50.0)))
L2_BYTES = 50_000_000


def timed(microseconds: float, work: WorkDone) -> Timed:
    estimate = Estimate(
        timer="proton",
        midmean_us=microseconds,
        half_width_us=0.0,
        mean_us=microseconds,
        median_us=microseconds,
        min_us=microseconds,
        p10_us=microseconds,
        p90_us=microseconds,
        calls=10,
        placements_us=(microseconds,),
        within_sd=0.0,
    )
    row = Row(workload="w", case="c", implementation="k", role="kernel")
    return Timed(
        row=row,
        verification=Verification(method="oracle", worst=0.1),
        estimate=estimate,
        work=work,
    )


def test_bytes_and_operations_become_rates_per_second() -> None:
    reached = rates(timed(1000.0, WorkDone(flops=2e9, bytes=2e9, roof="bfloat16")), ROOFS)
    assert reached.gbytes_per_s == pytest.approx(2000.0)
    assert reached.tflops == pytest.approx(2.0)
    assert reached.roof == pytest.approx(0.5)
    assert reached.roof_by == "bandwidth"


def test_the_roof_is_that_of_what_takes_longer_at_best() -> None:
    work = WorkDone(flops=8e11, bytes=1e9, roof="bfloat16")  # at best 1 ms and 0.25 ms
    reached = rates(timed(2000.0, work), ROOFS)
    assert reached.roof == pytest.approx(0.5)
    assert reached.roof_by == "compute"


@pytest.mark.parametrize("roof", [None, "float16"])
def test_without_a_measured_roof_of_the_dtype_only_bandwidth_is_compared(roof: str | None) -> None:
    reached = rates(timed(2000.0, WorkDone(flops=8e11, bytes=1e9, roof=roof)), ROOFS)
    assert reached.roof == pytest.approx(0.125)
    assert reached.roof_by == "bandwidth"


def test_what_is_not_said_has_no_rate() -> None:
    reached = rates(timed(10.0, WorkDone()), ROOFS)
    assert (reached.gbytes_per_s, reached.tflops, reached.roof, reached.roof_by) == (
        *(None, None, None, None),
    )
    reached = rates(timed(10.0, WorkDone(bytes=1e6)), Roofs())
    assert reached.gbytes_per_s == pytest.approx(100.0)
    assert reached.roof is None


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (
            WorkDone(bytes=4e9),
            "500 µs would be 200% of the measured bandwidth roof: look at [work] bytes and at",
        ),
        (
            WorkDone(flops=8e11, bytes=1, roof="bfloat16"),
            "500 µs would be 200% of the measured compute roof: look at [work] flops and at",
        ),
    ],
)
def test_a_time_beyond_the_roof_is_a_failure_that_names_the_key(
    work: WorkDone, reason: str
) -> None:
    outcome = rated(timed(500.0, work), ROOFS, L2_BYTES)
    assert isinstance(outcome, Failed)
    assert outcome.stage == "time"
    assert outcome.reason.startswith(reason)


def test_a_small_case_is_not_held_to_the_bandwidth_roof() -> None:
    """What it writes may lie in the cache still; its share is shown all the same."""
    inside = rated(timed(10.0, WorkDone(bytes=L2_SHARE * L2_BYTES - 1)), ROOFS, L2_BYTES)
    assert isinstance(inside, Timed)
    assert inside.rates.roof is not None
    assert inside.rates.roof > IMPOSSIBLE
    outside = rated(timed(10.0, WorkDone(bytes=L2_SHARE * L2_BYTES)), ROOFS, L2_BYTES)
    assert isinstance(outside, Failed)


def test_a_small_case_is_held_to_the_compute_roof() -> None:
    work = WorkDone(flops=1e9, bytes=64, roof="float32")  # at best 20 µs
    assert isinstance(rated(timed(10.0, work), ROOFS, L2_BYTES), Failed)
    assert isinstance(rated(timed(25.0, work), ROOFS, L2_BYTES), Timed)


def test_five_percent_above_the_roof_is_the_noise_of_its_own_measurement() -> None:
    work = WorkDone(bytes=4e9)  # at best 1 ms
    assert isinstance(rated(timed(1000.0 / 1.049, work), ROOFS, L2_BYTES), Timed)
    assert isinstance(rated(timed(1000.0 / 1.051, work), ROOFS, L2_BYTES), Failed)


def test_only_what_was_timed_is_rated() -> None:
    skipped = Skipped(row=timed(1.0, WorkDone()).row, reason="needs a CPU")
    assert rated(skipped, ROOFS, L2_BYTES) is skipped


positive = st.floats(min_value=1e-3, max_value=1e9)


@given(us=positive, moved=positive, flops=positive, factor=st.floats(min_value=1.5, max_value=10))
def test_twice_the_time_is_half_of_every_rate(
    us: float, moved: float, flops: float, factor: float
) -> None:
    one = timed(us, WorkDone(flops=flops, bytes=moved, roof="float32"))
    longer = replace(one.estimate, midmean_us=us * factor)
    before, after = rates(one, ROOFS), rates(replace(one, estimate=longer), ROOFS)
    for name in ("gbytes_per_s", "tflops", "roof"):
        assert getattr(after, name) * factor == pytest.approx(getattr(before, name))
    assert after.roof_by == before.roof_by


def test_operands_with_few_bits_may_beat_the_roof_of_random_ones_but_not_that_of_zeros() -> None:
    roofs = Roofs(tflops=(("bfloat16", 800.0),), zeros_tflops=(("bfloat16", 900.0),))
    fast = timed(10.0, WorkDone(flops=8.8e9, roof="bfloat16"))
    assert isinstance(rated(fast, roofs, 0), Timed)
    impossible = rated(timed(10.0, WorkDone(flops=9.6e9, roof="bfloat16")), roofs, 0)
    assert isinstance(impossible, Failed)
    assert "107% of the measured compute roof" in impossible.reason
