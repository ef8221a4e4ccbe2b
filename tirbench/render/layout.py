"""Where text stands in a harness: what is wrapped, where a place is noted, which names are free."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from tirbench.launch.emit import LINE_LENGTH, Source, wrap

HARNESS_NAMES: Final = frozenset(
    {"case", "device", "f", "launch", "meta", "program", "tb", "tl", "torch"}
)
"""Variables of a harness that no other variable of it may shadow."""


def wrapper(indent: int) -> Callable[[Sequence[str], Iterable[str], str], Source]:
    """`wrap` at an indent, with its head in parts, as the partials of launch kinds call it."""
    return lambda head, items, tail: wrap("".join(head), items, tail, indent)


def placed(text: str, place: str, end: str = "") -> Source:
    """Text with the comment of its place, if it has one, behind its first line, and `end` behind its last.

    The comment stands first so that the nearest one at or above a line of a traceback is its own.
    """
    first, *rest = text.split("\n")
    comment = f"  {place}" if place else ""
    if not rest:
        return Source(f"{first}{end}{comment}")
    return Source("\n".join([f"{first}{comment}", *rest]) + end)


def targets(names: Sequence[str], indent: int = 4) -> Source:
    """Names that the value of a call is unpacked to; in parentheses where one line cannot hold them."""
    line = ", ".join(names) + ("," if len(names) == 1 else "")
    if not names:
        return Source("")
    if indent + len(line) + len(" = case.tensors(") <= LINE_LENGTH:
        return Source(f"{line} = ")
    return Source(wrap("(", names, ")", indent) + " = ")


def free(name: str, taken: Collection[str]) -> str:
    """The name, or the next one like it, that is no keyword and not taken."""
    found, number = name, 2
    while found in taken or found in HARNESS_NAMES or keyword.iskeyword(found):
        found, number = f"{name}_{number}", number + 1
    return found


def variable(target: str, taken: Collection[str]) -> Source:
    """A variable named after the function a target ends in."""
    stem = re.split(r"[.:]", target)[-1]
    return Source(free(stem if stem.isidentifier() else "function", taken))


def function_of(case_id: str) -> Source:
    """A function name for a case id; it stands in the module, where it must not hide a builtin."""
    name = re.sub(r"\W", "_", case_id)
    hides = keyword.iskeyword(name) or name in HARNESS_NAMES or hasattr(builtins, name)
    return Source(name if name.isidentifier() and not hides else f"case_{name}")
