"""What a case uses: which tensors, in what role, and which code."""

from __future__ import annotations

from tirbench.launch.emit import names_in
from tirbench.model import BoundImplementation, Case, Workload
from tirbench.values import Code, Dtype


def outputs_of(case: Case, item: BoundImplementation) -> tuple[str, ...] | None:
    """Which checked tensors a reference computes, where it is not all of them.

    It computes what it returns and what it is given: a reference without the log-sum-exp among its
    arguments and values cannot be blamed for it.
    """
    bases = {tensor.name: tensor.view for tensor in case.tensors}
    given = set(item.returns) | set(names_in(tuple(step.args for step in item.steps)))
    given |= {base for name in given if (base := bases.get(name)) is not None}
    every = tuple(output.tensor for output in case.check.outputs)
    read = {
        o.tensor: set(names_in(o.through.args)) for o in case.check.outputs if o.through is not None
    }
    writable = {tensor.name for tensor in case.tensors if tensor.role in ("out", "inout")}
    touched = tuple(
        name for name in every if name in given or (name in read and read[name] & writable <= given)
    )
    return None if touched == every else touched


def temporary(case: Case) -> set[str]:
    """Tensors that only initialisers read: they are freed before anything runs."""
    used = set(names_in(tuple(item.context.args for item in case.implementations if item.context)))
    if case.prepare is not None:
        used |= set(names_in(case.prepare.args))
    for item in case.implementations:
        used |= set(item.returns)
        for step in item.steps:
            used |= set(names_in(step.args)) | set(names_in(tuple(v for _, v in step.options)))
    if case.check.oracle is not None:
        used |= set(names_in(case.check.oracle.args)) | set(case.check.oracle.returns)
        used |= {*case.check.grad, *names_in(case.check.grad_seed)}
    for output in case.check.outputs:
        used |= {output.tensor, output.rows or "", output.lengths or "", output.mask or ""}
        used |= set(names_in(output.through.args)) if output.through is not None else set()
    used |= set(names_in((case.work.flops, case.work.bytes)))
    bases = {tensor.name: tensor.view for tensor in case.tensors}
    for name in list(used):
        while (base := bases.get(name)) is not None:
            used.add(base)
            name = base  # noqa: PLW2901 - walks to the tensor that owns the memory
    read = {name for function in case.inits for name in names_in(function.args)}
    return {
        tensor.name for tensor in case.tensors if tensor.name in read - used and tensor.view is None
    }


def code_of(case: Case) -> list[str]:
    """The text of every piece of code in a case."""
    found: list[str] = []

    def visit(item: object) -> None:
        if isinstance(item, Code):
            found.append(item.text)
        elif isinstance(item, tuple | list | frozenset):
            for inner in item:
                visit(inner)
        elif hasattr(item, "__dataclass_fields__") and not isinstance(item, Workload):
            for name in item.__dataclass_fields__:
                visit(getattr(item, name))

    visit(case)
    return found


def passes_dtype_to_triton(case: Case) -> bool:
    """Whether an argument of a Triton kernel is a dtype, which is one of `triton.language` there."""

    def holds(value: object) -> bool:
        return isinstance(value, Dtype) or (isinstance(value, tuple) and any(map(holds, value)))

    return any(
        holds((*step.args.positional, *(value for _, value in step.args.named)))
        for item in case.implementations
        for step in item.steps
        if step.kind == "triton"
    )
