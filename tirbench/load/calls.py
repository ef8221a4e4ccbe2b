"""Hold the arguments of a launch against the signature of what it launches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tirbench.diagnostics import closest, did_you_mean
from tirbench.load.kinds import KINDS
from tirbench.load.names import names_in

if TYPE_CHECKING:
    from tirbench.diagnostics import Problems
    from tirbench.load.names import Names
    from tirbench.load.signatures import Definition, Signature
    from tirbench.model import Function, Launch

_KERNEL_DECORATORS: Final = frozenset({"jit", "autotune", "heuristics"})


def check_call(call: Launch | Function, definition: Definition, problems: Problems) -> None:
    """A Python function takes the arguments it is given."""
    if definition.signature is not None:
        _check_arguments(call, definition.signature, frozenset(), problems)


def check_tirx(launch: Launch, definition: Definition, problems: Problems) -> None:
    """A TIRx function takes the arguments it is given."""
    if definition.signature is not None and not launch.args.positional:
        _check_arguments(launch, definition.signature, frozenset(), problems)


def check_triton(
    launch: Launch, definition: Definition, names: Names, problems: Problems
) -> frozenset[str] | None:
    """A Triton kernel takes the arguments it is given, and no tuner sets one of them.

    Returns:
        What its grid may name besides the workload's own names; `None` if that cannot be read.
    """
    target = (*launch.path, "target")
    if definition.function and not _KERNEL_DECORATORS & set(definition.decorators):
        name = launch.target.rpartition(":")[2]
        problems.add(
            "TB051", target, f"'{name}' is not a Triton kernel", hint="decorate it: @triton.jit"
        )
        return None
    signature = definition.signature
    tuned = dict(definition.tuned)
    options = KINDS["triton"].options.keys()
    parameters = frozenset(signature.positional) | signature.by_name if signature else frozenset()
    for name, _ in launch.args.named:
        path = (*launch.path, "args", name)
        if name in options and name not in parameters:
            message = f"'{name}' is a launch option, not an argument of the kernel"
            hint = f"write {name} = … beside args, not inside"
            problems.add("TB054", path, message, hint=hint, at="key")
        elif name in tuned:
            message = f"'{name}' is set by @triton.{tuned[name]}"
            problems.add("TB052", path, message, hint="leave it out of args", at="key")
    if "autotune" in definition.decorators:
        for key in ("num_warps", "num_stages", "num_ctas", "maxnreg"):
            if key in dict(launch.options):
                message = f"'{key}' is chosen by @triton.autotune"
                problems.add("TB054", (*launch.path, key), message, hint="leave it out", at="key")
    if signature is None:
        return None
    free = frozenset(tuned) | (
        frozenset(signature.required) if definition.tuned_unreadably else frozenset()
    )
    _check_arguments(launch, signature, free, problems, ignored=frozenset(options))
    _check_grid_names(launch, frozenset(tuned), names, problems)
    return parameters


def _check_grid_names(
    launch: Launch, tuned: frozenset[str], names: Names, problems: Problems
) -> None:
    """A constant that a tuner sets is not also a name of the workload: a grid could mean either."""
    for name in sorted(names_in(dict(launch.options).get("grid")) & tuned):  # type: ignore[arg-type]  # a tuple of arguments
        if name in names.defined:
            what, _ = names.defined[name]
            message = (
                f"'{name}' is {what} and a constant that a tuner sets; the grid could mean either"
            )
            problems.add("TB055", (*launch.path, "grid"), message, hint="rename one of them")


def _check_arguments(
    call: Launch | Function,
    signature: Signature,
    free: frozenset[str],
    problems: Problems,
    ignored: frozenset[str] = frozenset(),
) -> None:
    """Arguments against parameters: none unknown, none twice, none missing.

    Args:
        call: what is called.
        signature: of the function.
        free: parameters that something else may set.
        problems: where problems are noted.
        ignored: names that are already noted if they are wrong.
    """
    path, args = (*call.path, "args"), call.args
    function = call.target.rpartition(":")[2]
    known = signature.by_name | set(signature.positional)
    number, most = len(args.positional), len(signature.positional)
    if number > most and not signature.open_positional and "omit" not in names_in(args.positional):
        message = f"'{function}' takes {most} positional arguments, got {number}"
        hint = f"its parameters: {', '.join(signature.positional)}"
        problems.add("TB052", (*path, most), message, hint=hint)
    meant: set[str | None] = set()
    for name, _ in args.named:
        if name not in signature.by_name and not signature.open_named and name not in ignored:
            left = known - {n for n, _ in args.named} - free
            meant.add(closest(name, left))
            hint = did_you_mean(name, left, "not given are")
            message = f"'{function}' takes no argument '{name}'"
            problems.add("TB052", (*path, name), message, hint=hint, at="key")
    if args.positional and "omit" in names_in(args.positional):
        return
    given = {*signature.positional[:number], *(name for name, _ in args.named), *meant}
    missing = [name for name in signature.required if name not in given and name not in free]
    if missing:
        listed = ", ".join(f"'{name}'" for name in missing)
        plural = "s" * (len(missing) > 1)
        message = f"'{function}' needs the argument{plural} {listed}"
        written = " and ".join(f"{name} = …" for name in missing)
        by_name = not args.positional and (args.named or not signature.positional)
        hint = f"add {written} to args" if by_name else f"add {listed} to args"
        problems.add("TB053", path, message, hint=hint)
