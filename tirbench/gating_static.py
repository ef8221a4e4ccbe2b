"""`gate --static BASE`: the pins of the working tree beside those of a revision; nothing is measured.

What a machine without a GPU can decide: files are read and digested, nothing that a workload names is
imported. What the compilers say of both sides comes from who is given for that (`aot`, or its facts);
without, a row whose source is what BASE has is unchanged, and one whose source changed and was not measured
again must be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from tirbench import digest, selection, sides
from tirbench.diff import Facts, hardware
from tirbench.diff.protocols import placements_of
from tirbench.errors import UsageError
from tirbench.gating import DEFAULTS, timer_on
from tirbench.judge import StaticFacts, gate_static
from tirbench.model import (
    Case,
    CompiledSides,
    Diff,
    GateDecision,
    GateReport,
    GateRow,
    MeasureCause,
    PinnedRow,
    Weakening,
)
from tirbench.report.diffs import selected
from tirbench.report.diffs.sections import CAUSES

if TYPE_CHECKING:
    from tirbench.diff import Side, Task
    from tirbench.diff.hardware import Place
    from tirbench.sides import Sides

Key: TypeAlias = "tuple[str, str]"

Compile: TypeAlias = "Callable[[Sides], CompiledSides | None]"
"""What the same compilers make of both sides: `compiling.compiled_sides`, or what was handed over."""

UNCOMPILED: Final = "its source changed, and nothing says what that compiles to"

ROSE: Final = ("the pinned time rose", "the pinned anchor rose")
"""How `diff` says that a number rose."""


def gate_revisions(
    root: Path,
    base: str,
    files: Sequence[str] = (),
    *,
    compile_: Compile | None = None,
) -> GateReport:
    """Judge the working tree's baselines against where it parted from a revision.

    Args:
        root: the project's folder.
        base: the revision.
        files: workloads as on the command line; `workloads` where none is named.
        compile_: the seam to `aot`.

    Raises:
        UsageError: no such revision, or no workload.
    """
    named = _named(root, base, files)
    with sides.opened(root, base, files=named) as found:
        facts = None if compile_ is None else compile_(found)
        judging = _Judging(sides=found, diff=found.compare(facts), compiled=facts is not None)
        if facts is not None:
            told = Facts(facts).notices(found.base.tasks, found.head.tasks)
            judging.told = tuple(told)
        rows = list(judging.rows())
        unreadable = [f"{path}: {why}" for path, why in found.head.unreadable.items()]
        unreadable += found.head.broken.values()
    return GateReport(
        judged=f"the working tree against {found.base.name}",
        rows=tuple(sorted(rows, key=lambda row: (row.path, row.decision.case))),
        unreadable=tuple(unreadable),
        notes=(selected(judging.diff), *judging.told),
    )


def _named(root: Path, base: str, files: Sequence[str]) -> tuple[str, ...]:
    """The workload files that are named, relative to the project."""
    if not files:
        if not (root / sides.FOLDER).is_dir():
            raise UsageError(
                f"no folder {sides.FOLDER} here: name the workloads after --static {base}"
            )
        return ()
    folders = [Path(name) for name in files if Path(name).is_dir()]
    others = tuple(name for name in files if not Path(name).is_dir())
    found = selection.paths(selection.Selection(files=others)) if others else {}
    return tuple(path.absolute().relative_to(root).as_posix() for path in (*folders, *found))


@dataclass(slots=True, kw_only=True)
class _Judging:
    """Both sides and what differs, looked up row by row."""

    sides: Sides
    diff: Diff
    compiled: bool
    told: tuple[str, ...] = ()
    _needs: dict[tuple[str, str], MeasureCause] = field(init=False)
    _attached: set[Weakening] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._needs = {
            (one.key, name): one.cause for one in self.diff.measure for name in one.hardware
        }

    def rows(self) -> Iterator[GateRow]:
        """Every row that is pinned on either side, or must be; then what weakens no row of these."""
        for name, task in sorted(self.sides.head.tasks.items()):
            for place in hardware.places(task, self.sides.base, self.sides.head):
                if place.path not in self.sides.head.broken:
                    yield from self._of_place(name, task, place)
        yield from self._of_no_row()
        yield from self._of_no_workload()

    def _of_place(self, name: str, task: Task, place: Place) -> Iterator[GateRow]:
        head, base = (self._pins(side, place) for side in (self.sides.head, self.sides.base))
        kept = {key for key in base if task.implementation(key) is not None}
        due = {
            key
            for key in task.keys
            if hardware.belongs(task, key, place) and _role(task, key) == "kernel"
        }
        for key in sorted({*head, *kept, *due}):
            pin = head.get(key)
            yield GateRow(
                workload=name,
                path=task.workload.source.path,
                decision=gate_static(self._facts(name, task, key, place, pin)),
                pinned_us=None if pin is None else pin.midmean_us,
            )

    @staticmethod
    def _pins(side: Side, place: Place) -> dict[Key, PinnedRow]:
        pins = side.pins.get(place.path)
        return {} if pins is None else pins.rows

    def _facts(
        self, name: str, task: Task, key: Key, place: Place, pin: PinnedRow | None
    ) -> StaticFacts:
        one = task.implementation(key)
        case = task.cases.get(key[0])
        problem = protocol = source = ""
        if case is not None and one is not None:
            problem, source = task.problem(key[0]), task.source(key)
            protocol = _protocol(case, place, pin)
        weak = [] if one is None else self._weakenings(name, key, place)
        pins = self.sides.head.pins.get(place.path)
        cause = self._needs.get((f"{name}/{key[0]}/{key[1]}", place.hardware))
        why = "" if cause is None else CAUSES[cause]
        return StaticFacts(
            case=key[0],
            implementation=key[1],
            known=one is not None,
            head=pin,
            sealed=pins is None or key not in pins.broken,
            problem=problem,
            protocol=protocol,
            source=source,
            slower=tuple(one.text for one in weak if one.text.startswith(ROSE)),
            weakenings=tuple(
                f"{one.subject}: {one.text}" for one in weak if not one.text.startswith(ROSE)
            ),
            needs=UNCOMPILED if cause == "code" and not self.compiled else why,
            command=f"on {place.hardware}: tirbench exec {task.workload.source.path}::{key[0]} --pin",
        )

    def _weakenings(self, name: str, key: Key, place: Place) -> list[Weakening]:
        """Those without a reason that are about this row: all of a case, or of one implementation."""
        found = [
            one
            for one in self.diff.weakenings
            if one.workload == name
            and not one.reason
            and _is_about(one, key)
            and (not one.subject.startswith("pin ") or one.place == place.path)
        ]
        self._attached |= set(found)
        return found

    def _of_no_row(self) -> Iterator[GateRow]:
        """Weakening of the whole workload, or of what is there no more."""
        for one in self.diff.weakenings:
            if one.reason or one in self._attached:
                continue
            path = one.place.rpartition(":")[0] or one.place
            yield _all_rows(one.workload, path, "weakened", f"{one.subject}: {one.text}")

    def _of_no_workload(self) -> Iterator[GateRow]:
        """Baselines whose workload is gone: all of their rows are orphans, said once a file."""
        head = self.sides.head
        broken = {path.rpartition("/")[2] for path in head.unreadable}
        for path, pins in sorted(head.pins.items()):
            name = pins.baseline.workload
            if name not in head.tasks and f"{name}.toml" not in broken:
                why = f"{name}.toml is no workload any more; delete {path}"
                yield _all_rows(name, path, "orphan", why)


def _protocol(case: Case, place: Place, pin: PinnedRow | None) -> str:
    """How a row is measured: as `exec` does, or as it is pinned where that is no less.

    A project may pin with another timer or on more placements; on fewer, a row is not what `exec --pin` asks.
    """
    if pin is not None and (placements_of(case, pin.protocol) or 0) >= DEFAULTS.placements:
        return pin.protocol
    timer = timer_on(case, place.hardware)
    return digest.protocol(case, timer, DEFAULTS.placements, DEFAULTS.rounds)


def _role(task: Task, key: Key) -> str:
    one = task.implementation(key)
    return "" if one is None else one.role


def _is_about(one: Weakening, key: Key) -> bool:
    """Whether a weakening names a row: by its cases, its implementation, or both."""
    if not one.cases and one.implementation is None:
        return False
    return (not one.cases or key[0] in one.cases) and one.implementation in {None, key[1]}


def _all_rows(workload: str, path: str, rule: str, reason: str) -> GateRow:
    decision = GateDecision(
        case="*",
        implementation="*",
        exit_code=1,
        rule=rule,  # type: ignore[arg-type]  # of the two callers
        reason=reason,
    )
    return GateRow(workload=workload, path=path, decision=decision)
