"""Walking the steps of a plan, with every failure on its owner's account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tirbench.errors import TimerError
from tirbench.timing.plan import Call, CallFailed, Plan, Rest, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Drains(Protocol):
    """Something that can be waited for."""

    def synchronize(self) -> None:
        """Wait until nothing is left to do."""


def walk(
    steps: Iterable[Step],
    launch: Callable[[Call], None],
    device: Drains,
    sleep: Callable[[float], None],
) -> None:
    """Do the steps in order: `launch` for every launch of a block, drain and sleep for a rest."""
    for step in steps:
        if isinstance(step, Rest):
            device.synchronize()
            sleep(step.seconds)
            continue
        for _ in range(step.launches):
            blame(step.call, launch)


def blame(call: Call, launch: Callable[[Call], None]) -> None:
    """Launch the call; an exception becomes a `CallFailed` with its name."""
    try:
        launch(call)
    except (CallFailed, TimerError):
        raise
    except Exception as error:  # foreign code runs here: whatever it raises is its failure
        raise CallFailed(call.name, error) from error


def launch_untimed(call: Call) -> None:
    """Enqueue one cycle of the call."""
    call.precede()
    call.launch()


def drain(device: Drains, plan: Plan) -> None:
    """Wait for the device; a fault that surfaces here belongs to the plan's only implementation.

    With several implementations in the plan nobody can tell whose launch it was, and the error stays
    as it is.
    """
    names = {block.call.name for block in plan.blocks()}
    try:
        device.synchronize()
    except Exception as error:  # a launch of foreign code may have broken the context
        if len(names) == 1:
            raise CallFailed(names.pop(), error) from error
        raise


def kept_flags(plan: Plan) -> list[tuple[str, bool]]:
    """For every timed launch in order: whose it is, and whether its time is kept."""
    return [
        (block.call.name, index >= block.discarded)
        for block in plan.blocks()
        for index in range(block.launches)
    ]
