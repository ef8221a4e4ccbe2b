"""`gate --static BASE`: the pins of the working tree beside those of a revision; nothing is measured.

What a machine without a GPU can decide: files are read and digested, nothing that a workload names is
imported. Machine code of both sides comes from who is given for that (`aot`); without, a row whose source is
what BASE has is unchanged, and one whose source changed and was not measured again must be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from tirbench import digest, store
from tirbench.errors import TirbenchError, UsageError
from tirbench.expand import expand
from tirbench.gating import DEFAULTS, Pins, of_no_workload, timer_on
from tirbench.judge import StaticFacts, gate_static
from tirbench.load import load
from tirbench.model import (
    BoundImplementation,
    Case,
    GateDecision,
    GateReport,
    GateRow,
    PinnedRow,
    Workload,
)
from tirbench.reading import read
from tirbench.selection import Selection
from tirbench.store import revisions

if TYPE_CHECKING:
    from collections.abc import Sequence

Key: TypeAlias = "tuple[str, str]"

Compiled: TypeAlias = "Callable[[Path, Case, str, str], str | None]"
"""Machine code by the local compiler: folder of the side, case, implementation and hardware → a digest such
as `sass:…`; `None` where it cannot be compiled here."""

Weakenings: TypeAlias = "Callable[[Case, str], tuple[str, ...]]"
"""What a diff says weakens a row: case of HEAD and implementation → sentences."""

FOLDER: Final = "workloads"
"""Where workloads are where nobody says so."""


def _no_code(_root: Path, _case: Case, _implementation: str, _hardware: str) -> str | None:
    return None


def _no_weakening(_case: Case, _implementation: str) -> tuple[str, ...]:
    return ()


def gate_revisions(
    root: Path,
    base: str,
    files: Sequence[str] = (),
    *,
    compiled: Compiled = _no_code,
    weakenings: Weakenings = _no_weakening,
) -> GateReport:
    """Judge the working tree's baselines against a revision.

    Args:
        root: the project's folder.
        base: the revision.
        files: workloads as on the command line; `workloads` where none is named.
        compiled: the seam to `aot`.
        weakenings: the seam to `diff`.

    Raises:
        UsageError: no such revision, or no workload.
    """
    commit = revisions.resolve(root, base)
    names = tuple(files) or (str(root / FOLDER),)
    if not files and not (root / FOLDER).is_dir():
        raise UsageError(f"no folder {FOLDER} here: name the workloads after --static {base}")
    reading = read(Selection(files=names, select="all"))
    rows: list[GateRow] = []
    unreadable = [str(one) for one in reading.problems]
    with revisions.archived(root, commit) as tree:
        for chosen in reading.chosen:
            before = _workload_at(tree, chosen.workload.source.path)
            sides = _Sides(
                now=_Side.of(root, chosen.workload),
                before=None if before is None else _Side.of(tree, before),
                compiled=compiled,
                weakenings=weakenings,
            )
            unreadable += sides.now.pins.unreadable
            rows += () if sides.now.pins.unreadable else sides.judged()
    rows += of_no_workload(reading)
    return GateReport(
        judged=f"the working tree against {base}",
        rows=tuple(sorted(rows, key=lambda row: (row.path, row.decision.case))),
        unreadable=tuple(unreadable),
    )


def _workload_at(tree: Path, path: str) -> Workload | None:
    """The workload at BASE; one that is not there or not right then pins nothing."""
    try:
        return load(tree / path, tree)
    except TirbenchError:
        return None


@dataclass(slots=True, kw_only=True)
class _Side:
    """One workload on one side: its cases, its pins, and how its files are read."""

    root: Path
    workload: Workload
    cases: Mapping[str, Case]
    pins: Pins
    read: digest.Read
    _sources: dict[Key, str] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path, workload: Workload) -> _Side:
        try:
            cases = {case.id: case for case in expand(workload)}
        except TirbenchError:
            cases = {}
        pins = Pins.read(root, workload)
        return cls(root=root, workload=workload, cases=cases, pins=pins, read=digest.reader(root))

    def implementation(self, key: Key) -> BoundImplementation | None:
        case = self.cases.get(key[0])
        found = () if case is None else case.implementations
        return next((one for one in found if one.name == key[1]), None)

    def source(self, key: Key) -> str | None:
        """Digest of a row's source; `None` where the side has no such row."""
        if self.implementation(key) is None:
            return None
        if key not in self._sources:
            self._sources[key] = digest.source(self.cases[key[0]], key[1], self.read)
        return self._sources[key]

    def task(self, key: Key, hardware: str) -> tuple[str, str] | None:
        """Digests of problem and protocol as `exec --pin` takes them on that hardware."""
        case = self.cases.get(key[0])
        if case is None or self.implementation(key) is None:
            return None
        timer = timer_on(case, hardware)
        protocol = digest.protocol(case, timer, DEFAULTS.placements, DEFAULTS.rounds)
        return digest.problem(case, self.read), protocol


