"""In which order derived names can be resolved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tirbench.expression import Expression

if TYPE_CHECKING:
    from tirbench.model import Argument, Workload


def derivation_order(workload: Workload) -> tuple[tuple[str, Argument], ...]:
    """The derived names, each after those it reads; names in a cycle are left out."""
    derived = dict(workload.derive)
    dtypes = {tensor.name: tensor.dtype for tensor in workload.tensors}
    ordered: dict[str, Argument] = {}
    open_names: set[str] = set()

    def visit(name: str) -> bool:
        if name in ordered:
            return True
        if name in open_names:
            return False
        open_names.add(name)
        fine = all(visit(read) for read in needs(derived[name]))
        if fine:
            ordered[name] = derived[name]
        return fine

    def needs(argument: Argument | None) -> list[str]:
        # the contents of a tensor can be read once its dtype is known, which may itself be derived
        found: list[str] = []
        for name in names_in(argument):
            if name in derived:
                found.append(name)
            elif dtypes.get(name) is not None:
                found.extend(read for read in names_in(dtypes[name]) if read in derived)
        return found

    for name in derived:
        visit(name)
    return tuple(ordered.items())


def names_in(argument: Argument | None) -> tuple[str, ...]:
    """The names that an argument reads, in order and without repetition."""
    match argument:
        case Expression():
            return argument.names
        case tuple():
            return tuple(dict.fromkeys(name for item in argument for name in names_in(item)))
        case _:
            return ()
