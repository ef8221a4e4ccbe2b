"""A signal that comes at a bad moment."""

from __future__ import annotations

import signal
import time
import weakref
from collections.abc import Callable

import pytest

from tirbench.signals import ending_in_order


class Signalled:
    """Ctrl-C is pressed while this goes away."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def finalised() -> None:
    Signalled()
    time.sleep(5)


def called_back() -> None:
    class Kept:
        pass

    one = Kept()
    kept = [weakref.ref(one, lambda _: signal.raise_signal(signal.SIGTERM))]
    del one
    time.sleep(5)
    kept.clear()


@pytest.mark.parametrize("meanwhile", [finalised, called_back])
def test_a_signal_is_heard_that_comes_where_no_exception_gets_out(
    meanwhile: Callable[[], None],
) -> None:
    with ending_in_order(), pytest.raises(KeyboardInterrupt):
        meanwhile()


def test_handlers_and_the_hook_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", heard.append)

    class Broken:
        def __del__(self) -> None:
            raise ValueError("not a signal")

    before = signal.getsignal(signal.SIGINT)
    with ending_in_order():
        assert signal.getsignal(signal.SIGINT) is not before
        Broken()
        assert len(heard) == 1  # what is no signal is said as ever
    assert signal.getsignal(signal.SIGINT) is before
    Broken()
    assert len(heard) == 2
