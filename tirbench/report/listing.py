"""What a workload says once it is expanded: ids for programs, whole cases for reviewers."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from tirbench import codec
from tirbench.report import text
from tirbench.values import Bound, Code, CScalar, Dtype, Omit, TensorRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tirbench.codec import Json
    from tirbench.model import (
        BoundArguments,
        BoundFunction,
        BoundImplementation,
        BoundInit,
        BoundLaunch,
        BoundOutput,
        BoundTensor,
        Case,
    )


def list_text(cases: Iterable[Case]) -> str:
    """A line for each case: its key, the lists that select it, and why it is skipped if it is."""
    rows = [(case.key, ", ".join(sorted(case.selected_by)), case.skipped or "") for case in cases]
    width = max((len(text.plain(key)) for key, _, _ in rows), default=0)
    lines = []
    for key, selected, skipped in rows:
        said = f"  [{selected}]" if selected else ""
        why = f"  skipped: {skipped}" if skipped else ""
        lines.append(text.plain(f"{key:<{width}}{said}{why}").rstrip())
    return "".join(f"{line}\n" for line in lines)


def list_json(cases: Iterable[Case]) -> str:
    """The cases for programs: key, workload, file, id, values, lists, implementations."""
    data: list[Json] = [
        {
            "key": case.key,
            "workload": case.workload.name,
            "file": case.workload.source.path,
            "id": case.id,
            "values": {name: codec.dump(value) for name, value in case.values},
            "selected_by": [*sorted(case.selected_by)],
            "skipped": case.skipped,
            "implementations": [
                {"name": item.name, "role": item.role, "skipped": item.skipped}
                for item in case.implementations
            ],
        }
        for case in cases
    ]
    return json.dumps(data, allow_nan=False, indent=2) + "\n"


def show(case: Case) -> str:
    """A case as a reviewer reads it: what is computed, by whom, against what, and how much work it is.

    Shapes, values and arguments are those of the case; what only the device or the contents of tensors
    can tell stands as the code that will tell it.
    """
    lines = [case.key, f"  {case.workload.description}"]
    if case.skipped:
        lines.append(f"  skipped: {case.skipped}")
    if case.selected_by:
        lines.append(f"  selected by {', '.join(sorted(case.selected_by))}")
    bound = {**dict(case.workload.params), **dict(case.values)}
    values = [f"{name} = {shown(value)}" for name, value in bound.items()]
    lines += ["", "  values", *_indented(values or ["none"])]
    lines += ["", f"  tensors ({_total(case.tensors)})", *_indented(_tensors(case.tensors))]
    for function in case.inits:
        lines.append(f"    {', '.join(function.returns)} = {_call(function)}")
    for implementation in case.implementations:
        lines += ["", *_implementation(implementation)]
    lines += ["", "  check", *_indented(_check(case))]
    lines += ["", "  work", *_indented(_work(case))]
    if case.world_size is not None:
        lines += ["", f"  ranks: {case.world_size}"]
    if case.prepare is not None:
        lines.append(f"    before every launch, untimed: {_call(case.prepare)}")
    return "\n".join(text.plain(line).rstrip() for line in lines) + "\n"


def shown(value: Bound) -> str:
    """A bound value as a reviewer reads it."""
    match value:
        case TensorRef(name=name):
            return name
        case CScalar(ctype=ctype, value=inner):
            return f"({ctype}) {shown(inner)}"
        case Code(text=code):
            return f"⟨{code}⟩"
        case Dtype():
            return str(value)
        case Omit():
            return "omit"
        case tuple():
            return f"[{', '.join(shown(item) for item in value)}]"
    return repr(value)


# --- Tensors --------------------------------------------------------------------------------------


def _tensors(tensors: Sequence[BoundTensor]) -> list[str]:
    rows = [
        (tensor.name, tensor.role, str(tensor.dtype), shown(tensor.shape), _extent(tensor), note)
        for tensor in tensors
        for note in [", ".join(_tensor_notes(tensor))]
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(5)] if rows else []
    return [
        "  ".join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[5]])
        for row in rows
    ]


def _tensor_notes(tensor: BoundTensor) -> Iterator[str]:
    if tensor.view is not None:
        yield f"view of {tensor.view}"
    if tensor.permute is not None:
        yield f"permute {shown(tensor.permute)}"
    if tensor.strides is not None:
        yield f"strides {shown(tensor.strides)}"
    if tensor.offset != 0:
        yield f"offset {shown(tensor.offset)}"
    if tensor.init is not None:
        yield _init(tensor.init)
    if tensor.reset == "restore":
        yield "restored before every call, untimed"
    if tensor.memory != "device":
        yield f"{tensor.memory} memory"
    if tensor.replicated:
        yield "the same on every rank"


def _init(init: BoundInit) -> str:
    if not init.parameters:
        return init.kind
    return f"{init.kind}({', '.join(f'{name}={shown(v)}' for name, v in init.parameters)})"


def _bytes(tensor: BoundTensor) -> int | None:
    """Bytes that the elements of a tensor span, as far as a case can tell; a view owns none."""
    if tensor.view is not None:
        return 0
    sizes = [size for size in tensor.shape if isinstance(size, int)]
    if len(sizes) != len(tensor.shape):
        return None
    if tensor.strides is None or 0 in sizes:
        return math.prod(sizes) * tensor.dtype.itemsize
    strides = [stride for stride in tensor.strides if isinstance(stride, int)]
    if len(strides) != len(sizes):
        return None
    span = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    return span * tensor.dtype.itemsize


def _extent(tensor: BoundTensor) -> str:
    if tensor.view is not None:
        return "–"
    count = _bytes(tensor)
    return "?" if count is None else text.size(count)


def _total(tensors: Sequence[BoundTensor]) -> str:
    counts = [_bytes(tensor) for tensor in tensors]
    known = sum(count for count in counts if count is not None)
    return text.size(known) + (" and what the device decides" if None in counts else "")


# --- Calls ----------------------------------------------------------------------------------------


def _implementation(implementation: BoundImplementation) -> list[str]:
    lines = [f"  {implementation.role} {implementation.name}"]
    if implementation.skipped:
        lines.append(f"    skipped: {implementation.skipped}")
    if implementation.unchecked:
        lines.append(f"    not checked: {implementation.unchecked}")
    if implementation.looser is not None:
        because = f", because {implementation.reason}" if implementation.reason else ""
        lines.append(f"    held to {implementation.looser:g} times the tolerance{because}")
    requires = implementation.requires
    needs = [requires.device, requires.capability, *requires.packages]
    if any(needs):
        lines.append(f"    needs {', '.join(need for need in needs if need)}")
    if implementation.context is not None:
        lines.append(f"    within {_call(implementation.context)}")
    for step in implementation.steps:
        lines += _indented(_step(step))
    if implementation.returns:
        lines.append(f"    returns {', '.join(implementation.returns)}")
    return lines


def _step(launch: BoundLaunch) -> list[str]:
    positional = ", ".join(map(shown, launch.args.positional))
    lines = [f"{launch.kind} {launch.target}" + (f"({positional})" if positional else "")]
    width = max((len(name) for name, _ in launch.args.named), default=0)
    lines += [f"  {name:<{width}} = {shown(value)}" for name, value in launch.args.named]
    lines += [
        f"  {name}: {value if isinstance(value, str) else shown(value)}"
        for name, value in launch.options
    ]
    return lines


def _call(function: BoundFunction) -> str:
    return f"{function.target}({_arguments(function.args)})"


def _arguments(arguments: BoundArguments) -> str:
    named = [f"{name}={shown(value)}" for name, value in arguments.named]
    return ", ".join([*map(shown, arguments.positional), *named])


# --- Check and work -------------------------------------------------------------------------------


def _check(case: Case) -> Iterator[str]:
    check = case.check
    if check.disabled is not None:
        yield f"disabled: {check.disabled}"
    if check.oracle is not None:
        returns = ", ".join(check.oracle.returns)
        yield f"oracle {returns} = {_call(check.oracle)} in {check.dtype}"
    if check.grad:
        yield f"gradients of {', '.join(check.grad)}"
    for output in check.outputs:
        yield f"{output.tensor}: {', '.join(_rule(output))}"


def _rule(output: BoundOutput) -> Iterator[str]:
    numbers = ("rtol", "atol", "matched", "relative_l2", "cosine")
    given = [
        f"{name} {getattr(output, name):g}" for name in numbers if getattr(output, name) is not None
    ]
    if output.unchecked is not None:
        yield f"not checked: {output.unchecked}"
    elif output.exact:
        yield "exact"
    else:
        yield from given or ["the default tolerance of its dtype"]
    if output.not_worse_than is not None:
        yield f"not worse than {output.not_worse_than}"
    for name in ("rows", "lengths", "mask"):
        if (region := getattr(output, name)) is not None:
            yield f"{name} {region}"
    if output.through is not None:
        yield f"through {_call(output.through)}"
    if output.allow_nan:
        yield "NaN allowed"
    if output.allow_inf:
        yield "infinities allowed"
    if output.reason is not None:
        yield f"because {output.reason}"


def _work(case: Case) -> Iterator[str]:
    work = case.work
    if work.flops is None and work.bytes is None:
        yield "not said: no rates and no distance to the roof"
    if isinstance(work.bytes, int | float):
        rounded = f" ({text.size(int(work.bytes))})" if work.bytes >= 1024 else ""
        yield f"bytes {work.bytes}{rounded}"
    elif work.bytes is not None:
        yield f"bytes {shown(work.bytes)}"
    if work.flops is not None:
        yield f"flops {shown(work.flops)}"
    if work.roof is not None:
        yield f"compared with the matrix product rate of {work.roof}"
    yield f"slower by more than {100 * case.slower_than:g} % is a regression"


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]
