"""The rows that must be measured again: one rule for `diff`, `exec --changed` and `gate --static`.

A row need not be measured where its pin is of exactly the problem, protocol and source that it has now, nor
where neither the row nor its pin is otherwise than at BASE: what was stale before is not the branch's doing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tirbench import digest
from tirbench.diff import hardware
from tirbench.diff.protocols import placements_of
from tirbench.diff.seconds import Times
from tirbench.model import MeasureCause, PinnedRow, Row, ToMeasure

if TYPE_CHECKING:
    from tirbench.diff.code import Facts
    from tirbench.diff.hardware import Place
    from tirbench.diff.side import Key, Side, Task

ENVIRONMENT: Final = frozenset(
    module for _, modules in digest.IN_ENVIRONMENT.values() for module in modules
)
"""Modules of the packages whose versions are a row's `env`."""

NOWHERE: Final = hardware.Place(hardware="", path="")
"""Stands for the hardware of a project that pins nothing."""


def to_measure(base: Side, head: Side, facts: Facts | None, times: Times) -> Iterator[ToMeasure]:
    """The rows of HEAD that are not pinned as they are now, with what is otherwise than at BASE.

    Args:
        base: what is there.
        head: what is proposed.
        facts: what the compilers say of both; without, another source is another code.
        times: what is known of how long rows take.
    """
    for name, task in sorted(head.tasks.items()):
        places = hardware.places(task, base, head)
        if task.is_untouched(base.tasks.get(name)) and all(
            base.pins.get(one.path) == head.pins.get(one.path) for one in places
        ):
            continue
        for key in task.keys:
            found = {
                place.hardware: why
                for place in places or (NOWHERE,)
                if (why := cause(base, head, name, key, place, facts)) is not None
            }
            if found:
                one = task.implementation(key)
                assert one is not None  # noqa: S101 - the key is from there
                names = tuple(sorted(filter(None, found)))
                yield ToMeasure(
                    row=Row(workload=name, case=key[0], implementation=key[1], role=one.role),
                    cause=next(iter(found.values())),
                    hardware=names,
                    seconds=times.seconds(name, key, names),
                )


def cause(
    base: Side, head: Side, workload: str, key: Key, place: Place, facts: Facts | None
) -> MeasureCause | None:
    """Why a row must be measured on a class of hardware; `None` where it need not.

    Args:
        base: what is there.
        head: what is proposed; it has the row.
        workload: its name.
        key: the row.
        place: the hardware.
        facts: as of `to_measure`.
    """
    task, old = head.tasks[workload], base.tasks.get(workload)
    if not hardware.is_measured(task, key):
        return None
    pin, before = _pin(head, key, place), _pin(base, key, place)
    other = _difference(old, task, key, place, facts)
    if pin is None:
        if before is not None:
            return other or "pin"
        return _unpinned(old, task, key, place, other)
    if key in head.pins[place.path].broken:
        return None if before == pin and other is None else other or "pin"
    stale = _stale(task, key, pin, before)
    if stale is None or (
        other is None and before is not None and _evidence(before) == _evidence(pin)
    ):
        return None
    return other or ("pin" if before is None or _evidence(before) != _evidence(pin) else stale)


def _unpinned(
    old: Task | None, task: Task, key: Key, place: Place, other: MeasureCause | None
) -> MeasureCause | None:
    """Of a row that is pinned on neither side: only what belongs into the record, and did not before."""
    if place is NOWHERE:
        one = task.implementation(key)
        by_default = task.cases[key[0]].selected_by & {"default", "cpu"}
        return other if one is not None and by_default else None
    if not hardware.belongs(task, key, place):
        return None
    did = old is not None and old.implementation(key) is not None
    if did and old is not None and not hardware.belongs(old, key, place):
        return "new"
    return other


def _pin(side: Side, key: Key, place: Place) -> PinnedRow | None:
    pins = side.pins.get(place.path)
    return None if pins is None else pins.rows.get(key)


def _evidence(pin: PinnedRow) -> tuple[object, ...]:
    """What a pin is of."""
    return (pin.problem, pin.protocol, pin.source, pin.code, pin.configuration)


def _stale(task: Task, key: Key, pin: PinnedRow, before: PinnedRow | None) -> MeasureCause | None:
    """What a pin is not of, of a row as it is now."""
    if pin.problem != task.problem(key[0]):
        return "problem"
    if placements_of(task.cases[key[0]], pin.protocol) is None:
        return "protocol"
    if pin.source == task.source(key):
        return None
    # What is pinned anew of a library is of the version there, which need not be the one here.
    anew = before is None or before.source != pin.source
    return None if anew and _hangs_on_installed(task, key) else "code"


def _hangs_on_installed(task: Task, key: Key) -> bool:
    """Whether a row's source says the version of an installed package that no row's `env` says."""
    one = task.implementation(key)
    assert one is not None  # noqa: S101 - the key is from there
    targets = [step.target for step in one.steps]
    targets += [one.context.target] if one.context else []
    modules = {target.partition(".")[0] for target in targets if ":" not in target}
    return bool(modules - ENVIRONMENT)


def _difference(
    old: Task | None, new: Task, key: Key, place: Place, facts: Facts | None
) -> MeasureCause | None:
    """What of a row is otherwise than at BASE; `None` where nothing is that a number depends on."""
    if old is None or old.implementation(key) is None or not hardware.is_measured(old, key):
        return "new"
    if new.is_untouched(old):
        return None
    if old.problem(key[0]) != new.problem(key[0]):
        return "problem"
    if _protocol(old, key) != _protocol(new, key):
        return "protocol"
    if old.source(key) == new.source(key):
        return None
    return None if facts is not None and facts.same(old, new, key, place.arch) else "code"


def _protocol(task: Task, key: Key) -> tuple[object, ...]:
    """Digests of how a case is timed, with the timer that it names."""
    case = task.cases[key[0]]
    return case.workload.timer.name, digest.protocol(case, "event", 1, 1)
