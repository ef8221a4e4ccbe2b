"""The reference of the workload language, written from the schema and the code that reads it.

`python -m tirbench.load.reference > docs/language.md` writes the committed page; a test holds it current.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tirbench import launch
from tirbench.expression import DEVICE_NAMES, FUNCTIONS, RANK_NAMES, functions
from tirbench.load.kinds import BUILT_IN, KINDS
from tirbench.load.schema import workload_schema
from tirbench.values import DTYPES, Phase

TEMPLATE: Final = Path(__file__).parent.parent / "schema" / "language.md.jinja"

SECTIONS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "The file": (),
        "`[[skip]]`": ("properties", "skip", "items"),
        "`[select]`": ("properties", "select"),
        "`[tensors.T]`": ("$defs", "tensor"),
        "`init` of a tensor": ("$defs", "init", "else"),
        "`[[init]]`": ("properties", "init", "items"),
        "`[kernels.K]`": ("$defs", "kernel"),
        "`[references.R]`": ("$defs", "reference"),
        "`steps` of a kernel or reference": ("$defs", "step"),
        "`grad`": ("$defs", "grad"),
        "`context`, `through`, `prepare`": ("$defs", "function"),
        "`[requires]`, also of a kernel or reference": ("$defs", "requires"),
        "`[check]`": ("$defs", "check"),
        "`[check.oracle]`": ("$defs", "oracle"),
        "`[check.outputs.T]`": ("$defs", "output"),
        "`[work]`": ("properties", "work"),
        "`[timer]`": ("properties", "timer"),
        "`[deadlines]`": ("properties", "deadlines"),
        "`[gate]`": ("properties", "gate"),
        "`[ranks]`": ("properties", "ranks"),
    }
)
"""Every table of the language: its heading, and where the schema describes it."""

PHASES: Final[Mapping[str, Phase]] = MappingProxyType(
    {
        "assert": Phase.CASE,
        "skip.when": Phase.CASE,
        "derive": Phase.DATA,
        "tensors.dtype": Phase.CASE,
        "tensors.shape": Phase.CASE,
        "tensors.strides": Phase.CASE,
        "tensors.offset": Phase.CASE,
        "tensors.permute": Phase.CASE,
        "scratch.shape": Phase.DEVICE,
        "tensors.init": Phase.DATA,
        "args": Phase.DATA,
        "requires.memory": Phase.CASE,
        "references.looser": Phase.CASE,
        "check.outputs.rtol": Phase.CASE,
        "check.outputs.atol": Phase.CASE,
        "check.outputs.matched": Phase.CASE,
        "check.outputs.relative_l2": Phase.CASE,
        "check.outputs.cosine": Phase.CASE,
        "work.flops": Phase.DATA,
        "work.bytes": Phase.DATA,
        "work.roof": Phase.CASE,
        "gate.slower_than": Phase.CASE,
        "ranks.world_size": Phase.CASE,
        **{
            f"{name}.{key}": option.latest
            for name, kind in sorted(launch.BUILTIN.items())
            for key, option in kind.syntax.options.items()
            if option.form in ("expr", "exprs")
        },
    }
)
"""The latest phase that each place of expressions may read; a test tries every one of them."""

PLACES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "derive": "`[derive]` (a name takes the phase of what it reads)",
        "scratch.shape": "`shape`, `strides`, `offset` of scratch tensors",
        "tensors.init": "`tensors`: parameters of `init`",
        "args": "`args` of launches, oracles and functions, `grad` seeds",
    }
)
"""How a place is called where its key does not say it all."""

NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "True, False, None": "As in Python.",
        "inf, nan": "The floating-point values.",
        "omit": "As an argument: there is no such argument. The case decides, so that a tensor which "
        "is only named beside it is not allocated.",
        "seed": "The workload's `seed`.",
        "sm_count": "Multiprocessors of the device; on a CPU the cores that this process may use.",
        "l2_bytes": "Size of the L2 cache; on a CPU of its last-level cache.",
        "smem_bytes": "The most shared memory that a block can opt in to; on a CPU 49152, as every GPU has.",
        "capability": "CUDA compute capability as a number, 9.0; on a CPU 0.0.",
        "rank": "Number of this process among all.",
        "local_rank": "Number of this process among those of its host.",
        "world_size": "How many processes there are.",
    }
)
"""What the names of the language mean, beside those that a workload defines."""

LAYOUT_FUNCTIONS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "size": ("t, i", "Elements of the tensor along dimension i."),
        "stride": ("t, i", "Elements from one index of dimension i to the next."),
        "numel": ("t", "Elements of the tensor."),
        "nbytes": ("t", "Bytes of its elements: numel(t) * itemsize(t)."),
        "itemsize": ("t", "Bytes of one element of a tensor or of a dtype."),
        "gathered": (
            "t",
            "The tensor of every rank, joined along dimension 0; in a ranked oracle.",
        ),
    }
)
"""Functions of tensors, which need a layout and not a value: their parameters and what they give."""

_TYPES: Final = {
    "args": "list or table of expressions",
    "argument": "expression, or a list of them",
    "expr": "expression",
    "function": "table: `target`, `args`",
    "globs": "list of globs",
    "grad": "table: `of`, `seed`",
    "init": "word or table",
    "literal": "number, boolean, text, or a list of numbers",
    "name": "name",
    "requires": "table: see `[requires]`",
    "returns": "name, or a list of them",
    "shape": "list of expressions",
    "step": "launches",
    "target": "target",
}
_WORDS: Final = {
    "string": "text",
    "number": "number",
    "integer": "whole number",
    "boolean": "boolean",
    "array": "list",
    "object": "table",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a table, as a row of the reference: texts in Markdown."""

    name: str
    type: str
    default: str
    meaning: str


