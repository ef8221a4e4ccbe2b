"""The one flat space of names, and whether every expression reads only names that are in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from keyword import iskeyword
from typing import TYPE_CHECKING, Final

from tirbench.diagnostics import closest, did_you_mean
from tirbench.expression import (
    CONSTANT_NAMES,
    DEVICE_NAMES,
    FUNCTIONS,
    RESERVED,
    Expression,
)
from tirbench.load.kinds import KINDS
from tirbench.model import Arguments, Function
from tirbench.values import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tirbench.diagnostics import Problems
    from tirbench.model import Argument, Implementation, Path, Workload

HARNESS_NAMES: Final = frozenset(
    {"torch", "tl", "tb", "f", "device", "meta", "case", "program", "oracle", "launch"}
)
"""Variables of a generated harness; a tensor of that name would shadow one."""

_OTHER_NAMES: Final = {
    "bf16": "bfloat16",
    "double": "float64",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "float": "float32",
    "fp8": "float8_e4m3fn",
    "half": "float16",
    "long": "int64",
    **{f"{sign}{bits}": f"float{bits}" for sign in ("f", "fp") for bits in (16, 32, 64)},
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    "u8": "uint8",
}
"""Dtypes as they are called elsewhere."""

_ALWAYS: Final = frozenset(CONSTANT_NAMES | DEVICE_NAMES | DTYPES.keys() | {"seed"})


@dataclass(slots=True)
class Names:
    """The names of a workload by what defines them."""

    defined: dict[str, tuple[str, Path]] = field(default_factory=dict)
    """What each name is (`a param`) and where it is defined."""
    tensors: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        return name in self.defined or name in _ALWAYS

    def hint(self, name: str, path: Path, extra: Iterable[str] = ()) -> str:
        """What an unknown name may have been meant to be: of the names that may stand in its place.

        Args:
            name: that nothing defines.
            path: of the expression.
            extra: names that this place has besides those of the workload.
        """
        hidden = frozenset() if _takes_tensors(path) else self.tensors
        own = [*extra, *(one for one in self.defined if one not in hidden)]
        close = closest(name, [*own, *_ALWAYS]) or _OTHER_NAMES.get(name.lower())
        if close is not None:
            return f"did you mean '{close}'?"
        if name in FUNCTIONS:
            return f"'{name}' is a function; it must be called"
        if path[2:] == ("dtype",):
            return dtype_hint(name)
        listed = did_you_mean(name, own, "the names here are")
        if not _takes_text(path):
            return listed
        quoted = f"literal text is quoted inside an expression: \"'{name}'\""
        return f"{listed}; {quoted}" if listed else quoted


def _takes_tensors(path: Path) -> bool:
    """Whether an expression may read tensors, or at least their layout."""
    if path[0] == "tensors":
        return path[2:3] == ("init",)
    if path[0] in ("derive", "work"):
        return path != ("work", "roof")
    return not {"args", "grid", "block", "shared_bytes", "seed"}.isdisjoint(path[2:])


def _takes_text(path: Path) -> bool:
    """Whether text may stand in an expression: not where a size, a share or a dtype is wanted."""
    if path[0] == "tensors":
        return path[2:3] == ("init",)
    return path[0] in ("derive", "assert", "skip") or not {"args", "template"}.isdisjoint(path[2:])


def dtype_hint(word: str) -> str:
    """Which dtype a word was meant to be."""
    close = closest(word, DTYPES) or _OTHER_NAMES.get(word.lower())
    return f"did you mean '{close}'?" if close else f"the dtypes are: {', '.join(DTYPES)}"


def collect_names(workload: Workload, problems: Problems) -> Names:
    """The names of a workload; notes those that are taken twice or that nobody may take."""
    names = Names(tensors=frozenset(tensor.name for tensor in workload.tensors))
    for name, what, path in _definitions(workload):
        if name in names.defined:
            other, _ = names.defined[name]
            problems.add(
                "TB024",
                path,
                f"'{name}' is already {other}",
                at="key",
                hint="all names share one space; rename one of them",
            )
            continue
        names.defined[name] = (what, path)
        reason = _reserved(name, what)
        if reason:
            problems.add("TB024", path, f"'{name}' cannot name {what}: {reason}", at="key")
    return names


def _definitions(workload: Workload) -> Iterator[tuple[str, str, Path]]:
    """Every name that the workload defines, with what it is and where."""
    for name, _ in workload.params:
        yield name, "a param", ("params", name)
    for axis, points in workload.matrix:
        for name, _ in points[0]:
            path: Path = ("matrix", axis) if name == axis else ("matrix", axis, 0, name)
            yield name, "an axis", path
    if not workload.matrix and workload.cases:
        for name, _ in workload.cases[0]:
            yield name, "a name of the cases", ("case", 0, name)
    for name, _ in workload.derive:
        yield name, "a derived name", ("derive", name)
    for tensor in workload.tensors:
        yield tensor.name, "a tensor", tensor.path


def _reserved(name: str, what: str) -> str:
    """Why a name cannot be taken; empty if it can."""
    if iskeyword(name):
        return "it is a keyword of Python"
    if name in FUNCTIONS:
        return "it is a function of the language"
    if name in DTYPES:
        return "it is a dtype"
    if name in RESERVED:
        return "it is a name of the language"
    if what == "a tensor" and name in HARNESS_NAMES:
        return "the harness has a variable of that name"
    return ""


def check_expressions(
    workload: Workload,
    names: Names,
    grid_names: dict[Path, frozenset[str] | None],
    problems: Problems,
) -> None:
    """Note every name that an expression reads and nothing defines.

    Args:
        workload: as written.
        names: of the workload.
        grid_names: for each launch that a tuner may set constants of, the parameters of its kernel;
            `None` where they cannot be read, so that any name may be one.
        problems: where they are noted.
    """
    for path, expression in expressions(workload):
        extra: frozenset[str] | None = frozenset()
        if "grid" in path:
            extra = grid_names.get(path[: path.index("grid")], frozenset())
        for name in expression.names:
            if name in names or extra is None or name in extra:
                continue
            start = _offset(expression, name)
            hint = names.hint(name, path, extra)
            problems.add("TB021", path, f"unknown name '{name}'", hint=hint, span=start)


def expressions(workload: Workload) -> Iterator[tuple[Path, Expression]]:
    """Every expression of the workload with its place."""
    for i, condition in enumerate(workload.asserts):
        yield ("assert", i), condition
    for skip in workload.skips:
        yield (*skip.path, "when"), skip.when
    for name, argument in workload.derive:
        yield from _within(argument, ("derive", name))
    tensors = {tensor.name: tensor for tensor in workload.tensors}
    for tensor in workload.tensors:
        source = tensors.get(tensor.like or "")
        for key in ("dtype", "shape", "strides"):
            written = getattr(tensor, key)
            if source is None or written != getattr(source, key):  # what `like` copied stands there
                yield from _within(written, (*tensor.path, key))
        yield from _within(tensor.offset, (*tensor.path, "offset"))
        yield from _within(tensor.permute, (*tensor.path, "permute"))
        for name, argument in tensor.init.parameters if tensor.init else ():
            yield from _within(argument, (*tensor.path, "init", name))
    for init in workload.inits:
        yield from _of_function(init)
    for implementation in (*workload.kernels, *workload.references):
        yield from _of_implementation(implementation)
    yield from _of_check(workload)
    for key in ("flops", "bytes", "roof"):
        yield from _within(getattr(workload.work, key), ("work", key))
    yield from _within(workload.gate.slower_than, ("gate", "slower_than"))
    yield from _within(workload.requires.memory, ("requires", "memory"))
    if workload.ranks is not None:
        yield from _within(workload.ranks.world_size, ("ranks", "world_size"))
        yield from _of_function(workload.ranks.prepare)


def _of_check(workload: Workload) -> Iterator[tuple[Path, Expression]]:
    """The expressions of `[check]`."""
    check = workload.check
    yield from _of_function(check.oracle)
    yield from _within(check.grad_seed, ("check", "oracle", "grad", "seed"))
    for output in check.outputs:
        for key in ("rtol", "atol", "matched", "relative_l2", "cosine"):
            yield from _within(getattr(output, key), (*output.path, key))
        yield from _of_function(output.through)


def _of_implementation(implementation: Implementation) -> Iterator[tuple[Path, Expression]]:
    """The expressions of a kernel or reference."""
    for step in implementation.steps:
        yield from _of_arguments(step.args, (*step.path, "args"))
        for key, value in step.options:
            form = KINDS[step.kind].options[key].form
            if form in ("expr", "exprs"):
                yield from _within(value, (*step.path, key))  # type: ignore[arg-type]  # by its form
            elif form == "grad":
                seed = value[1][1]  # type: ignore[index]  # as build made it
                yield from _within(seed, (*step.path, key, "seed"))
    yield from _of_function(implementation.context)
    path = (*implementation.path, "requires", "memory")
    yield from _within(implementation.requires.memory, path)
    yield from _within(implementation.looser, (*implementation.path, "looser"))


def _of_function(function: Function | None) -> Iterator[tuple[Path, Expression]]:
    if function is not None:
        yield from _of_arguments(function.args, (*function.path, "args"))


def _of_arguments(args: Arguments, path: Path) -> Iterator[tuple[Path, Expression]]:
    yield from _within(args.positional, path)
    for name, argument in args.named:
        yield from _within(argument, (*path, name))


def _within(argument: Argument | None, path: Path) -> Iterator[tuple[Path, Expression]]:
    """The expressions in an argument."""
    if isinstance(argument, Expression):
        yield path, argument
    elif isinstance(argument, tuple):
        for i, item in enumerate(argument):
            yield from _within(item, (*path, i))


def names_in(*arguments: Argument | Function | Arguments | None) -> set[str]:
    """The names that arguments read."""
    found: set[str] = set()
    for argument in arguments:
        if isinstance(argument, Expression):
            found.update(argument.names)
        elif isinstance(argument, tuple):
            found |= names_in(*argument)
        elif isinstance(argument, Function):
            found |= names_in(argument.args)
        elif isinstance(argument, Arguments):
            found |= names_in(argument.positional, *(value for _, value in argument.named))
    return found


def reached(names: set[str], workload: Workload) -> set[str]:
    """Names, and those that the derived names among them read."""
    derive = dict(workload.derive)
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(names_in(derive.get(name)))
    return found


def option_names(implementation: Implementation) -> set[str]:
    """The names that the options of an implementation's launches read."""
    return {name for path, e in _of_implementation(implementation) for name in e.names if path}


def _offset(expression: Expression, name: str) -> tuple[int, int] | None:
    """Where a name first stands in an expression."""
    import ast

    from tirbench.expression.parse import span

    nodes: Iterable[ast.AST] = ast.walk(expression.tree)
    for node in nodes:
        if isinstance(node, ast.Name) and node.id == name:
            return span(node, expression.text)
    return None
