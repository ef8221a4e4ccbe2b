"""What happens to the memory of each tensor around a call: pure decisions from the specifications."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tirbench.tensors.spec import base_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tirbench.tensors.spec import Computed, Tensor


def family(specs: Mapping[str, Tensor], base: str) -> list[Tensor]:
    """The tensor itself and all views of its memory."""
    return [spec for name, spec in specs.items() if base_of(specs, name) == base]


def filled(specs: Mapping[str, Tensor], computed: Sequence[Computed]) -> frozenset[str]:
    """Base tensors with initial contents, drawn or computed, be it through a view."""
    names = [spec.name for spec in specs.values() if spec.init is not None]
    names += [name for one in computed for name in one.returns if name in specs]
    return frozenset(base_of(specs, name) for name in names)


def read_only(specs: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Base tensors in the arena that no kernel may write, through no view either."""
    return tuple(
        name
        for name, spec in specs.items()
        if spec.view is None
        and not spec.temporary
        and all(one.role == "in" for one in family(specs, name))
    )


def restored(specs: Mapping[str, Tensor], computed: Sequence[Computed]) -> tuple[str, ...]:
    """Base tensors that get their initial contents back before every call."""
    return tuple(
        name
        for name, spec in specs.items()
        if spec.view is None
        and not spec.temporary
        and name in filled(specs, computed)
        and any(_resets(one) for one in family(specs, name))
    )


def poisoned(specs: Mapping[str, Tensor], computed: Sequence[Computed]) -> tuple[str, ...]:
    """Base tensors that kernels must write wholly: without initial contents, or outputs not restored.

    What is neither restored nor poisoned would hand one implementation's output to the next.
    """
    has_contents, comes_back = filled(specs, computed), restored(specs, computed)
    return tuple(
        name
        for name, spec in specs.items()
        if spec.view is None
        and not spec.temporary
        and name not in comes_back
        and (roles := {one.role for one in family(specs, name)} - {"in"})
        and (name not in has_contents or roles == {"out"})
    )


def kept(
    specs: Mapping[str, Tensor], computed: Sequence[Computed], names: Collection[str]
) -> tuple[str, ...]:
    """Those of the restored tensors that need a copy of their contents; a constant is written again."""
    return tuple(name for name in names if constant(specs, computed, name) is None)


def constant(specs: Mapping[str, Tensor], computed: Sequence[Computed], base: str) -> float | None:
    """The value of every element of a base tensor, if its initial contents are one constant."""
    init = specs[base].init
    through_views = [
        one for one in family(specs, base) if one.name != base and one.init is not None
    ]
    returned = {base_of(specs, name) for one in computed for name in one.returns if name in specs}
    if init is None or through_views or base in returned:
        return None
    return init.constant


def _resets(spec: Tensor) -> bool:
    """Whether the specification asks for its initial contents before every call."""
    if spec.reset is not None:
        return spec.reset == "restore"
    return spec.role != "in"
