"""From a valid document to a `Workload`: names become fields, strings become expressions.

Nothing is judged here but the grammar of expressions and the size of integers; what names mean is for
the modules that check.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tirbench.expression import Expression
from tirbench.load.kinds import KINDS
from tirbench.load.values import Values, names
from tirbench.model import (
    Axis,
    Check,
    DeadlineChoice,
    Gate,
    Implementation,
    Init,
    Launch,
    OutputCheck,
    Ranks,
    Requirements,
    Skip,
    Source,
    Tensor,
    TimerChoice,
    Work,
    Workload,
)

if TYPE_CHECKING:
    from tirbench.diagnostics import Problems
    from tirbench.model import ImplementationRole, Path

_TEXT_PARAMETERS: Final = frozenset({"path", "key"})
"""Parameters of initialisers that are plain text."""


def build(document: dict[str, Any], source: Source, problems: Problems) -> Workload:
    """The workload that a valid document describes."""
    return _Builder(document, problems).workload(source)


class _Builder(Values):
    """Converts one document."""

    def __init__(self, document: dict[str, Any], problems: Problems) -> None:
        super().__init__(problems)
        self.document = document

    def workload(self, source: Source) -> Workload:
        """The whole file."""
        document = self.document
        tensors = self.tensors(document["tensors"])
        return Workload(
            name=source.path.rpartition("/")[2].removesuffix(".toml"),
            source=source,
            description=document["description"],
            id=document.get("id"),
            seed=int(document.get("seed", 0)),
            asserts=self.texts(document.get("assert", []), ("assert",)),
            params=self.literals(document.get("params", {}), ("params",)),
            matrix=self.matrix(document.get("matrix", {})),
            cases=tuple(
                self.literals(case, ("case", i)) for i, case in enumerate(document.get("case", []))
            ),
            skips=self.skips(document.get("skip", [])),
            select=tuple((k, tuple(globs)) for k, globs in document.get("select", {}).items()),
            derive=tuple(
                (name, self.argument(raw, ("derive", name)))
                for name, raw in document.get("derive", {}).items()
            ),
            tensors=tensors,
            inits=tuple(
                self.function(raw, ("init", i)) for i, raw in enumerate(document.get("init", []))
            ),
            kernels=self.implementations(document["kernels"], "kernel"),
            references=self.implementations(document.get("references", {}), "reference"),
            check=self.check(document["check"]),
            work=self.work(document.get("work", {})),
            timer=TimerChoice(**_whole(document.get("timer", {}), "rounds")),
            deadlines=DeadlineChoice(**document.get("deadlines", {})),
            gate=self.gate(document.get("gate", {})),
            requires=self.requirements(document.get("requires", {}), ("requires",)),
            ranks=self.ranks(document.get("ranks")),
        )

    # --- cases

    def matrix(self, raw: dict[str, Any]) -> tuple[tuple[str, Axis], ...]:
        """The axes with their points."""
        axes = []
        for name, points in raw.items():
            path: Path = ("matrix", name)
            axis = tuple(
                self.literals(point, (*path, i))
                if isinstance(point, dict)
                else ((name, self.literal(point, (*path, i))),)
                for i, point in enumerate(points)
            )
            axes.append((name, axis))
        return tuple(axes)

    def skips(self, raw: list[dict[str, Any]]) -> tuple[Skip, ...]:
        """The `[[skip]]` tables."""
        return tuple(
            Skip(
                when=self.expression(table["when"], ("skip", i, "when")),
                reason=table["reason"],
                path=("skip", i),
                implementations=tuple(table.get("implementations", ())),
            )
            for i, table in enumerate(raw)
        )

    # --- tensors

    def tensors(self, raw: dict[str, Any]) -> tuple[Tensor, ...]:
        """The tensors, `like` followed and the role of views taken from their base."""
        written = {name: self.tensor(name, table) for name, table in raw.items()}
        followed = {name: _follow_like(tensor, written) for name, tensor in written.items()}
        stated = {name for name, table in raw.items() if "role" in table}
        return tuple(
            tensor if name in stated else replace(tensor, role=_root(tensor, followed).role)
            for name, tensor in followed.items()
        )

    def tensor(self, name: str, raw: dict[str, Any]) -> Tensor:
        """One tensor as written."""
        path: Path = ("tensors", name)
        return Tensor(
            name=name,
            path=path,
            role=raw.get("role", "in"),
            like=raw.get("like"),
            shape=self.several(raw.get("shape"), (*path, "shape")),
            strides=self.several(raw.get("strides"), (*path, "strides")),
            offset=self.maybe(raw, "offset", path),
            dtype=self.dtype(raw.get("dtype"), (*path, "dtype")),
            init=self.init(raw.get("init"), (*path, "init")),
            reset=raw.get("reset"),
            reason=raw.get("reason"),
            view=raw.get("view"),
            permute=self.several(raw.get("permute"), (*path, "permute")),
            memory=raw.get("memory", "device"),
            replicated=raw.get("replicated", False),
        )

    def init(self, raw: Any, path: Path) -> Init | None:
        """An initialiser: a word or a table."""
        if raw is None:
            return None
        if isinstance(raw, str):
            return Init(kind=raw)
        parameters = tuple(
            (
                name,
                Expression(repr(value))
                if name in _TEXT_PARAMETERS
                else self.argument(value, (*path, name)),
            )
            for name, value in raw.items()
            if name != "kind"
        )
        return Init(kind=raw["kind"], parameters=parameters)

    # --- implementations

    def launch(self, raw: dict[str, Any], path: Path) -> Launch:
        """One launch with the options of its kind."""
        kind = KINDS[raw.get("kind", "call")]
        return Launch(
            kind=kind.name,
            target=raw["target"],
            path=path,
            args=self.arguments(raw.get("args", []), (*path, "args")),
            options=tuple(
                (key, self.option(option.form, raw[key], (*path, key)))
                for key, option in kind.options.items()
                if key in raw
            ),
        )

    def option(self, form: str, raw: Any, path: Path) -> object:
        """One option: expressions, or text as it is."""
        match form:
            case "expr":
                return self.argument(raw, path)
            case "exprs":
                return self.several(raw, path)
            case "texts":
                return tuple(raw)
            case "grad":
                return ("of", tuple(raw["of"])), ("seed", self.maybe(raw, "seed", path))
            case _:
                return raw

    def implementations(
        self, raw: dict[str, Any], role: ImplementationRole
    ) -> tuple[Implementation, ...]:
        """Kernels or references."""
        found = []
        for name, table in raw.items():
            path: Path = (f"{role}s", name)
            steps = (
                tuple(
                    self.launch(step, (*path, "steps", i)) for i, step in enumerate(table["steps"])
                )
                if "steps" in table
                else (self.launch(table, path),)
            )
            found.append(
                Implementation(
                    name=name,
                    role=role,
                    path=path,
                    steps=steps,
                    returns=names(table.get("returns")),
                    context=self.maybe_function(table, "context", path),
                    requires=self.requirements(table.get("requires", {}), (*path, "requires")),
                    unchecked=table.get("unchecked"),
                    looser=self.maybe(table, "looser", path),
                    reason=table.get("reason"),
                )
            )
        return tuple(found)

    def requirements(self, raw: dict[str, Any], path: Path) -> Requirements:
        """What a machine must have."""
        return Requirements(
            device=raw.get("device"),
            capability=raw.get("capability"),
            memory=self.maybe(raw, "memory", path),
            packages=tuple(raw.get("packages", ())),
        )

    # --- the rest

    def check(self, raw: dict[str, Any]) -> Check:
        """`[check]` with its outputs."""
        oracle = raw.get("oracle")
        grad = (oracle or {}).get("grad", {})
        return Check(
            oracle=self.function(oracle, ("check", "oracle")) if oracle else None,
            dtype=(oracle or {}).get("dtype", "float64"),
            grad=tuple(grad.get("of", ())),
            grad_seed=self.maybe(grad, "seed", ("check", "oracle", "grad")),
            outputs=tuple(self.output(*item) for item in raw.get("outputs", {}).items()),
            disabled=raw.get("disabled"),
        )

    def output(self, tensor: str, raw: dict[str, Any]) -> OutputCheck:
        """How one output is compared."""
        path: Path = ("check", "outputs", tensor)
        numbers = ("rtol", "atol", "matched", "relative_l2", "cosine")
        words = ("exact", "not_worse_than", "rows", "lengths", "mask", "unchecked")
        return OutputCheck(
            tensor=tensor,
            path=path,
            through=self.maybe_function(raw, "through", path),
            **{key: self.maybe(raw, key, path) for key in numbers if key in raw},  # type: ignore[arg-type]  # keys of the schema
            **{key: raw[key] for key in (*words, "allow_nan", "allow_inf", "reason") if key in raw},
        )

    def work(self, raw: dict[str, Any]) -> Work:
        """`[work]`."""
        return Work(
            flops=self.maybe(raw, "flops", ("work",)),
            bytes=self.maybe(raw, "bytes", ("work",)),
            roof=self.dtype(raw.get("roof"), ("work", "roof")),
        )

    def gate(self, raw: dict[str, Any]) -> Gate:
        """`[gate]`."""
        slower_than = self.maybe(raw, "slower_than", ("gate",))
        gate = Gate(reference=raw.get("reference"))
        return gate if slower_than is None else replace(gate, slower_than=slower_than)

    def ranks(self, raw: dict[str, Any] | None) -> Ranks | None:
        """`[ranks]`."""
        if raw is None:
            return None
        return Ranks(
            world_size=self.argument(raw["world_size"], ("ranks", "world_size")),
            prepare=self.maybe_function(raw, "prepare", ("ranks",)),
        )


def _follow_like(tensor: Tensor, tensors: dict[str, Tensor]) -> Tensor:
    """The tensor with what `like` gives it; a cycle or unknown name is left for the checks."""
    seen = {tensor.name}
    at = tensor
    while at.like is not None and at.like in tensors and at.like not in seen:
        at = tensors[at.like]
        seen.add(at.name)
        if tensor.shape is None:
            tensor = replace(tensor, shape=at.shape, strides=tensor.strides or at.strides)
        tensor = tensor if tensor.dtype else replace(tensor, dtype=at.dtype)
    return tensor


def _root(tensor: Tensor, tensors: dict[str, Tensor]) -> Tensor:
    """The tensor that owns the memory of a view."""
    seen = {tensor.name}
    while tensor.view is not None and tensor.view in tensors and tensor.view not in seen:
        tensor = tensors[tensor.view]
        seen.add(tensor.name)
    return tensor


def _whole(table: dict[str, Any], key: str) -> dict[str, Any]:
    """The table with a whole number as an integer (the schema counts 3.0 as one)."""
    return {**table, key: int(table[key])} if key in table else table
