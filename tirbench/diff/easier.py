"""Inputs of a case that are easier than they were under the same id."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, Final

from tirbench.diff.found import Found
from tirbench.model import BoundInit, BoundTensor, Case

CONSTANT: Final = frozenset({"zeros", "ones", "full"})
RANDOM: Final = frozenset({"normal", "uniform", "randint", "permutation", "lengths", "page_table"})
RAGGED: Final = frozenset({"lengths", "randint", "cu_seqlens"})


def easier_inputs(before: Case, after: Case) -> Iterator[Found]:
    """What a case must no longer cope with."""
    named = {tensor.name: tensor for tensor in after.tensors}
    for old in before.tensors:
        new = named.get(old.name)
        if new is None:
            continue
        for text in _tensor(old, new):
            yield Found(subject=f"tensor {old.name}", text=text, path=new.path)
    if before.world_size is not None and (after.world_size or 1) < before.world_size:
        text = f"world_size {before.world_size} → {after.world_size or 1}"
        yield Found(subject="ranks", text=text, path=("ranks",))


def _tensor(old: BoundTensor, new: BoundTensor) -> Iterator[str]:
    sizes = [_elements(one) for one in (old, new)]
    if None not in sizes and sizes[1] < sizes[0]:  # type: ignore[operator]
        shapes = " → ".join("×".join(map(str, one.shape)) for one in (old, new))
        yield f"smaller under the same id: {shapes}"
    if old.dtype.itemsize > new.dtype.itemsize:
        yield f"dtype {old.dtype} → {new.dtype} under the same id"
    if old.reset == "restore" and new.reset == "none":
        yield "reset restore → none: a call gets what the one before it left"
    if old.strides is not None and new.strides is None:
        yield "strides removed: contiguous now"
    if old.init is not None and new.init is not None:
        yield from _init(old.init, new.init)


def _init(old: BoundInit, new: BoundInit) -> Iterator[str]:
    if old.kind in RANDOM and new.kind in CONSTANT:
        yield f"contents {old.kind} → {new.kind}: the same value everywhere"
        return
    if old.kind in RAGGED and new.kind not in RAGGED | {"file"} and new.kind != old.kind:
        yield f"contents {old.kind} → {new.kind}: no longer ragged"
        return
    if old.kind != new.kind:
        return
    was, now = _range(old), _range(new)
    if was is not None and now is not None and now < was:
        yield f"{old.kind} over a narrower range: {was:g} → {now:g}"
    clamps = [dict(one.parameters).get("clamp") for one in (old, new)]
    if clamps[1] is not None and (clamps[0] is None or _width(clamps[1]) < _width(clamps[0])):
        yield f"{old.kind} clamped: {_shown(clamps[0])} → {_shown(clamps[1])}"
    if old.kind == "cu_seqlens":
        lengths = [dict(one.parameters).get("lengths") for one in (old, new)]
        if _ragged(lengths[0]) and _ragged(lengths[1]) is False:
            yield "lengths ragged → uniform"


def _elements(tensor: BoundTensor) -> int | None:
    sizes = [size for size in tensor.shape if isinstance(size, int)]
    return prod(sizes) if len(sizes) == len(tensor.shape) else None


def _range(init: BoundInit) -> float | None:
    """How far contents are apart, where numbers say it."""
    given: dict[str, Any] = dict(init.parameters)
    if init.kind == "normal":
        std = given.get("std", 1.0)
        return float(std) if isinstance(std, int | float) else None
    low, high = ("min", "max") if init.kind == "lengths" else ("low", "high")
    ends = given.get(low, 0), given.get(high)
    if all(isinstance(end, int | float) for end in ends):
        return float(ends[1]) - float(ends[0])  # type: ignore[arg-type]
    return None


def _width(clamp: Any) -> float:
    if isinstance(clamp, tuple) and all(isinstance(end, int | float) for end in clamp):
        return float(clamp[1]) - float(clamp[0])
    return float("inf")


def _shown(clamp: Any) -> str:
    return "none" if clamp is None else f"[{', '.join(map(str, clamp))}]"


def _ragged(lengths: Any) -> bool | None:
    """Whether a list of lengths has several values; `None` where only the device knows it."""
    return len(set(lengths)) > 1 if isinstance(lengths, tuple) else None
