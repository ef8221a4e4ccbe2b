"""The parts of a case as the texts that the template places."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tirbench.diagnostics import locations
from tirbench.launch import Step, kind_of
from tirbench.launch.emit import (
    Source,
    emit,
    emit_arguments,
    emit_tuple,
    literal,
    names_in,
    wrap,
)
from tirbench.model import (
    BoundCheck,
    BoundFunction,
    BoundImplementation,
    BoundOutput,
    BoundTensor,
    Case,
    Path,
    Requirements,
    TimerChoice,
    Workload,
)
from tirbench.render.layout import free, function_of, placed, targets, variable
from tirbench.render.use import code_of, outputs_of, passes_dtype_to_triton, temporary
from tirbench.values import Bound, Code


@dataclass(frozen=True, slots=True)
class Writer:
    """Turns the parts of a case into the texts that the template places."""

    workload: Workload

    def program(self, cases: Sequence[Case]) -> Mapping[str, Any]:
        """The head of the program: imports and what holds for every case."""
        texts = [text for case in cases for text in code_of(case)]
        return {
            "file": Source(f"{self.workload.name}.py"),
            "toml": Source(f"{self.workload.name}.toml"),
            "name": self.workload.name,
            "workload": self.workload.source.path,
            "description": self.workload.description,
            "seed": self.workload.seed,
            "timing": _timing(self.workload.timer),
            "several_ranks": any((case.world_size or 1) > 1 for case in cases),
            "uses_functions": any(re.search(r"\bf\.", text) for text in texts),
            "uses_triton_dtypes": any(map(passes_dtype_to_triton, cases)),
        }

    def case(self, case: Case) -> Mapping[str, Any]:
        """One function of the program."""
        freed = temporary(case)
        head = [literal(case.id), literal(dict(case.values))]
        if case.world_size is not None:
            head.append(Source(f"world_size={literal(case.world_size)}"))
        kept = [tensor.name for tensor in case.tensors if tensor.name not in freed]
        return {
            "head": wrap("@program.case(", head, ")", 0),
            "function": function_of(case.id),
            "uses_device": any("device." in text for text in code_of(case)),
            "targets": targets(kept),
            "tensors": [self.tensor(tensor, tensor.name in freed) for tensor in case.tensors],
            "computed": [self.computed(function) for function in case.inits],
            "prepare": self.prepare(case),
            "implementations": [
                self.implementation(case, item)
                for item in case.implementations
                if item.skipped is None
            ],
            "oracle": self.oracle(case),
            "unchecked": case.check.disabled,
            "rules": [self.rule(output) for output in case.check.outputs],
            "work": self.work(case),
        }

    def place(self, path: Path) -> Source:
        """A comment that names the line of the TOML: the source map of the harness."""
        lines = _lines(self.workload.source.text)
        while path and path not in lines:
            path = path[:-1]
        return Source(f"# {self.workload.name}.toml:{lines.get(path, 1)}")

    def tensor(self, tensor: BoundTensor, freed: bool) -> Source:
        """One `tb.Tensor(…)`."""
        parts = [literal(tensor.name)]
        if tensor.role != "in":
            parts.append(Source(f"role={literal(tensor.role)}"))
        if tensor.view is not None:
            parts.append(Source(f"view={literal(tensor.view)}"))
        if tensor.permute is not None:
            parts.append(Source(f"permute={literal(tensor.permute)}"))
        else:
            parts.append(Source(f"shape={emit_tuple(tensor.shape)}"))
            parts.append(Source(f"dtype={emit(tensor.dtype)}"))
        if tensor.strides is not None and tensor.permute is None:
            parts.append(Source(f"strides={emit_tuple(tensor.strides)}"))
        if tensor.offset not in (0, None):
            parts.append(Source(f"offset={emit(tensor.offset)}"))
        if tensor.init is not None:
            parameters = ", ".join(f"{n}={_lazily(v)}" for n, v in tensor.init.parameters)
            parts.append(Source(f"init=tb.{tensor.init.kind}({parameters})"))
        usual = tensor.role == "inout" or (tensor.role == "scratch" and tensor.init is not None)
        if tensor.view is None and tensor.reset != ("restore" if usual else "none"):
            parts.append(Source(f"reset={literal(tensor.reset)}"))
        if tensor.memory != "device":
            parts.append(Source(f"memory={literal(tensor.memory)}"))
        if tensor.replicated:
            parts.append(Source("replicated=True"))
        if freed:
            parts.append(Source("temporary=True"))
        return placed(wrap("tb.Tensor(", parts, ")", 8), self.place(tensor.path), ",")

    def computed(self, function: BoundFunction) -> Source:
        """One `[[init]]`: which tensors, by which function, of what."""
        parts = (
            literal(function.returns),
            Source(f"case.load({literal(function.target)})"),
            _lambda(function),
        )
        return placed(wrap("tb.Computed(", parts, ")", 12), self.place(function.path), ",")

    def prepare(self, case: Case) -> Mapping[str, Source] | None:
        """The builder of what `[ranks]` has run before every launch."""
        if case.prepare is None:
            return None
        taken = {tensor.name for tensor in case.tensors}
        name = variable(case.prepare.target, taken)
        return {
            "head": placed("@case.prepare", self.place(case.prepare.path)),
            "function": Source(free("prepare", taken)),
            "load": Source(f"{name} = case.load({literal(case.prepare.target)})"),
            "call": wrap(f"return lambda: {name}(", emit_arguments(case.prepare.args), ")", 8),
        }

    def implementation(self, case: Case, item: BoundImplementation) -> Mapping[str, Any]:
        """One builder of a launch closure."""
        head = [literal(item.name)]
        if item.returns:
            head.append(Source(f"returns={literal(item.returns)}"))
        if item.role == "reference" and (touched := outputs_of(case, item)) is not None:
            head.append(Source(f"outputs={literal(touched)}"))
        if item.requires != Requirements():
            head.append(Source(f"requires={_requires(item.requires)}"))
        if item.unchecked is not None:
            head.append(Source(f"unchecked={literal(item.unchecked)}"))
        if item.looser is not None:
            head.append(Source(f"looser={literal(item.looser)}"))
        context = item.context and {
            "target": literal(item.context.target),
            "args": Source(", ".join(emit_arguments(item.context.args))),
        }
        taken = {tensor.name for tensor in case.tensors}
        several = len(item.steps) > 1
        # A sequence of launches is several lines of the TOML, one launch is that of its table.
        places = [self.place(step.path) if several else Source("") for step in item.steps]
        steps = list(zip(_steps(item, taken), places, strict=True))
        prepared = {step.name: (step, place) for step, place in reversed(steps)}
        return {
            "head": placed(wrap(f"@case.{item.role}(", head, ")", 4), self.place(item.path)),
            "function": Source(free(f"{item.role}_{item.name}", taken)),
            "context": context,
            "prepared": [*reversed(prepared.values())],  # once, where it is launched first
            "steps": steps,
            "closure": not several and kind_of(item.steps[0].kind).closure,
        }

    def oracle(self, case: Case) -> Mapping[str, Source] | None:
        """The oracle as a function of private copies of the tensors it reads."""
        check = case.check
        if check.oracle is None or check.disabled is not None:
            return None
        head = [Source(f"returns={literal(check.oracle.returns)}")]
        if check.dtype != "same":
            head.append(Source(f"dtype=torch.{check.dtype}"))
        parameters = dict.fromkeys((*names_in(check.oracle.args), *check.grad))
        parameters |= dict.fromkeys(names_in(check.grad_seed))
        name = variable(check.oracle.target, {tensor.name for tensor in case.tensors})
        call = wrap(f"return {name}(", emit_arguments(check.oracle.args), ")", 8)
        return {
            "head": placed(wrap("@case.oracle(", head, ")", 4), self.place(check.oracle.path)),
            "parameters": Source(", ".join(parameters)),
            "prepare": _prepared_oracle(name, check),
            "call": Source(f"{call}()") if check.grad else call,
        }

    def rule(self, output: BoundOutput) -> Source:
        """One `tb.Rule(…)`: only what the workload says."""
        parts = [literal(output.tensor)]
        names = (
            "exact",
            "rtol",
            "atol",
            "matched",
            "relative_l2",
            "cosine",
            "not_worse_than",
            "rows",
        )
        for name in (*names, "lengths", "mask", "allow_nan", "allow_inf", "unchecked"):
            value = getattr(output, name)
            if value is not None and value is not False:  # 0 is a tolerance like any other
                parts.append(Source(f"{name}={literal(value)}"))
        if output.through is not None:
            head = _lambda_head(output.through)
            call = ", ".join(emit_arguments(output.through.args))
            parts.append(
                Source(f"through={head}case.load({literal(output.through.target)})({call})")
            )
        return placed(wrap("tb.Rule(", parts, ")", 8), self.place(output.path), ",")

    def work(self, case: Case) -> Source:
        """Least work, evaluated once on the tensors where it depends on their contents."""
        parts = []
        for name in ("flops", "bytes"):
            bound: Bound = getattr(case.work, name)
            if bound is not None:
                lazily = "lambda: " if isinstance(bound, Code) else ""
                parts.append(Source(f"{name}={lazily}{emit(bound)}"))
        if case.work.roof is not None:
            parts.append(Source(f"roof={literal(str(case.work.roof))}"))
        if not parts:
            return Source("")
        return placed(wrap("case.work(", parts, ")", 4), self.place(("work",)))


def _timing(timer: TimerChoice) -> Source:
    """What the workload asks of the timer, where it is not the default."""
    given = [
        Source(f"{name}={literal(getattr(timer, name))}")
        for name in TimerChoice.__dataclass_fields__
        if getattr(timer, name) != getattr(TimerChoice(), name)
    ]
    return Source(", ".join(given))


def _steps(item: BoundImplementation, taken: set[str]) -> list[Step]:
    """The launches of an implementation; a prepared launch gets a variable of its own."""
    steps: list[Step] = []
    taken = set(taken)
    prepared: dict[tuple[str, str], Source] = {}
    for index, launch in enumerate(item.steps):
        kind = kind_of(launch.kind)
        name = variable(launch.target, taken)
        if launch.kind == "triton":  # the same kernel twice in a row of steps is one object
            name = prepared.setdefault((launch.kind, launch.target), name)
        taken.add(name)
        last = index == len(item.steps) - 1
        steps.append(
            Step(
                name=name,
                target=literal(launch.target),
                arguments=kind.arguments(launch),
                options=kind.options(launch),
                template=kind.template,
                prefix=Source("return " if last and kind.returns and item.returns else ""),
            )
        )
    return steps


def _prepared_oracle(name: Source, check: BoundCheck) -> Source:
    """The line that loads the oracle; its backward pass where gradients are what is checked."""
    assert check.oracle is not None  # noqa: S101 - asked by `oracle` alone
    load = f"case.load({literal(check.oracle.target)})"
    if not check.grad:
        return Source(f"{name} = {load}")
    of = "(" + ", ".join(check.grad) + ",)"
    parts = (load, f"of={of}", f"seed={emit(check.grad_seed)}")
    return wrap(f"{name} = case.backward(", parts, ")", 8)


def _lazily(bound: Bound) -> Source:
    """A parameter of an initialiser; a function of tensors where it reads their contents."""
    tensors = names_in(bound)
    return Source(f"lambda {', '.join(tensors)}: {emit(bound)}") if tensors else emit(bound)


def _lambda_head(function: BoundFunction) -> Source:
    names = ", ".join(names_in(function.args))
    return Source(f"lambda {names}: " if names else "lambda: ")


def _lambda(function: BoundFunction) -> Source:
    """The arguments of an `[[init]]` as a function of the tensors they read."""
    head = _lambda_head(function)
    if function.args.named:
        inner = ", ".join(f"{literal(name)}: {emit(value)}" for name, value in function.args.named)
        return Source(f"{head}{{{inner}}}")
    return Source(
        head + (emit_tuple(function.args.positional) if function.args.positional else "()")
    )


def _requires(requires: Requirements) -> Source:
    parts = [
        f"{name}={literal(value)}"
        for name in ("device", "capability", "memory", "packages")
        if (value := getattr(requires, name)) not in (None, ())
    ]
    return Source(f"tb.Requires({', '.join(parts)})")


@cache
def _lines(text: str) -> Mapping[Path, int]:
    return {path: position.line for path, position in locations(text).items()}
