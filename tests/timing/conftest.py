"""`bench()` on a GPU in memory."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import pytest

from tirbench.timing import bench
from tirbench.timing.api import GPU_TIMERS, run_local
from tirbench.timing.fake import FakeGpu, FakeKineto, FakeProton
from tirbench.timing.request import Request, validate
from tirbench.timing.result import local_result

FakeBench: TypeAlias = Callable[..., dict[str, Any]]

FLUSH_US = 65.0


def request_of(funcs: object, **options: object) -> Request:
    """The checked request of a call of `bench()`."""
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(bench).parameters.items()
        if name != "funcs"
    }
    return validate(funcs, **(defaults | options))


@pytest.fixture
def make_request() -> Callable[..., Request]:
    return request_of


@pytest.fixture
def gpu() -> FakeGpu:
    return FakeGpu()


@pytest.fixture
def fake_bench(gpu: FakeGpu) -> FakeBench:
    """`bench()` as a user calls it, on the fake GPU; `session` replaces how a profiler is opened."""

    def run(
        funcs: object,
        *,
        session: Callable[[], Any] | None = None,
        alive: Callable[[], object] = lambda: None,
        **options: object,
    ) -> dict[str, Any]:
        request = request_of(funcs, **({"cooldown_s": 0.0} | options))
        sessions = {
            "proton": partial(FakeProton, gpu),
            "cudagraph_proton": partial(FakeProton, gpu),
            "kineto": partial(FakeKineto, gpu),
        }
        effects: dict[str, Any] = {"device": gpu, "sleep": gpu.sleep, "clock_ns": gpu.clock_ns}
        if request.timer in sessions:
            effects["open_session"] = session or sessions[request.timer]
        timer = GPU_TIMERS[request.timer](**effects)
        timer.require()
        flush = None if request.l2 == "warm" else gpu.kernel(FLUSH_US, "flush")
        result = run_local(request, timer, flush, alive, gpu.sleep)
        return local_result(result, device="fake", flush_bytes=256 << 20)

    return run
