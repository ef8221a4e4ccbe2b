"""Which rows belong into the record of a class of hardware."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tirbench.diff.side import Key, Side, Task
    from tirbench.model import BoundImplementation


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A class of hardware and the baseline of one workload on it, which need not be there yet."""

    hardware: str
    path: str
    capability: float | None = None

    @property
    def kind(self) -> str:
        """`cuda` or `cpu`."""
        return "cpu" if self.hardware.startswith("cpu-") else "cuda"

    @property
    def arch(self) -> str | None:
        """`sm_90`; `None` where no capability is known."""
        return None if self.capability is None else f"sm_{round(10 * self.capability)}"


def places(task: Task, *sides: Side) -> tuple[Place, ...]:
    """Every class of hardware that some workload beside this one is pinned on, on any of the sides."""
    folder = task.workload.source.folder
    prefix = f"{folder}/baselines/" if folder else "baselines/"
    names = {
        path.removeprefix(prefix).partition("/")[0]
        for side in sides
        for path in (*side.pins, *side.broken)
        if path.startswith(prefix)
    }
    return tuple(
        Place(
            hardware=name,
            path=f"{prefix}{name}/{task.workload.name}.toml",
            capability=next(
                (
                    side.capabilities[prefix + name]
                    for side in reversed(sides)
                    if prefix + name in side.capabilities
                ),
                None,
            ),
        )
        for name in sorted(names)
    )


def belongs(task: Task, key: Key, place: Place) -> bool:
    """Whether a row must be pinned there: kernels and the gate's reference, of what runs by default."""
    case, one = task.cases[key[0]], task.implementation(key)
    if one is None or not is_measured(task, key) or (case.world_size or 1) > 1:
        return False
    counts = one.role == "kernel" or one.name == task.workload.gate.reference
    list_ = "default" if place.kind == "cuda" else "cpu"
    return counts and list_ in case.selected_by and runs_on(task, one, place)


def is_measured(task: Task, key: Key) -> bool:
    """Whether anything measures a row: neither it nor its case is skipped."""
    case, one = task.cases[key[0]], task.implementation(key)
    return one is not None and case.skipped is None and one.skipped is None


def runs_on(task: Task, one: BoundImplementation, place: Place) -> bool:
    """Whether a class of hardware has what an implementation asks for."""
    asked = (one.requires, task.workload.requires)
    if any(need.device not in {None, place.kind} for need in asked):
        return False
    wanted = [need.capability for need in asked if need.capability is not None]
    return all(has_capability(place.capability, text) for text in wanted)


def capability_of(device: str) -> float | None:
    """Compute capability that the text of a `device.toml` says."""
    found = re.search(r'^capability = "?([\d.]+)"?$', device, re.MULTILINE)
    return None if found is None else float(found[1])


def has_capability(capability: float | None, asked: str) -> bool:
    """Whether a device has what `requires` asks for; one that is not known may not."""
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
