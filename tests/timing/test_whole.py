"""The public function end to end on a GPU in memory: only torch.cuda is replaced."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from tirbench.errors import CaptureError
from tirbench.timing import DistributedBenchContext, api, bench
from tirbench.timing.distributed import DistributedRun
from tirbench.timing.fake import FakeGpu, FakeKineto
from tirbench.timing.flush import BUFFERS


class Card(FakeGpu):
    """A fake GPU with what `bench()` asks of a device beyond its timers."""

    index = 0
    name = "fake card"
    flush_bytes = 256 << 20

    def active(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    card = Card()
    monkeypatch.setattr(api, "open_cuda", lambda _device, _timer: card)
    return card


def test_bench_times_on_the_card_and_records_it(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BUFFERS, "flush", lambda _device, _policy: card.kernel(65.0, "flush"))
    result = bench({"f": card.kernel(5.0)}, timer="event", calls=3, cooldown_s=0)
    assert result["impls"]["f"] == pytest.approx(5.0)
    protocol = result["benchmark_protocol"]
    assert (protocol["device"], protocol["flush_bytes"]) == ("fake card", 256 << 20)
    assert protocol["source"] == "events on the current stream"


def test_a_warm_measurement_records_that_nothing_was_flushed(card: Card) -> None:
    result = bench({"f": card.kernel(5.0)}, timer="event", calls=3, cooldown_s=0, l2="warm")
    assert result["benchmark_protocol"]["flush_bytes"] == 0
    assert "flush" not in card.log


def test_a_capture_is_refused_before_the_flush_buffer_is_made(card: Card) -> None:
    card.capturing = True
    with pytest.raises(CaptureError):
        bench({"f": card.kernel(5.0)}, timer="event")


def test_a_rank_measures_on_its_card(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_with_fakes(**fields: Any) -> DistributedRun:
        return DistributedRun(**fields, open_session=lambda: FakeKineto(card))

    class Rank:
        def __init__(self, device: Card) -> None:
            assert device is card

        def on_stream(self, _: object) -> contextlib.AbstractContextManager[object]:
            return contextlib.nullcontext()

        def cold_start(self, _flush_bytes: int, _sleep_cycles: int) -> None:
            card.run_us(3000.0)

    class Stream:
        cuda_stream = 1234

        def synchronize(self) -> None:
            card.synchronize()

    monkeypatch.setattr(api, "DistributedRun", run_with_fakes)
    monkeypatch.setattr(api, "RankDevice", Rank)
    context = DistributedBenchContext(
        rank=0,
        world_size=1,
        barrier=lambda: None,
        max_reduce=lambda value: value,
        stream=Stream(),
    )
    result = bench({"f": card.kernel(5.0)}, distributed=context, cooldown_s=0)
    assert result["impls"] == {"f": pytest.approx(5.0)}
    assert result["timer"] == "kineto"
    assert result["benchmark_protocol"]["device"] == "fake card"
    assert result["benchmark_protocol"]["timing_stream"] == "1234"
