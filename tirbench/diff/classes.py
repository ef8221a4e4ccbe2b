"""Every field of a workload as written, classed by what its change means for the numbers.

A field that has no class stops the comparison, and a test before it: what a reviewer is not told about
would be a way to change a number in silence.
"""

from __future__ import annotations

import dataclasses
import io
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from tirbench.expression import Expression
from tirbench.model import (
    Arguments,
    Check,
    DeadlineChoice,
    FieldClass,
    Function,
    Gate,
    Implementation,
    Init,
    Launch,
    OutputCheck,
    Path,
    Ranks,
    Requirements,
    Skip,
    Source,
    Tensor,
    TimerChoice,
    Work,
    Workload,
)

Class: TypeAlias = FieldClass | Literal["parts", "key", "value"]
"""`parts`: made of what has classes of its own. `key`: what it is found by, or where it stands. `value`:
of the class of what holds it."""

CLASSES: Final[dict[type, dict[str, Class]]] = {
    Workload: {
        "name": "key",
        "source": "parts",
        "description": "cosmetic",
        "id": "cosmetic",
        "seed": "identity",
        "asserts": "contract",
        "params": "identity",
        "matrix": "identity",
        "cases": "identity",
        "skips": "parts",
        "select": "contract",
        "derive": "identity",
        "tensors": "parts",
        "inits": "parts",
        "kernels": "parts",
        "references": "parts",
        "check": "parts",
        "work": "parts",
        "timer": "parts",
        "deadlines": "parts",
        "gate": "parts",
        "requires": "parts",
        "ranks": "parts",
    },
    Source: {"root": "key", "path": "key", "text": "key"},
    Tensor: {
        "name": "key",
        "path": "key",
        "role": "identity",
        "like": "cosmetic",  # followed already: shape, strides and dtype are compared
        "shape": "identity",
        "strides": "identity",
        "offset": "identity",
        "dtype": "identity",
        "init": "parts",
        "reset": "identity",
        "reason": "cosmetic",
        "view": "identity",
        "permute": "identity",
        "memory": "identity",
        "replicated": "identity",
    },
    Init: {"kind": "identity", "parameters": "identity"},
    Arguments: {"positional": "value", "named": "value"},
    Function: {"target": "value", "path": "key", "args": "parts", "returns": "value"},
    Launch: {
        "kind": "implementation",
        "target": "implementation",
        "path": "key",
        "args": "parts",
        "options": "implementation",
    },
    Requirements: {
        "device": "contract",
        "capability": "contract",
        "memory": "contract",
        "packages": "contract",
    },
    Implementation: {
        "name": "key",
        "role": "key",
        "path": "key",
        "steps": "parts",
        "returns": "implementation",
        "context": "parts",
        "requires": "parts",
        "unchecked": "contract",
        "looser": "contract",
        "reason": "cosmetic",
    },
    OutputCheck: {
        "tensor": "key",
        "path": "key",
        "exact": "contract",
        "rtol": "contract",
        "atol": "contract",
        "matched": "contract",
        "relative_l2": "contract",
        "cosine": "contract",
        "not_worse_than": "contract",
        "rows": "contract",
        "lengths": "contract",
        "mask": "contract",
        "through": "parts",
        "allow_nan": "contract",
        "allow_inf": "contract",
        "unchecked": "contract",
        "reason": "cosmetic",
    },
    Check: {
        "oracle": "parts",
        "dtype": "contract",
        "grad": "contract",
        "grad_seed": "contract",
        "outputs": "parts",
        "disabled": "contract",
    },
    Skip: {"when": "contract", "reason": "cosmetic", "path": "key", "implementations": "contract"},
    Work: {"flops": "contract", "bytes": "contract", "roof": "contract"},
    TimerChoice: {
        "name": "identity",
        "rounds": "identity",
        "warmup": "identity",
        "repeat": "identity",
        "cudagraph_rep": "identity",
        "cooldown_s": "identity",
        "l2": "identity",
        "regime": "identity",
    },
    DeadlineChoice: dict.fromkeys(
        (field.name for field in dataclasses.fields(DeadlineChoice)), "contract"
    ),
    Gate: {"slower_than": "contract", "reference": "contract"},
    Ranks: {"world_size": "identity", "prepare": "parts"},
}

