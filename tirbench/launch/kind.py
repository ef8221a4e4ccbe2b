"""What a launch kind is to the renderer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tirbench.launch.emit import Source
from tirbench.model import BoundLaunch


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One launch as a template partial sees it: every attribute is source already.

    `name` is the variable that holds the prepared function; `arguments` stand between the parentheses
    of the call; `options` are the kind's own, each empty where the workload does not give it; `prefix` is
    `return ` where outputs are bound to the value of the call.
    """

    name: Source
    target: Source
    arguments: tuple[Source, ...]
    options: Mapping[str, Source]
    template: str
    prefix: Source

    @property
    def lead(self) -> Source:
        """The beginning of the line that prepares the launch."""
        return Source(f"{self.name} = ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How launches of one kind are written.

    Attributes:
        name: the value of `kind` in the workload.
        template: the partial with the macros `prepare(lead, step, wrap)` and `call(step, wrap)`.
        returns: whether the call has a value that outputs may be bound to.
        closure: whether what is prepared is the launch closure already.
        arguments: bound launch → arguments of the call, as source.
        options: bound launch → the kind's own options, as source.
    """

    name: str
    template: str
    returns: bool = True
    closure: bool = False
    arguments: Callable[[BoundLaunch], tuple[Source, ...]]
    options: Callable[[BoundLaunch], Mapping[str, Source]] = field(default=lambda _: {})
