"""What an implementation no longer has to do, or no longer does while it is timed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from tirbench.diff.classes import written
from tirbench.diff.found import Found
from tirbench.launch.emit import names_in
from tirbench.model import BoundImplementation, Case, Path, Requirements

COMPILED: Final = ("max-autotune-no-cudagraphs", "default", None)
"""Modes of torch.compile, from the one that tries most."""


def weaker_implementation(
    before: Case, after: Case, old: BoundImplementation, new: BoundImplementation
) -> Iterator[Found]:
    """What is easier for one implementation of a case than it was.

    Args:
        before: the case at BASE.
        after: the same at HEAD.
        old: the implementation at BASE.
        new: the same at HEAD.
    """
    word = "kernel" if new.role == "kernel" else "reference"
    subject = f"{word} {new.name}"

    def found(text: str, reason: str | None = None) -> Found:
        return Found(
            subject=subject, text=text, path=new.path, implementation=new.name, reason=reason
        )

    if old.skipped is None and new.skipped is not None and after.skipped is None:
        yield found("skipped now", new.skipped)
    if old.unchecked is None and new.unchecked is not None:
        yield found("is no longer checked", new.unchecked)
    looser = [1.0 if one.looser is None else one.looser for one in (old, new)]
    if looser[1] > looser[0]:
        said = new.reason if new.reason != old.reason else None
        yield found(f"tolerance times {looser[0]:g} → {looser[1]:g}", said)
    yield from (
        Found(subject=subject, text=one.text, path=new.path, implementation=new.name)
        for one in needs_more(subject, old.requires, new.requires, new.path)
    )
    yield from map(found, _moved(before, after, old, new))
    if new.role == "reference":
        yield from map(found, _reference(old, new))
    lost = set(_computed(before, old)) - set(_computed(after, new))
    for name in sorted(lost & {one.tensor for one in after.check.outputs}):
        yield found(f"no longer computes {name}")


def _moved(
    before: Case, after: Case, old: BoundImplementation, new: BoundImplementation
) -> Iterator[str]:
    """Work that was timed and is not any more."""
    targets = [step.target for step in new.steps]
    untimed = {one.target for one in after.inits} - {one.target for one in before.inits}
    if new.context is not None:
        untimed.add(new.context.target)
    if after.prepare is not None:
        untimed.add(after.prepare.target)
    for step in old.steps:
        if step.target in targets:
            now = new.steps[targets.index(step.target)]
            if step.kind != "build" and now.kind == "build":
                yield f"{step.target} is now built once and no longer launched whole"
        elif len(new.steps) < len(old.steps):
            where = "moved out of what is timed" if step.target in untimed else "no longer timed"
            yield f"step {step.target} {where}"
    if old.context is None and new.context is not None:
        yield f"runs within {new.context.target} now, which is not timed"


def _reference(old: BoundImplementation, new: BoundImplementation) -> Iterator[str]:
    were, are = ([step.target for step in one.steps] for one in (old, new))
    if were != are:
        yield f"target {', '.join(were)} → {', '.join(are)}"
        return
    for before, after in zip(old.steps, new.steps, strict=True):
        was, now = (dict(step.options).get("compile") for step in (before, after))
        if was != now and _rank(now) > _rank(was):
            yield f"compile {was} → {now or 'none'}"


def _rank(mode: object) -> int:
    return COMPILED.index(mode) if mode in COMPILED else 0


def _computed(case: Case, one: BoundImplementation) -> list[str]:
    """The outputs that an implementation is checked for: those it returns, or all that it is given."""
    outputs = [tensor.name for tensor in case.tensors if tensor.role in {"out", "inout"}]
    given = {name for step in one.steps for name in names_in(step.args)}
    return [name for name in outputs if name in one.returns or name in given]


# --- Requirements ----------------------------------------------------------------------------------


def needs_more(subject: str, old: Requirements, new: Requirements, path: Path) -> Iterator[Found]:
    """A machine that could measure before is refused now, or an older version is let in."""
    for name in ("device", "capability", "memory"):
        was, now = getattr(old, name), getattr(new, name)
        if now is not None and written(was) != written(now):
            text = f"requires {name} {written(was)} → {written(now)}: fewer machines measure it"
            yield Found(subject=subject, text=text, path=path)
    before, after = (_bounds(one.packages) for one in (old, new))
    for name, bound in before.items():
        now_bound = after.get(name)
        if now_bound is None:
            yield Found(subject=subject, text=f"requires {name} {bound} removed", path=path)
        elif _lowest(now_bound) < _lowest(bound):
            text = f"requires {name} {bound} → {now_bound}: an older version will do"
            yield Found(subject=subject, text=text, path=path)
    for name in after.keys() - before.keys():
        text = f"requires {name}: left out where it is not installed"
        yield Found(subject=subject, text=text, path=path)


def _bounds(packages: Iterable[str]) -> dict[str, str]:
    from packaging.requirements import Requirement  # 10 ms that most comparisons need not pay

    parsed = [Requirement(text) for text in packages]
    return {one.name: str(one.specifier) for one in parsed}


def _lowest(specifier: str) -> Any:
    """The lowest version that a specifier lets in."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    lower = [
        Version(one.version.removesuffix(".*"))
        for one in SpecifierSet(specifier)
        if one.operator in {">=", ">", "==", "~="}
    ]
    return max(lower, default=Version("0"))
