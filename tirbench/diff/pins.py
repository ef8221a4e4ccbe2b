"""Baselines on both sides: which numbers moved, which of them to believe, and what weakens the record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tirbench.bands import OTHER_UNIT
from tirbench.diff import hardware
from tirbench.diff.code import resources
from tirbench.diff.protocols import placements_of
from tirbench.model import PinChange, PinnedRow, PinProblem, PinVerdict, Weakening

if TYPE_CHECKING:
    from tirbench.diff.side import Key, Pins, Side, Task

BAND_SLACK: Final = 1.1
"""A band is estimated from a few rounds: only one that grew by more than a tenth says anything."""

UNDER_WAIVER: Final = {
    "measured on an uncommitted tree": "pinned with --allow-dirty",
    "not checked": "pinned though nothing was checked",
}
"""What `pin` writes into a reason when it is told to overlook something: how it begins, what it means."""


def changes(base: Side, head: Side) -> tuple[PinChange, ...]:
    """Every row that one side has otherwise than the other; rows that only `env` or seal touch too."""
    found = []
    unreadable = {*base.broken, *head.broken}  # which says nothing of any row
    for path in sorted({*base.pins, *head.pins} - unreadable):
        old, new = base.pins.get(path), head.pins.get(path)
        olds, news = (side.rows if side else {} for side in (old, new))
        any_side = new or old
        assert any_side is not None  # noqa: S101 - the path is from one of them
        for key in sorted({*olds, *news}):
            before, after = olds.get(key), news.get(key)
            if before == after:
                continue
            verdict = _verdict(key, before, after, old, new)
            found.append(
                PinChange(
                    workload=any_side.baseline.workload,
                    hardware=any_side.baseline.hardware,
                    path=path,
                    case=key[0],
                    implementation=key[1],
                    old=before,
                    new=after,
                    verdict=verdict,
                    notes=tuple(_notes(before, after)),
                    resources=_resources(before, after),
                )
            )
    return tuple(found)


def _verdict(
    key: Key,
    before: PinnedRow | None,
    after: PinnedRow | None,
    old: Pins | None,
    new: Pins | None,
) -> PinVerdict:
    if before is None or after is None:
        return "added" if before is None else "removed"
    broken = any(side is not None and key in side.broken for side in (old, new))
    if broken or (before.problem, before.protocol) != (after.problem, after.protocol):
        return "incomparable"
    relative = after.midmean_us / before.midmean_us - 1
    if abs(relative) <= before.band + (0 if before.unit == after.unit else OTHER_UNIT):
        return "same"
    if _same_code(before, after):
        return "environment"
    return "slower" if relative > 0 else "faster"


def _same_code(before: PinnedRow, after: PinnedRow) -> bool:
    """Whether machine code and what it is launched with are the same."""
    names = ("code", "source", "configuration")
    return all(getattr(before, name) == getattr(after, name) for name in names)


def _notes(before: PinnedRow | None, after: PinnedRow | None) -> Iterator[str]:
    """What else a row says: code, environment, unit, reason."""
    if before is None or after is None:
        return
    if before.code != after.code:
        yield "other code"
    elif before.source != after.source:
        yield "other source, same code"
    if before.configuration != after.configuration:
        yield f"tuned to {after.configuration}"
    if before.env != after.env:
        yield f"environment {before.env} → {after.env}"
    if before.unit != after.unit:
        yield "another unit"
    if after.reason and after.reason != before.reason:
        yield f"reason: {after.reason}"


def _resources(
    before: PinnedRow | None, after: PinnedRow | None
) -> tuple[tuple[str, str, str], ...]:
    """What the compiler says otherwise of another code; of the same code there is only more or less said."""
    if before is None or after is None or before.code == after.code:
        return ()
    return resources(dict(before.resources), dict(after.resources))


# --- What weakens the record ----------------------------------------------------------------------


def weakenings(base: Side, head: Side, moved: tuple[PinChange, ...]) -> Iterator[Weakening]:
    """What of the baselines makes the gate easier, row by row."""
    gone = {path for path in base.pins if path not in head.pins and path not in head.broken}
    for path in sorted(gone):
        pins = base.pins[path]
        if pins.baseline.workload in head.tasks:
            yield Weakening(
                workload=pins.baseline.workload,
                subject=f"baseline {pins.baseline.hardware}",
                text=f"deleted, with {len(pins.baseline.rows)} rows",
                place=path,
            )
    yield from _of_devices(base, head)
    for one in moved:
        task = head.tasks.get(one.workload)
        if one.path in gone or task is None:
            continue
        for text, reason in _of_row(one, base.tasks.get(one.workload), task):
            yield Weakening(
                workload=one.workload,
                subject=f"pin {one.case}/{one.implementation} on {one.hardware}",
                text=text,
                cases=(one.case,),
                implementation=one.implementation,
                reason=reason,
                place=one.path,
            )


def _of_devices(base: Side, head: Side) -> Iterator[Weakening]:
    """Facts of a device that rows are still pinned on: which kernels it can run hangs on them."""
    for folder, was in sorted(base.capabilities.items()):
        now = head.capabilities.get(folder)
        left = sorted(path for path in head.pins if path.startswith(f"{folder}/"))
        if not left or now == was:
            continue
        gone = "what device it is of was deleted"
        yield Weakening(
            workload=head.pins[left[0]].baseline.workload,
            subject=f"baseline {folder.rpartition('/')[2]}",
            text=gone if now is None else f"of compute capability {now:g} instead of {was:g}",
            place=f"{folder}/device.toml",
        )


def _of_row(one: PinChange, old: Task | None, new: Task) -> Iterator[tuple[str, str | None]]:
    before, after = one.old, one.new
    if after is None:
        if new.implementation((one.case, one.implementation)) is not None:
            yield "row deleted, though the workload still has it", None
        return
    reason = (
        after.reason if after.reason and (before is None or before.reason != after.reason) else None
    )
    declared = new.implementation((one.case, one.implementation))
    for begins, text in UNDER_WAIVER.items():
        if begins == "not checked" and declared is not None and declared.unchecked is not None:
            continue  # the workload says so, with a reason, and that is reviewed there
        if begins in (after.reason or "") and begins not in ((before and before.reason) or ""):
            yield text, None
            reason = None if reason == begins else reason
    if before is None:
        return
    same_task = (before.problem, before.protocol) == (after.problem, after.protocol)
    if same_task:
        yield from ((text, reason) for text in _easier(before, after))
    if before.problem != after.problem and before.midmean_us == after.midmean_us:
        yield "another problem with the number of the old one", reason
    if before.protocol != after.protocol and old is not None and one.case in old.cases:
        was = placements_of(old.cases[one.case], before.protocol)
        now = placements_of(new.cases[one.case], after.protocol) if one.case in new.cases else None
        if was is not None and now is not None and now < was:
            yield f"measured on {now} placements instead of {was}", reason


def _easier(before: PinnedRow, after: PinnedRow) -> Iterator[str]:
    for name, was, now in (
        ("time", before.midmean_us, after.midmean_us),
        ("anchor", before.anchor_us, after.anchor_us),
    ):
        if now > was:
            yield f"the pinned {name} rose by {100 * (now / was - 1):.2g} %: {was:g} → {now:g} µs"
    if after.band > BAND_SLACK * before.band:
        yield f"the band is wider: {100 * before.band:.2g} → {100 * after.band:.2g} %"
    unchanged = _same_code(before, after) and before.env == after.env and before.unit == after.unit
    if unchanged and before.midmean_us != after.midmean_us:
        yield "another number with the same source, code and environment"


def notices(head: Side, moved: tuple[PinChange, ...]) -> Iterator[str]:
    """What a reviewer must not overlook, though it weakens nothing."""
    for one in moved:
        name = f"{one.workload}/{one.case}/{one.implementation} on {one.hardware}"
        if one.old is None or one.new is None or one.verdict == "incomparable":
            continue
        faster = one.new.midmean_us < one.old.midmean_us
        if faster and _same_code(one.old, one.new):
            yield f"{name}: faster with identical code: it is the environment that is faster"
        task = head.tasks.get(one.workload)
        reference = task.workload.gate.reference if task else None
        if reference == one.implementation and one.new.midmean_us > one.old.midmean_us:
            yield f"{name}: the gate's own reference is slower, which flatters every ratio to it"


# --- What cannot stand ----------------------------------------------------------------------------


def problems(base: Side, head: Side) -> Iterator[PinProblem]:
    """Rows of HEAD that are stale, missing or broken, and were not so at BASE already."""
    for path, why in sorted(head.broken.items()):
        if base.broken.get(path) != why:
            workload = path.rpartition("/")[2].removesuffix(".toml")
            yield PinProblem(kind="broken", workload=workload, path=path, subject=path, text=why)
    for path, pins in sorted(head.pins.items()):
        name = pins.baseline.workload
        task, before = head.tasks.get(name), base.pins.get(path)
        if before == pins and task is not None and task.is_untouched(base.tasks.get(name)):
            continue
        for key, row in pins.rows.items():
            fault = _fault(key, row, pins, task)
            was = _fault_before(key, row, before, base.tasks.get(name))
            if fault is not None and fault != was:
                yield PinProblem(
                    kind="broken" if key in pins.broken else "stale",
                    workload=name,
                    path=path,
                    subject=f"{name}/{key[0]}/{key[1]} on {pins.baseline.hardware}",
                    text=fault,
                )
    yield from _missing(base, head)


def _fault(key: Key, row: PinnedRow, pins: Pins, task: Task | None) -> str | None:
    if key in pins.broken:
        return "the seal is broken: edited by hand, or merged from two measurements; pin again"
    if task is None:
        return None  # the workload cannot be read, which is said elsewhere, or was deleted whole
    if task.implementation(key) is None:
        return "pinned, but no workload has the row; `tirbench pin --prune` drops it"
    if row.problem != task.problem(key[0]):
        return "pinned for another problem; measure and pin again"
    if placements_of(task.cases[key[0]], row.protocol) is None:
        return "pinned for another protocol; measure and pin again"
    return None


def _fault_before(key: Key, row: PinnedRow, before: Pins | None, task: Task | None) -> str | None:
    """What was wrong with the same row at BASE."""
    old = None if before is None else before.rows.get(key)
    return _fault(key, old, before, task) if before is not None and old == row and old else None


def _missing(base: Side, head: Side) -> Iterator[PinProblem]:
    """Rows that are new at HEAD and pinned nowhere, on hardware that others are pinned on."""
    for name, task in sorted(head.tasks.items()):
        before = base.tasks.get(name)
        old = set(before.keys) if before else set()
        for place in hardware.places(task, head):
            pinned = head.pins[place.path].rows if place.path in head.pins else {}
            for key in task.keys:
                if key not in old and key not in pinned and hardware.belongs(task, key, place):
                    yield PinProblem(
                        kind="missing",
                        workload=name,
                        path=task.workload.source.path,
                        subject=f"{name}/{key[0]}/{key[1]} on {place.hardware}",
                        text="new and not pinned yet",
                    )
