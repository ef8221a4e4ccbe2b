"""What a launch kind is: what a workload may say of it, and how a launch of it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from tirbench.launch.emit import Source
from tirbench.model import BoundLaunch
from tirbench.values import Phase

Form: TypeAlias = Literal["expr", "exprs", "text", "texts", "grad"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One key of a launch kind.

    Attributes:
        form: an expression, a list of them, literal text, a list of it, or a `grad` table.
        latest: the latest phase that its expressions may read.
        tuned: whether constants that a tuner sets may appear.
        schema: what the JSON Schema says of it, where the form does not say it all.
    """

    form: Form
    latest: Phase = Phase.DATA
    tuned: bool = False
    schema: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Syntax:
    """What a workload may say of a launch of one kind.

    Attributes:
        options: the keys of the kind, beside `kind`, `target` and `args`.
        arguments: how `args` may be written.
        suffix: which file a target names; empty: a `.py` file or a dotted path.
        c_scalars: whether numbers need a C width.
        device: the one device that the kind runs on; implementations of it require it by themselves.
    """

    options: Mapping[str, Option] = field(default_factory=dict)
    arguments: Literal["any", "named", "positional"] = "any"
    suffix: str = ""
    c_scalars: bool = False
    device: Literal["cuda", "cpu"] | None = None


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
        template: the partial with the macros `prepare(lead, step, wrap)` and `call(step, wrap)`; that of
            a plug-in lies in its own package: `package:path`.
        returns: whether the call has a value that outputs may be bound to.
        closure: whether what is prepared is the launch closure already.
        arguments: bound launch → arguments of the call, as source.
        options: bound launch → the kind's own options, as source.
        syntax: what a workload may say of it.
        imports: bound launch → modules that it needs and that take long to import. They are imported once,
            in the process that workers are forked from: they must neither touch a device nor start threads.
    """

    name: str
    template: str
    returns: bool = True
    closure: bool = False
    arguments: Callable[[BoundLaunch], tuple[Source, ...]]
    options: Callable[[BoundLaunch], Mapping[str, Source]] = field(default=lambda _: {})
    syntax: Syntax = Syntax()
    imports: Callable[[BoundLaunch], tuple[str, ...]] = field(default=lambda _: ())
