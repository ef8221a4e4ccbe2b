"""What self-tests found on a class of hardware: kept in a file, said beside verdicts, asked by gates."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tirbench.digest import PROTOCOL_VERSION
from tirbench.judge.resolution import Trials, unresolved
from tirbench.model import Timed
from tirbench.selftest.readings import Record, protocol_of
from tirbench.selftest.shares import (
    AIMED,
    ALL,
    EqualShare,
    OfClass,
    PlantedShare,
    Spread,
    Tally,
)
from tirbench.selftest.tables import percent
from tirbench.store import write

FORMAT: Final = 1
FILE: Final = "selftest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is known of the verdicts on a class of hardware.

    Attributes:
        hardware: folder name of baselines.
        device: the product.
        dates: first and last day of the runs.
        versions: of what they ran on.
        protocol: version of the protocol that they measured by.
        runs: how many.
        units: on how many units.
        workers: K of one stage.
        disjoint: of equal code, only pairs that share no load.
        classes: all rows first, then every class of duration.
    """

    hardware: str
    device: str
    dates: tuple[str, ...]
    versions: str
    protocol: int
    runs: int
    units: int
    workers: int
    disjoint: EqualShare
    classes: tuple[OfClass, ...]

    @classmethod
    def of(cls, runs: Sequence[Record], found: Tally) -> Kept:
        """What is kept of a tally, and of the runs that it is of."""
        last = runs[-1]
        dates = sorted(str(one["date"]) for one in runs)
        return cls(
            hardware=last["hardware"],
            device=last["device"],
            dates=tuple(dict.fromkeys((dates[0], dates[-1]))),
            versions=last["versions"],
            protocol=protocol_of(last),
            runs=len(runs),
            units=len({unit for one in runs for unit in one["units"]}),
            workers=last["protocol"]["workers"],
            disjoint=found.disjoint,
            classes=found.classes,
        )

    @property
    def whole(self) -> OfClass:
        """Of all rows."""
        return self.classes[0]

    def of_time(self, midmean_us: float) -> OfClass | None:
        """The class that a launch of this duration is in; `None` where nothing in it was tried."""
        limits = [
            one for one in self.classes if one.limit_us is not None and midmean_us <= one.limit_us
        ]
        if limits:
            return min(limits, key=lambda one: one.limit_us or 0.0)
        open_ = [one for one in self.classes if one.limit_us is None and one.name != ALL]
        return open_[0] if open_ else None


def text_of(kept: Kept) -> str:
    """The file."""
    return json.dumps({"schema": FORMAT, **asdict(kept)}, ensure_ascii=False, indent=1) + "\n"


def read_text(text: str) -> Kept | None:
    """What a file says; `None` of one that is cut off or of another version."""
    try:
        data = json.loads(text)
        if data.pop("schema") != FORMAT:
            return None
        classes = tuple(
            OfClass(
                name=one["name"],
                limit_us=one["limit_us"],
                equal=EqualShare(**one["equal"]),
                planted=PlantedShare(**one["planted"]),
                spread=Spread(**one["spread"]),
            )
            for one in data.pop("classes")
        )
        disjoint = EqualShare(**data.pop("disjoint"))
        return Kept(classes=classes, disjoint=disjoint, dates=tuple(data.pop("dates")), **data)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def local_path(root: Path, hardware: str) -> Path:
    """Where this machine keeps it."""
    return root / ".tirbench" / "selftest" / f"{hardware}.json"


def keep(root: Path, kept: Kept, folders: Sequence[Path] = ()) -> list[Path]:
    """Write it where this machine keeps it, and beside the baselines of these folders of workloads."""
    paths = [local_path(root, kept.hardware)]
    paths += [folder / "baselines" / kept.hardware / FILE for folder in folders]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, text_of(kept))
    return paths


def known(root: Path, hardware: str) -> Kept | None:
    """What is kept of a class of hardware: by this machine, else beside the baselines."""
    for path in _places(root, hardware):
        if not path.is_file():
            continue
        kept = read_text(path.read_text(encoding="utf-8"))
        if kept is not None and kept.protocol == PROTOCOL_VERSION:
            return kept  # verdicts by another protocol are right as often as that one was
    return None


def _places(root: Path, hardware: str) -> Iterator[Path]:
    yield local_path(root, hardware)
    for pattern in ("baselines", "*/baselines"):
        yield from sorted(root.glob(f"{pattern}/{hardware}/{FILE}"))


def sentence(kept: Kept) -> str:
    """`self-test of nvidia-h200 (2026-11-29): …`: how often its verdicts were right."""
    equal, planted = kept.whole.equal, kept.whole.planted
    low, high = (f"{100 * size:g}" for size in AIMED)
    found = ""
    if planted.decisions:
        found = (
            f", slower by {low} to {high} % found in {planted.found} of {planted.decisions} "
            f"(at least {percent(planted.at_least)})"
        )
    return (
        f"self-test of {kept.hardware} ({kept.dates[-1]}): equal code called different in {equal.flagged} of "
        f"{equal.decisions} (at most {percent(equal.at_most)}){found}"
    )


def notes(root: Path, hardware: str, *, hint: bool = True) -> tuple[str, ...]:
    """What stands beside verdicts: the sentence, or how to come by one.

    Args:
        root: the project's folder.
        hardware: that verdicts are of.
        hint: whether to say that there is none.
    """
    kept = known(root, hardware)
    if kept is not None:
        return (sentence(kept),)
    if not hint:
        return ()
    return (f"no self-test of {hardware} is kept: `tirbench selftest` says how often it is right",)


def trials(one: OfClass) -> Trials:
    """A class as `judge.resolution` takes it."""
    return Trials(
        kernels=one.name,
        equal=one.equal.decisions,
        flagged=one.equal.flagged,
        planted=one.planted.independent,
        found=one.planted.independent_found,
        size=one.planted.truth or 0.0,
        repeated=one.spread.quads if one.spread.again is None else one.spread.again,
        between=one.spread.worker,
    )


def resolver(root: Path, hardware: str) -> Callable[[Timed, float], str]:
    """Says why this hardware cannot resolve a threshold for a row, by its self-test; empty where it can.

    Nothing is refused where nothing is known.
    """
    kept = known(root, hardware)

    def resolve(outcome: Timed, slower_than: float) -> str:
        found = None if kept is None else kept.of_time(outcome.estimate.midmean_us)
        return "" if found is None else unresolved(trials(found), slower_than)

    return resolve