EVIDENCE: Final = frozenset(
    {
        "midmean_us",
        "band",
        "session_sd",
        "anchor_us",
        "problem",
        "protocol",
        "code",
        "source",
        "env",
        "unit",
        "ratio",
        "ratio_band",
        "resources",
        "configuration",
        "reason",
        "seal",
    }
)
"""Fields of a `PinnedRow`, beside the two that name it: what was measured."""

SUBJECTS: Final[dict[tuple[type, str], tuple[str, Callable[[Any], str]]]] = {
    (Workload, "tensors"): ("tensor", lambda item: item.name),
    (Workload, "inits"): ("init of", lambda item: ", ".join(item.returns)),
    (Workload, "kernels"): ("kernel", lambda item: item.name),
    (Workload, "references"): ("reference", lambda item: item.name),
    (Workload, "skips"): (
        "skip",
        lambda item: " ".join([item.when.text, *(f"of {n}" for n in item.implementations)]),
    ),
    (Check, "outputs"): ("output", lambda item: item.tensor),
}
"""Lists whose items have a name: how an item is called, and its name."""

NAMED: Final = frozenset({"params", "matrix", "derive", "select", "parameters", "named", "options"})
"""Lists of pairs of a name and a value."""

HELD: Final[dict[tuple[type, str], FieldClass]] = {
    (Workload, "inits"): "identity",
    (Check, "oracle"): "contract",
    (OutputCheck, "through"): "contract",
    (Implementation, "context"): "implementation",
    (Implementation, "steps"): "implementation",
    (Ranks, "prepare"): "identity",
}
"""The class of what stands in a field whose own fields are `value`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One field that is written otherwise; `None` where one side has none."""

    kind: FieldClass
    subject: str
    what: str
    old: str | None
    new: str | None
    path: Path
    in_head: bool


def leaves(old: Workload, new: Workload) -> Iterator[Leaf]:
    """Everything that two workloads write otherwise; the order of tables and blanks do not count."""
    yield from _walk(old, new, _At())


@dataclass(frozen=True, slots=True, kw_only=True)
class _At:
    subject: str = ""
    held: FieldClass = "implementation"
    path: Path = ()
    what: str = ""


def _walk(old: Any, new: Any, at: _At) -> Iterator[Leaf]:
    """Compare two dataclasses of one type, field by field."""
    kind = type(new)
    here = dataclasses.replace(at, path=getattr(new, "path", at.path))
    for field in dataclasses.fields(kind):
        name = field.name
        one = CLASSES[kind][name]
        if one == "key" or kind is Source or (kind, name) == (Workload, "source"):
            continue
        before, after = getattr(old, name), getattr(new, name)
        if before == after:
            continue
        if (kind, name) in SUBJECTS:
            yield from _items(kind, name, before, after, here)
        elif one == "parts":
            yield from _part(kind, name, before, after, here)
        else:
            class_ = here.held if one == "value" else one
            yield from _values(name, before, after, dataclasses.replace(here, held=class_))


def _items(
    kind: type, name: str, before: tuple[Any, ...], after: tuple[Any, ...], at: _At
) -> Iterator[Leaf]:
    """Compare lists whose items have names."""
    word, named = SUBJECTS[kind, name]
    held = HELD.get((kind, name), at.held)
    olds, news = ({named(item): item for item in side} for side in (before, after))
    for key in dict.fromkeys([*olds, *news]):
        item = news.get(key, olds.get(key))
        here = dataclasses.replace(
            at, subject=f"{word} {key}", held=held, path=getattr(item, "path", at.path)
        )
        if key in olds and key in news:
            yield from _walk(olds[key], news[key], here)
        else:
            class_ = "identity" if name == "tensors" else _whole(kind, name)
            yield _leaf(
                dataclasses.replace(here, held=class_),
                "",
                None if key not in olds else "there",
                None if key not in news else "there",
            )


