"""Parts of cases that are bound once for every combination of the values they read.

A kernel reads a few of a workload's names, so most cases of a cross product share it with others. Sharing
is exact: a part is found again only where every value that can enter it is the same, layouts of tensors
included, and nothing is kept of a case in which something was wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tirbench.expand.order import names_in
from tirbench.expression import Expression, identity
from tirbench.model import Arguments, Function, Implementation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tirbench.expand.binder import Binder
    from tirbench.model import Check, Path, Workload

T = TypeVar("T")


class Parts:
    """What earlier cases of a workload have bound."""

    def __init__(self, workload: Workload) -> None:
        self._tensors = {tensor.name: tensor for tensor in workload.tensors}
        self._derive = dict(workload.derive)
        self._values = {name for name, _ in workload.params} | self._derive.keys()
        self._values |= {name for _, axis in workload.matrix for name, _ in axis[0]}
        self._values |= {name for case in workload.cases for name, _ in case}
        self._bound: dict[tuple[object, ...], object] = {}
        every = [(item.path, _of_implementation(item, workload)) for item in _all(workload)]
        every += [(init.path, _of_function(init)) for init in workload.inits]
        every += [(("check",), _of_check(workload.check))]
        every += [(("work",), [workload.work.flops, workload.work.bytes, workload.work.roof])]
        self._reads: dict[Path, tuple[str, ...]] = {
            path: self._closure(arguments) for path, arguments in every
        }
        layouts = self._layouts(_compared(workload.check))
        self._reads["check",] = tuple(sorted({*self._reads["check",], *layouts}))

    def get(self, path: Path, binder: Binder, bind: Callable[[], T], extra: object = None) -> T:
        """The part at `path`, bound by `bind` where no earlier case had the same values.

        Args:
            path: where it is written.
            binder: of the case.
            bind: binds it.
            extra: what it depends on besides the values that its expressions read.
        """
        scope, reads = binder.scope, self._reads[path]
        key = scope.key((path, extra), reads) or (
            path,
            extra,
            *(
                identity(scope.values[name])
                if name in scope.values
                else (None, scope.later.get(name))
                for name in reads
            ),
        )
        found = self._bound.get(key)
        if found is None:
            found = bind()
            if not binder.failed:
                self._bound[key] = found
        return found  # type: ignore[return-value]  # what is kept below a path is of one type

    def _closure(self, arguments: list[object]) -> tuple[str, ...]:
        """The names of values that arguments read, those that decide the layouts they ask for among them."""
        names: set[str] = set()
        for argument in _flat(arguments):
            if argument.text not in self._tensors:  # a tensor alone is passed on, whatever it is
                names.update(argument.names)
        return self._layouts(names)

    def _layouts(self, names: set[str]) -> tuple[str, ...]:
        """The names of values among `names`, and those that decide the layouts of the tensors among them."""
        found: set[str] = set()
        waiting = list(names)
        seen: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in self._values:
                found.add(name)
                read = names_in(
                    self._derive.get(name)
                )  # it may stand for a tensor, or for code over one
                waiting.extend(n for n in read if n in self._tensors or n in self._derive)
            elif name in self._tensors:
                tensor = self._tensors[name]
                for written in (tensor.dtype, tensor.shape, tensor.strides, tensor.permute):
                    waiting.extend(names_in(written))
                waiting.extend([tensor.view] if tensor.view else [])
        return tuple(sorted(found))


def _all(workload: Workload) -> tuple[Implementation, ...]:
    return (*workload.kernels, *workload.references)


def _of_implementation(item: Implementation, workload: Workload) -> list[object]:
    """Everything in an implementation that is evaluated."""
    found: list[object] = [item.requires.memory, workload.requires.memory, item.looser]
    found += _of_function(item.context)
    for step in item.steps:
        found += [step.args, *(value for _, value in step.options)]
    return found


def _of_function(function: Function | None) -> list[object]:
    return [function.args] if function else []


def _of_check(check: Check) -> list[object]:
    """Everything in a check that is evaluated."""
    found: list[object] = [*_of_function(check.oracle), check.grad_seed]
    for output in check.outputs:
        found += [output.rtol, output.atol, output.matched, output.relative_l2, output.cosine]
        found += _of_function(output.through)
    return found


def _compared(check: Check) -> set[str]:
    """The tensors whose dtypes decide how they are compared."""
    found = set(check.oracle.returns) if check.oracle else set()
    for output in check.outputs:
        found |= {output.tensor}
        found |= {name for name in (output.rows, output.lengths, output.mask) if name}
    return found


def _flat(argument: object) -> Iterator[Expression]:
    """The expressions in arguments, options and lists of them."""
    if isinstance(argument, Expression):
        yield argument
    elif isinstance(argument, tuple | list):
        for item in argument:
            yield from _flat(item)
    elif isinstance(argument, Arguments):
        yield from _flat(argument.positional)
        yield from _flat([value for _, value in argument.named])