@dataclass(slots=True, kw_only=True)
class _Sides:
    """One workload on both sides."""

    now: _Side
    before: _Side | None
    compiled: Compiled
    weakenings: Weakenings

    def judged(self) -> Iterator[GateRow]:
        """Every row that is pinned on either side, or must be."""
        hardware = _hardware(self.now.root, self.now.workload)
        if self.before is not None:
            hardware |= _hardware(self.before.root, self.before.workload)
        for name in sorted(hardware):
            head = self.now.pins.by_hardware.get(name, {})
            base = {} if self.before is None else self.before.pins.by_hardware.get(name, {})
            kept = {key for key in base if self.now.implementation(key) is not None}
            for key in sorted({*head, *kept, *self._expected(name)}):
                decision = self._decide(key, name, base.get(key), head.get(key))
                pinned = head.get(key)
                yield GateRow(
                    workload=self.now.workload.name,
                    path=self.now.workload.source.path,
                    decision=decision,
                    pinned_us=None if pinned is None else pinned.midmean_us,
                )

    def _expected(self, hardware: str) -> Iterator[Key]:
        """Kernels of default cases that this hardware can run: those must be pinned."""
        for case in self.now.cases.values():
            if "default" not in case.selected_by or case.skipped or (case.world_size or 1) > 1:
                continue
            for one in case.implementations:
                if one.role == "kernel" and one.skipped is None and self._runs(one, hardware):
                    yield case.id, one.name

    def _runs(self, one: BoundImplementation, hardware: str) -> bool:
        kind = "cpu" if hardware.startswith("cpu-") else "cuda"
        needs = (one.requires.device, self.now.workload.requires.device)
        if any(need not in {None, kind} for need in needs):
            return False
        capability = _capability(self.now.root, self.now.workload, hardware)
        asked = (one.requires.capability, self.now.workload.requires.capability)
        return all(text is None or _has_capability(capability, text) for text in asked)

    def _decide(
        self, key: Key, hardware: str, base: PinnedRow | None, head: PinnedRow | None
    ) -> GateDecision:
        now, before = self.now, self.before
        task = now.task(key, hardware)
        old_task = None if before is None else before.task(key, hardware)
        problem, protocol = task or ("", "")
        base_problem, base_protocol = old_task or (None, None)
        code, base_code = self._code(key, hardware)
        return gate_static(
            StaticFacts(
                case=key[0],
                implementation=key[1],
                known=task is not None,
                base=base,
                head=head,
                sealed=head is None or store.is_sealed(head),
                problem=problem,
                protocol=protocol,
                base_problem=base_problem,
                base_protocol=base_protocol,
                source=now.source(key) or "",
                base_code=base_code,
                code=code,
                weakenings=() if task is None else self.weakenings(now.cases[key[0]], key[1]),
                command=f"on {hardware}: tirbench exec {now.workload.source.path}::{key[0]} --pin",
            )
        )

    def _code(self, key: Key, hardware: str) -> tuple[str | None, str | None]:
        """Machine code of HEAD and BASE; equal sources are equal code wherever they were read."""
        now, before = self.now, self.before
        source = now.source(key)
        old = None if before is None else before.source(key)
        if source is None or before is None or old is None:
            return None, None
        if source == old:
            return f"src:{source}", f"src:{old}"
        return (
            self.compiled(now.root, now.cases[key[0]], key[1], hardware),
            self.compiled(before.root, before.cases[key[0]], key[1], hardware),
        )


# --- Hardware -------------------------------------------------------------------------------------


def _hardware(root: Path, workload: Workload) -> set[str]:
    """The classes of hardware that anything beside a workload is pinned on."""
    folder = root / workload.source.folder / "baselines"
    return {path.parent.name for path in folder.glob("*/*.toml")}


def _capability(root: Path, workload: Workload, hardware: str) -> float | None:
    """Compute capability of a class of hardware, from its device.toml."""
    file = root / store.device_path(workload, hardware)
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    found = re.search(r'^capability = "?([\d.]+)"?$', text, re.MULTILINE)
    return None if found is None else float(found[1])


def _has_capability(capability: float | None, asked: str) -> bool:
    """Whether a device has what `[requires]` asks for; one that is not known may not."""
    if capability is None:
        return False
    compare: dict[str, Callable[[float, float], bool]] = {
        ">=": float.__ge__,
        ">": float.__gt__,
        "<=": float.__le__,
        "<": float.__lt__,
        "==": float.__eq__,
        "!=": float.__ne__,
    }
    return all(
        compare[sign](capability, float(number))
        for sign, number in re.findall(r"([<>=!]=?)\s*([\d.]+)", asked)
    )
