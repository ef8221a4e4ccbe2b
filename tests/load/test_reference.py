"""The pages of the language say what the code does, and every feature stands in some file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tirbench.errors import InputError
from tirbench.expand import expand
from tirbench.expression import CONSTANT_NAMES, DEVICE_NAMES, FUNCTIONS
from tirbench.load import load
from tirbench.load.features import features, known, read
from tirbench.load.reference import NAMES, PHASES, SECTIONS, language, section
from tirbench.load.schema import workload_schema
from tirbench.tensors import init
from tirbench.values import Phase

Golden = Callable[[Path, str], None]

ROOT = Path(__file__).parents[2]


def test_the_reference_is_current(golden: Golden) -> None:
    golden(ROOT / "docs" / "language.md", language())


def test_the_table_of_features_is_current(golden: Golden) -> None:
    golden(ROOT / "docs" / "features.md", features(read(ROOT)))


def test_every_feature_of_the_language_is_used_by_some_file() -> None:
    used = {feature for one in read(ROOT) for feature in one.features}
    timers = {("`[timer]`", f'name = "{name}"') for name in ("event", "proton", "kineto")}
    assert sorted({*known()} - used - timers) == []


def tables(part: Any) -> Iterator[Any]:
    """Every part of the schema with keys of its own."""
    if isinstance(part, dict):
        if "properties" in part and "description" in part:
            yield part
        for key, item in part.items():
            if key not in ("if", "then", "allOf"):
                yield from tables(item)


def test_the_reference_has_every_table_of_the_schema() -> None:
    schema = workload_schema()
    shown = {id(section(path, schema)) for path in SECTIONS.values()}
    shown.add(id(schema["$defs"]["init"]["else"]))
    assert [part["description"] for part in tables(schema) if id(part) not in shown] == []


def test_the_reference_names_every_function_and_name() -> None:
    page = language()
    assert [name for name in FUNCTIONS if f"| `{name}(" not in page] == []
    named = {name for names in NAMES for name in names.split(", ")}
    assert named == {*CONSTANT_NAMES, *DEVICE_NAMES, "seed", "True", "False", "None"}


def test_the_words_of_init_have_the_parameters_of_the_functions_that_fill() -> None:
    for branch in workload_schema()["$defs"]["init"]["else"]["allOf"]:
        word = branch["if"]["properties"]["kind"]["const"]
        then = branch["then"]
        parameters = inspect.signature(getattr(init, word)).parameters
        assert [*parameters] == [key for key in then["propertyNames"]["enum"] if key != "kind"]
        needed = [name for name, one in parameters.items() if one.default is one.empty]
        assert needed == list(then.get("required", ()))


WORKLOAD = """\
schema = 1
description = "y = x"
{top}
[matrix]
n = [8]
{more}
[tensors]
lens = {{ shape = [2], dtype = "int32", init = {{ kind = "randint", low = 1, high = "{init}" }} }}
x = {{ shape = ["{shape}"], strides = ["{strides}"], dtype = "{dtype}", init = "normal" }}
v = {{ view = "x", shape = [1], offset = "{offset}" }}
w = {{ view = "x", permute = ["{permute}"] }}
s = {{ role = "scratch", shape = ["{scratch}"], dtype = "float32" }}
y = {{ role = "out", like = "x" }}

[kernels.triton]
kind = "triton"
target = "k.py:kernel"
args = ["x", "y", "lens", "v", "w", "s", "{args}"]
{options}

[kernels.cuda]
kind = "cuda"
target = "k.cu:kernel"
args = ["y"]
{cuda}

[references.torch]
target = "torch.clone"
args = ["x"]
returns = "y"
looser = "{looser}"
reason = "a place is tried"

[check.oracle]
target = "torch.clone"
args = ["x"]
returns = "y"

[check.outputs.y]
reason = "a place is tried"
{rule}

[work]
flops = "{flops}"
bytes = "{bytes}"
roof = "{roof}"

[gate]
slower_than = "{gate}"

[requires]
memory = "{memory}"

[ranks]
world_size = "{ranks}"
"""
NEUTRAL = {
    "top": "",
    "more": "",
    "rule": "",
    "options": "grid = [1]",
    "cuda": "grid = [1]\nblock = [32]",
    "init": "5",
    "shape": "8",
    "strides": "1",
    "dtype": "float32",
    "offset": "0",
    "permute": "0",
    "scratch": "8",
    "args": "8",
    "flops": "1",
    "bytes": "1",
    "roof": "float32",
    "gate": "0.01",
    "memory": "1",
    "ranks": "1",
    "looser": "1",
}
READS = {Phase.DEVICE: "sm_count", Phase.DATA: "sum(lens)"}


def with_expression(place: str, text: str) -> str:
    """A workload with an expression at one place."""
    group, _, key = place.rpartition(".")
    filled = dict(NEUTRAL)
    if group in ("triton", "cuda"):
        listed = key in ("grid", "block", "cluster", "template")
        value = f'["{text}"]' if listed else f'"{text}"'
        slot = "options" if group == "triton" else "cuda"
        kept = [line for line in filled[slot].splitlines() if not line.startswith(key)]
        filled[slot] = "\n".join([*kept, f"{key} = {value}"])
    elif place == "assert":
        filled["top"] = f'assert = ["{text}"]'
    elif place == "skip.when":
        filled["more"] = f'[[skip]]\nwhen = "{text}"\nreason = "none"'
    elif place == "derive":
        filled["more"] = f'[derive]\nd = "{text}"'
    elif group == "check.outputs":
        filled["rule"] = f'{key} = "{text}"'
    elif place == "scratch.shape":
        filled["scratch"] = text
    else:
        slots = {"slower_than": "gate", "world_size": "ranks"}
        filled[slots.get(key, key)] = text
    return WORKLOAD.format(**filled)


@pytest.mark.parametrize("place", PHASES)
@pytest.mark.parametrize("reads", READS, ids=lambda phase: phase.name.lower())
def test_a_place_reads_what_the_reference_says(place: str, reads: Phase, tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text("@triton.jit\ndef kernel(a, b, c, d, e, f, g):\n    pass\n")
    (tmp_path / "k.cu").write_text("__global__ void kernel(float* y) {}\n")
    (tmp_path / "w.toml").write_text(with_expression(place, READS[reads]))
    try:
        expand(load(tmp_path / "w.toml"))
        said = ""
    except InputError as error:
        said = str(error)
    assert ("reads only" in said) is (reads > PHASES[place]), said