def section(path: tuple[str, ...], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of the schema that describes a table."""
    part: Any = schema
    for step in path:
        part = part[step]
    found: Mapping[str, Any] = part
    return found


def language() -> str:
    """The whole page, in Markdown."""
    import jinja2

    schema = workload_schema()
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Markdown, of our own texts
    )
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        tables=[
            (heading, section(path, schema).get("description", ""), list(_keys(path, schema)))
            for heading, path in SECTIONS.items()
        ],
        functions=list(_functions()),
        names=[(name, meaning, _phase_of_name(name)) for name, meaning in NAMES.items()],
        dtypes=[(name, size, c or "") for name, (size, c) in DTYPES.items()],
        phases=list(_phases()),
        inits=list(_inits(schema)),
        kinds=list(_kinds()),
    )


def _keys(path: tuple[str, ...], schema: Mapping[str, Any]) -> Iterator[Key]:
    """The keys of one table, in the order of the schema."""
    table = section(path, schema)
    required = {*table.get("required", ())}
    for name, part in table["properties"].items():
        referred = schema["$defs"].get(_definition(part), {})
        default = part.get("default")
        text = "required" if name in required else "" if default is None else f"`{_toml(default)}`"
        meaning = part.get("description") or referred.get("description", "")
        yield Key(
            name=name, type=_cell(_type(part, name)), default=text, meaning=_cell(str(meaning))
        )


def _definition(part: Mapping[str, Any]) -> str:
    return str(part.get("$ref", "")).rpartition("/")[2]


def _type(part: Mapping[str, Any], name: str = "") -> str:
    """What a value may be, in words."""
    if "const" in part:
        return f"`{part['const']}`"
    if "enum" in part:
        return ", ".join(f"`{word}`" for word in part["enum"])
    definition = _definition(part)
    if definition in ("check", "oracle", "tensor", "kernel", "reference", "output"):
        return "table"
    if definition:
        return _TYPES[definition]
    kind = part["type"]
    if kind == "array":
        return _list_type(part)
    if kind == "object":
        of = _definition(part["additionalProperties"]) if name in ("tensors", "kernels") else ""
        return "tables by name" if of or name in ("references", "outputs") else "table"
    words = " or ".join(_WORDS[one] for one in ([kind] if isinstance(kind, str) else kind))
    bounds = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤"}
    limits = [f"{sign} {part[key]}" for key, sign in bounds.items() if key in part]
    return " ".join([words, ", ".join(limits)]).strip()


def _list_type(part: Mapping[str, Any]) -> str:
    """`list of 1 to 3 expressions`."""
    least, most = part.get("minItems", 0), part.get("maxItems")
    number = (
        "" if most is None or most > 9 else f"{least} " if least == most else f"{least}–{most} "
    )
    item = part["items"]
    if item.get("type") == "object":
        return "tables"
    words = _type(item)
    return f"list of {number}{words if words == 'text' else words + 's'}"


def _toml(value: object) -> str:
    """A default as a file would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _cell(text: str) -> str:
    """Text that can stand in a table of Markdown."""
    return text.replace("|", "\\|")


def _functions() -> Iterator[tuple[str, str]]:
    """Each function with its parameters, and what it gives."""
    for name in FUNCTIONS:
        if name in LAYOUT_FUNCTIONS:
            parameters, meaning = LAYOUT_FUNCTIONS[name]
        else:
            function = getattr(functions, name)
            code = function.__code__
            several = bool(code.co_flags & 0x04)  # CO_VARARGS of CPython's inspect module
            parameters = ", ".join(code.co_varnames[: code.co_argcount])
            parameters = "a, …" if several else parameters
            meaning = str(function.__doc__).partition("\n")[0]
        yield f"{name}({parameters})", _cell(meaning)


def _phase_of_name(name: str) -> str:
    if name in RANK_NAMES:
        return "device, with `[ranks]`"
    return "device" if name in DEVICE_NAMES else "case"


def _phases() -> Iterator[tuple[str, str]]:
    """Each phase with the places that read up to it and no further."""
    for phase in Phase:
        places = [
            PLACES.get(place, f"`{place}`") for place, latest in PHASES.items() if latest is phase
        ]
        yield phase.name.lower(), "; ".join(places)


def _inits(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Each word of `init` with its parameters, those needed in bold, and what it gives."""
    for branch in schema["$defs"]["init"]["else"]["allOf"]:
        then = branch["then"]
        required = then.get("required", ())
        parameters = [
            f"**`{name}`**" if name in required else f"`{name}`"
            for name in then["propertyNames"]["enum"]
            if name != "kind"
        ]
        word = branch["if"]["properties"]["kind"]["const"]
        yield word, ", ".join(parameters), _cell(then["description"])


def _kinds() -> Iterator[tuple[str, str, str, str]]:
    """Each built-in launch kind: what it is, how `args` are written, and its own keys."""
    ways = {"any": "a list or a table", "named": "a table", "positional": "a list"}
    for name in launch.BUILTIN:
        if name not in BUILT_IN:
            continue
        kind = KINDS[name]
        module = sys.modules[f"tirbench.launch.{name}"]
        text = " ".join(str(module.__doc__).partition(": ")[2].split())
        args = ways[kind.arguments] + ("; numbers with a C width" if kind.c_scalars else "")
        yield name, text, args, ", ".join(f"`{key}`" for key in kind.options)


if __name__ == "__main__":
    sys.stdout.write(language())
