"""Whether what is right is said of everything that is written, and of nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tirbench.diagnostics import did_you_mean
from tirbench.load.names import option_names, reached
from tirbench.load.tensors import known_tensor

if TYPE_CHECKING:
    from tirbench.diagnostics import Problems
    from tirbench.model import Implementation, OutputCheck, Path, Tensor, Workload

_NUMBERS = ("rtol", "atol", "matched", "relative_l2", "cosine")


def check_checks(workload: Workload, problems: Problems) -> None:
    """Note what is wrong with returns, oracle, outputs and gate."""
    tensors = {tensor.name: tensor for tensor in workload.tensors}
    references = [reference.name for reference in workload.references]
    for kernel in workload.kernels:
        if kernel.name in references:
            message = f"'{kernel.name}' is a kernel and a reference"
            problems.add("TB024", ("references", kernel.name), message, at="key")
    if workload.gate.reference is not None:
        _known_reference(workload.gate.reference, ("gate", "reference"), references, problems)
    for implementation in (*workload.kernels, *workload.references):
        _check_returns(implementation.returns, (*implementation.path, "returns"), tensors, problems)
        _check_gradient(implementation, tensors, problems)
    _check_oracle(workload, tensors, problems)
    for output in workload.check.outputs:
        _check_output(output, workload, tensors, references, problems)
    if workload.check.oracle is not None and workload.check.disabled is None:
        _check_complete(workload, tensors, problems)


def _known_reference(name: str, path: Path, references: list[str], problems: Problems) -> None:
    """Note a reference that does not exist."""
    if name not in references:
        hint = did_you_mean(name, references, "the references are")
        problems.add("TB056", path, f"no reference is named '{name}'", hint=hint)


def _check_returns(
    returns: tuple[str, ...], path: Path, tensors: dict[str, Tensor], problems: Problems
) -> None:
    """What is returned is bound to tensors that are written, each once."""
    seen: set[str] = set()
    for name in returns:
        if name == "_" or not known_tensor(name, path, tensors, problems):
            continue
        role = tensors[name].role
        if role in ("in", "scratch"):
            message = (
                f"'{name}' has the role {role}; what is returned is bound to an out or inout tensor"
            )
            problems.add("TB046", path, message)
        if name in seen:
            problems.add("TB046", path, f"'{name}' is returned twice")
        seen.add(name)


def _check_gradient(
    implementation: Implementation, tensors: dict[str, Tensor], problems: Problems
) -> None:
    """A timed backward pass differentiates tensors and returns as many gradients."""
    for step in implementation.steps:
        for key, value in step.options:
            if key != "grad":
                continue
            of: tuple[str, ...] = value[0][1]  # type: ignore[index]  # as build made it
            for name in of:
                known_tensor(name, (*step.path, "grad", "of"), tensors, problems)
            if len(implementation.returns) != len(of):
                number = len(implementation.returns)
                message = f"{len(of)} gradients are taken, but returns names {number}"
                hint = "name the tensor of each gradient in order, '_' for one that is ignored"
                problems.add("TB060", (*step.path, "grad"), message, hint=hint)


def _check_oracle(workload: Workload, tensors: dict[str, Tensor], problems: Problems) -> None:
    """There is an oracle, or a reason why there is none."""
    check = workload.check
    if check.oracle is None:
        if check.disabled is None:
            hint = '[check.oracle] says what is right; without one: disabled = "reason"'
            problems.add("TB060", ("check",), "there is no oracle", hint=hint, at="key")
        return
    _check_returns(check.oracle.returns, ("check", "oracle", "returns"), tensors, problems)
    for name in check.grad:
        known_tensor(name, ("check", "oracle", "grad", "of"), tensors, problems)
    if check.grad and len(check.oracle.returns) != len(check.grad):
        message = (
            f"{len(check.grad)} gradients are taken, but returns names {len(check.oracle.returns)}"
        )
        problems.add("TB060", ("check", "oracle", "grad"), message)


def _check_output(
    output: OutputCheck,
    workload: Workload,
    tensors: dict[str, Tensor],
    references: list[str],
    problems: Problems,
) -> None:
    """One rule: of a tensor that is written and that the oracle knows, and free of contradictions."""
    path = output.path
    if output.tensor not in tensors:
        hint = did_you_mean(output.tensor, tensors, "the tensors are")
        problems.add("TB021", path, f"no tensor is named '{output.tensor}'", hint=hint, at="key")
        return
    role = tensors[output.tensor].role
    if role in ("in", "scratch"):
        message = f"'{output.tensor}' has the role {role}; only out and inout tensors are compared"
        problems.add("TB046", path, message, at="key")
        return
    for key in ("rows", "lengths", "mask"):
        name = getattr(output, key)
        if name is not None:
            known_tensor(name, (*path, key), tensors, problems)
    if output.not_worse_than is not None:
        _known_reference(output.not_worse_than, (*path, "not_worse_than"), references, problems)
    _check_contradictions(output, problems)
    oracle = workload.check.oracle
    known = oracle is not None and output.tensor in oracle.returns
    if output.unchecked is None and oracle is not None and not known:
        message = f"the oracle does not return '{output.tensor}'"
        hint = 'add it to its returns, or say why not: unchecked = "…"'
        problems.add("TB060", path, message, hint=hint, at="key")


def _check_contradictions(output: OutputCheck, problems: Problems) -> None:
    """Conditions that cannot be asked for together."""
    path = output.path
    given = [key for key in _NUMBERS if getattr(output, key) is not None]
    if output.exact and given:
        message = f"'exact' and '{given[0]}' exclude each other"
        problems.add("TB017", (*path, given[0]), message, at="key")
    regions = [key for key in ("rows", "lengths", "mask") if getattr(output, key) is not None]
    for key in regions[1:]:
        message = f"'{regions[0]}' and '{key}' exclude each other"
        problems.add("TB017", (*path, key), message, at="key")
    if output.unchecked is not None:
        rules = [*given, *regions, *(["exact"] if output.exact else [])]
        rules += ["through"] if output.through else []
        rules += ["not_worse_than"] if output.not_worse_than else []
        for key in rules:
            message = f"'unchecked' and '{key}' exclude each other"
            problems.add("TB017", (*path, key), message, at="key")


def _check_complete(workload: Workload, tensors: dict[str, Tensor], problems: Problems) -> None:
    """Every tensor that is written is compared, or it is said why not."""
    oracle = workload.check.oracle
    returned = set(oracle.returns) if oracle else set()
    stated = {output.tensor for output in workload.check.outputs}
    roots = {_root(name, tensors) for name in returned | stated if name in tensors}
    taken = {
        item.name: _touched(item, workload, tensors)
        for item in (*workload.kernels, *workload.references)
    }
    for tensor in workload.tensors:
        written = tensor.role in ("out", "inout") and tensor.view is None
        if written and tensor.name not in roots and not problems.has(tensor.path):
            users = [name for name, roots_taken in taken.items() if tensor.name in roots_taken]
            if users:
                message = (
                    f"'{tensor.name}' is written by '{users[0]}', but nothing says what is right"
                )
                hint = (
                    "return it from the oracle, or say why not: "
                    f'[check.outputs.{tensor.name}] unchecked = "…"'
                )
                problems.add("TB060", tensor.path, message, hint=hint, at="key")
    unchecked = {output.tensor for output in workload.check.outputs if output.unchecked}
    checked = {name for name in returned - unchecked if name in tensors}
    for kernel in workload.kernels:
        for name in sorted(checked):
            if _root(name, tensors) not in taken[kernel.name]:
                message = f"'{kernel.name}' neither takes nor returns '{name}', which is checked"
                hint = "pass it as an argument, or name it in returns"
                problems.add("TB060", kernel.path, message, hint=hint, at="key")
    for reference in workload.references:
        roots_checked = {_root(name, tensors) for name in checked}
        told = reference.unchecked or problems.has((*reference.path, "returns"))
        if checked and not told and not roots_checked & taken[reference.name]:
            message = f"'{reference.name}' neither takes nor returns a tensor that is checked"
            hint = 'name what it returns, or say why it is not compared: unchecked = "…"'
            problems.add("TB060", reference.path, message, hint=hint, at="key")


def _touched(
    implementation: Implementation, workload: Workload, tensors: dict[str, Tensor]
) -> set[str]:
    """The tensors, by the owner of their memory, that an implementation takes or returns."""
    names = option_names(implementation) | {*implementation.returns}
    names = reached(names, workload)
    return {_root(name, tensors) for name in names if name in tensors}


def _root(name: str, tensors: dict[str, Tensor]) -> str:
    """The tensor that owns the memory."""
    seen: set[str] = set()
    while name not in seen:
        seen.add(name)
        base = tensors[name].view
        if base is None or base not in tensors:
            break
        name = base
    return name