def _whole(kind: type, name: str) -> FieldClass:
    """The class of a whole item that is added or removed."""
    return HELD.get((kind, name), "contract")


def _part(kind: type, name: str, before: Any, after: Any, at: _At) -> Iterator[Leaf]:
    """Compare what has classes of its own, also where one side has none."""
    held = HELD.get((kind, name), at.held)
    subject = at.subject or name
    here = dataclasses.replace(at, held=held, subject=subject)
    if isinstance(before, tuple) and isinstance(after, tuple):  # steps
        for index in range(max(len(before), len(after))):
            word = f"{at.subject} step {index + 1}" if max(len(before), len(after)) > 1 else subject
            step = dataclasses.replace(here, subject=word)
            if index < len(before) and index < len(after):
                yield from _walk(before[index], after[index], step)
            else:
                item = after[index] if index < len(after) else before[index]
                path = dataclasses.replace(step, path=item.path)
                texts = [f"{item.kind} {item.target}", None]
                if index < len(after):
                    texts.reverse()
                yield _leaf(path, "", *texts)
    elif before is None or after is None or type(before) is not type(after):
        item = after if after is not None else before
        class_ = held if (kind, name) in HELD else "identity" if isinstance(item, Init) else held
        path = dataclasses.replace(
            here, held=class_, path=getattr(item, "path", at.path), subject=subject
        )
        yield _leaf(path, name, _shown(before), _shown(after))
    else:
        inner = dataclasses.replace(here, what=name if at.subject else "")
        if kind is Check or isinstance(after, Function):
            inner = dataclasses.replace(inner, subject=f"{at.subject} {name}".strip())
        yield from _walk(before, after, inner)


def _values(name: str, before: Any, after: Any, at: _At) -> Iterator[Leaf]:
    """Compare plain values: one by one where they have names."""
    if name not in NAMED:
        if written(before) != written(after):
            yield _leaf(at, name, _shown(before), _shown(after))
        return
    olds, news = dict(before), dict(after)
    for key in dict.fromkeys([*olds, *news]):
        old, new = (_shown(side[key]) if key in side else None for side in (olds, news))
        if old != new:
            word = {"params": "param", "matrix": "axis", "derive": "derive", "select": "list"}
            label = f"{word[name]} {key}" if name in word else key
            yield _leaf(at, label, old, new)


def _leaf(at: _At, what: str, old: str | None, new: str | None) -> Leaf:
    return Leaf(
        kind=at.held,
        subject=at.subject,
        what=what,
        old=old,
        new=new,
        path=at.path,
        in_head=new is not None,
    )


# --- Values as a reviewer reads them --------------------------------------------------------------


def _shown(value: Any) -> str | None:
    return None if value is None else written(value)


def written(value: Any) -> str:
    """A value as it is written in a workload, without regard to the blanks in expressions."""
    if isinstance(value, Expression):
        words = tokenize.generate_tokens(io.StringIO(value.text.strip()).readline)
        return " ".join(word.string for word in words if word.string.strip())
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "none"
    if isinstance(value, tuple):
        pairs = bool(value) and all(_is_pair(item) for item in value)
        parts = [f"{item[0]} = {written(item[1])}" if pairs else written(item) for item in value]
        return f"{{ {', '.join(parts)} }}" if pairs else f"[{', '.join(parts)}]"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        default = {field.name: field.default for field in dataclasses.fields(value)}
        parts = [
            f"{name} = {written(content)}"
            for name in default
            if name != "path" and (content := getattr(value, name)) not in (None, (), default[name])
        ]
        return ", ".join(parts) or type(value).__name__.lower()
    return str(value)


def _is_pair(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)
