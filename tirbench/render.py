"""Case → Harness: the Python program that launches a workload's cases.

Same input, same bytes: no date, host or absolute path enters. Values enter as literals; what is code was
written by the expression compiler. Python computes here, the templates only choose where text stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Final

from tirbench.diagnostics import locations
from tirbench.errors import UsageError
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
    BoundFunction,
    BoundImplementation,
    BoundOutput,
    BoundTensor,
    Case,
    Harness,
    Path,
    Requirements,
    TimerChoice,
    Workload,
)
from tirbench.values import Bound, Code

if TYPE_CHECKING:
    import jinja2

FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def render(workload: Workload, cases: Sequence[Case]) -> Harness:
    """Write the program of these cases.

    Args:
        workload: the workload they come from.
        cases: in the order in which they will stand; skipped cases are left out.

    Raises:
        UsageError: the file's name cannot stand in a program's comments.
    """
    if not FILE_NAME.fullmatch(workload.name):
        raise UsageError(
            f"{workload.source.path}: a workload's file name holds letters, digits, _ . and - only"
        )
    writer = Writer(workload)
    cases = [case for case in cases if case.skipped is None]
    views = [writer.case(case) for case in cases]
    text = (
        environment()
        .get_template("harness.py.jinja")
        .render(program=writer.program(cases), cases=views, wrap=_wrapper)
    )
    return Harness(
        name=f"{workload.name}.py",
        text=text,
        cases=tuple(case.id for case in cases),
        source_map=tuple(_source_map(text, f"{workload.name}.toml")),
    )


@cache
def environment() -> jinja2.Environment:
    """The Jinja environment of every template: undefined names are errors, values become literals."""
    import jinja2

    def finalize(value: object) -> str:
        return value if isinstance(value, Source) else literal(value)

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_templates()),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701 - Python is written here, where `finalize` makes every value a literal
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=finalize,
    )
    made.filters["written"] = Source  # for the output of a macro, which is source already
    return made


def _templates() -> FilePath:
    """The folder of the templates: inside the package in a wheel, beside it in a checkout or sdist."""
    package = FilePath(__file__).parent
    inside = package / "templates"
    return inside if inside.is_dir() else package.parent / "templates"


def _wrapper(indent: int) -> Callable[[Sequence[str], Iterable[str], str], Source]:
    return lambda head, items, tail: wrap("".join(head), items, tail, indent)


def _source_map(text: str, toml: str) -> Iterable[tuple[int, int]]:
    marker = re.compile(rf"  # {re.escape(toml)}:(\d+)$")
    for number, line in enumerate(text.splitlines(), start=1):
        if found := marker.search(line):
            yield number, int(found[1])


@dataclass(frozen=True, slots=True)
class Writer:
    """Turns the parts of a case into the texts that the template places."""

    workload: Workload

    def program(self, cases: Sequence[Case]) -> Mapping[str, Any]:
        """The head of the program: imports and what holds for every case."""
        texts = [text for case in cases for text in _code_of(case)]
        imports = [Source("import torch")]
        if any(
            step.kind == "triton"
            for case in cases
            for i in case.implementations
            for step in i.steps
        ):
            imports.append(Source("import triton.language as tl"))
        return {
            "file": Source(f"{self.workload.name}.py"),
            "toml": Source(f"{self.workload.name}.toml"),
            "name": self.workload.name,
            "workload": self.workload.source.path,
            "description": self.workload.description,
            "seed": self.workload.seed,
            "timing": self.timing(self.workload.timer),
            "imports": imports,
            "uses_functions": any(re.search(r"\bf\.", text) for text in texts),
        }

    @staticmethod
    def timing(timer: TimerChoice) -> Source:
        """What the workload asks of the timer, where it is not the default."""
        given = [
            Source(f"{name}={literal(getattr(timer, name))}")
            for name in TimerChoice.__dataclass_fields__
            if getattr(timer, name) != getattr(TimerChoice(), name)
        ]
        return Source(", ".join(given))

    def case(self, case: Case) -> Mapping[str, Any]:
        """One function of the program."""
        temporary = _temporary(case)
        kept = [tensor.name for tensor in case.tensors if tensor.name not in temporary]
        return {
            "head": wrap("@program.case(", (literal(case.id), literal(dict(case.values))), ")", 0),
            "function": Source(_identifier(case.id)),
            "uses_device": any("device." in text for text in _code_of(case)),
            "tensor_names": wrap("", kept, "," if len(kept) == 1 else "", 22),
            "tensors": [self.tensor(tensor, tensor.name in temporary) for tensor in case.tensors],
            "computed": [self.computed(function) for function in case.inits],
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
        line = _lines(self.workload.source.text).get(path)
        while line is None and path:
            path = path[:-1]
            line = _lines(self.workload.source.text).get(path)
        return Source(f"# {self.workload.name}.toml:{line or 1}")

    def tensor(self, tensor: BoundTensor, temporary: bool) -> Mapping[str, Source]:
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
        if temporary:
            parts.append(Source("temporary=True"))
        return {"call": wrap("tb.Tensor(", parts, ")", 8), "place": self.place(tensor.path)}

    def computed(self, function: BoundFunction) -> Mapping[str, Source]:
        """One `[[init]]`: which tensors, by which function, of what."""
        return {
            "returns": literal(function.returns),
            "target": literal(function.target),
            "args": _lambda(function),
            "place": self.place(function.path),
        }

    def implementation(self, case: Case, item: BoundImplementation) -> Mapping[str, Any]:
        """One builder of a launch closure."""
        head = [literal(item.name)]
        if item.returns:
            head.append(Source(f"returns={literal(item.returns)}"))
        if item.role == "reference" and (touched := _outputs_of(case, item)) is not None:
            head.append(Source(f"outputs={literal(touched)}"))
        if item.requires != Requirements():
            head.append(Source(f"requires={_requires(item.requires)}"))
        if item.unchecked is not None:
            head.append(Source(f"unchecked={literal(item.unchecked)}"))
        context = item.context and {
            "target": literal(item.context.target),
            "args": Source(", ".join(emit_arguments(item.context.args))),
        }
        return {
            "role": Source(item.role),
            "function": Source(f"{item.role}_{item.name}"),
            "head": Source(", ".join(head)),
            "place": self.place(item.path),
            "context": context,
            "steps": _steps(item),
            "closure": len(item.steps) == 1 and kind_of(item.steps[0].kind).closure,
        }

    def oracle(self, case: Case) -> Mapping[str, Source] | None:
        """The oracle as a function of private copies of the tensors it reads."""
        oracle = case.check.oracle
        if oracle is None or case.check.disabled is not None:
            return None
        head = [Source(f"returns={literal(oracle.returns)}")]
        if case.check.dtype != "same":
            head.append(Source(f"dtype=torch.{case.check.dtype}"))
        if case.check.grad:
            head.append(Source(f"grad={literal(case.check.grad)}"))
        name = _variable(oracle.target, taken=set(names_in(oracle.args)))
        return {
            "head": Source(", ".join(head)),
            "place": self.place(oracle.path),
            "parameters": Source(", ".join(names_in(oracle.args))),
            "name": name,
            "target": literal(oracle.target),
            "call": wrap(f"{name}(", emit_arguments(oracle.args), ")", 8),
        }

    def rule(self, output: BoundOutput) -> Mapping[str, Source]:
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
        for name in (*names, "lengths", "mask", "allow_nan", "unchecked"):
            value = getattr(output, name)
            if value not in (None, False):
                parts.append(Source(f"{name}={literal(value)}"))
        if output.through is not None:
            head = _lambda_head(output.through)
            call = ", ".join(emit_arguments(output.through.args))
            parts.append(
                Source(f"through={head}case.load({literal(output.through.target)})({call})")
            )
        return {"call": wrap("tb.Rule(", parts, ")", 8), "place": self.place(output.path)}

    @staticmethod
    def work(case: Case) -> Source:
        """Least work, evaluated once on the tensors where it depends on their contents."""
        parts = []
        for name in ("flops", "bytes"):
            bound: Bound = getattr(case.work, name)
            if bound is not None:
                text = emit(bound)
                parts.append(
                    Source(
                        f"{name}=lambda: {text}" if isinstance(bound, Code) else f"{name}={text}"
                    )
                )
        if case.work.roof is not None:
            parts.append(Source(f"roof={literal(str(case.work.roof))}"))
        return Source(", ".join(parts))


def _steps(item: BoundImplementation) -> list[Step]:
    """The launches of an implementation; a prepared launch gets a variable of its own."""
    steps: list[Step] = []
    taken: set[str] = set(names_in(tuple(step.args for step in item.steps)))
    prepared: dict[tuple[str, str], Source] = {}
    for index, launch in enumerate(item.steps):
        kind = kind_of(launch.kind)
        name = _variable(launch.target, taken)
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


def _variable(target: str, taken: set[str]) -> Source:
    """A variable named after the function a target ends in; never one that is taken."""
    stem = re.split(r"[.:]", target)[-1]
    stem = stem if stem.isidentifier() else "function"
    reserved = {"case", "torch", "tb", "f", "device", "program", "tl", "launch", "meta"}
    name, number = stem, 2
    while name in taken or name in reserved:
        name, number = f"{stem}_{number}", number + 1
    return Source(name)


def _identifier(case_id: str) -> str:
    """A function name for a case id."""
    name = re.sub(r"\W", "_", case_id)
    return (
        name
        if name.isidentifier() and name not in {"case", "program", "torch", "tb", "f", "tl"}
        else f"case_{name}"
    )


def _lazily(bound: Bound) -> Source:
    """A parameter of an initialiser; a function of tensors where it reads their contents."""
    tensors = names_in(bound)
    return Source(f"lambda {', '.join(tensors)}: {emit(bound)}") if tensors else emit(bound)


def _lambda_head(function: BoundFunction) -> Source:
    names = ", ".join(names_in(function.args))
    return Source(f"lambda {names}: " if names else "lambda: ")


def _lambda(function: BoundFunction) -> Source:
    """The arguments of an `[[init]]` as a function of the tensors they read."""
    if function.args.named:
        inner = ", ".join(emit_arguments(replace(function.args, positional=())))
        return Source(f"{_lambda_head(function)}dict({inner})")
    return Source(
        f"{_lambda_head(function)}{emit_tuple(function.args.positional)}"
        if function.args.positional
        else "lambda: ()"
    )


def _outputs_of(case: Case, item: BoundImplementation) -> tuple[str, ...] | None:
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


def _temporary(case: Case) -> set[str]:
    """Tensors that only initialisers read: they are freed before anything runs."""
    used = set(names_in(tuple(item.context.args for item in case.implementations if item.context)))
    for item in case.implementations:
        used |= set(item.returns)
        for step in item.steps:
            used |= set(names_in(step.args)) | set(names_in(tuple(v for _, v in step.options)))
    if case.check.oracle is not None:
        used |= set(names_in(case.check.oracle.args)) | set(case.check.oracle.returns)
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


def _requires(requires: Requirements) -> Source:
    parts = [
        f"{name}={literal(value)}"
        for name in ("device", "capability")
        if (value := getattr(requires, name)) is not None
    ]
    if requires.memory is not None:
        parts.append(f"memory={literal(requires.memory)}")
    if requires.packages:
        parts.append(f"packages={literal(requires.packages)}")
    return Source(f"tb.Requires({', '.join(parts)})")


def _code_of(case: Case) -> list[str]:
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


@cache
def _lines(text: str) -> Mapping[Path, int]:
    return {path: position.line for path, position in locations(text).items()}
