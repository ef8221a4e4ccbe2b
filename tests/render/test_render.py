"""Workloads as programs: the same bytes every time, values as literals, lines that lead back to the TOML."""

from __future__ import annotations

import ast
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tirbench.errors import UsageError
from tirbench.expand import expand
from tirbench.load import load
from tirbench.model import Harness
from tirbench.render import render

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Golden = Callable[[Path, str], None]
Rendered = Callable[..., Harness]

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "golden"
ROOT = HERE.parents[1]
NAMES = sorted(path.stem for path in HERE.glob("*.toml"))
EXAMPLES = sorted(path.stem for path in (ROOT / "tests" / "load" / "examples").glob("*.toml"))


# --- Golden files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_workload_is_written_as_this_program(
    name: str, rendered: Rendered, golden: Golden
) -> None:
    golden(GOLDEN / f"{name}.py", rendered(name).text)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_the_language_is_written_as_this_program(
    name: str, example_project: Path, golden: Golden
) -> None:
    workload = load(example_project / f"{name}.toml")
    golden(GOLDEN / "examples" / f"{name}.py", render(workload, expand(workload)).text)


def test_every_golden_file_is_one_of_a_workload_and_compiles() -> None:
    files, examples = (sorted(folder.glob("*.py")) for folder in (GOLDEN, GOLDEN / "examples"))
    assert [file.stem for file in files] == NAMES
    assert [file.stem for file in examples] == EXAMPLES
    for file in (*files, *examples):
        compile(file.read_text(encoding="utf-8"), file.name, "exec")


# --- Lines that lead back to the TOML -------------------------------------------------------------


def declared_at(toml: str, what: str, name: str) -> int:
    """The line of a TOML of this folder that declares something, found without a parser."""
    starts = {
        "tensor": rf"{name} = \{{",
        "kernel": rf"\[kernels\.{name}\]",
        "reference": rf"\[references\.{name}\]",
        "oracle": r"\[check\.oracle\]",
        "rule": rf"\[check\.outputs\.{name}\]",
        "work": r"\[work\]",
    }
    start = re.compile(starts[what])
    lines = toml.splitlines()
    return next((n for n, line in enumerate(lines, start=1) if start.match(line)), 0)


@pytest.mark.parametrize("name", NAMES)
def test_every_declaration_of_a_program_names_its_line_of_the_toml(
    name: str, rendered: Rendered
) -> None:
    harness = rendered(name)
    toml = (HERE / f"{name}.toml").read_text(encoding="utf-8")
    found = {
        (kind or rule or other, declared): int(line)
        for kind, rule, other, line, declared in re.findall(
            rf"(?:tb\.(Tensor)|tb\.(Rule)|@?case\.(kernel|reference|oracle|work))\("
            rf"(?=[^\n]*  # {name}\.toml:(\d+)\n)(?:  #[^\n]*)?\s*(?:'(\w+)')?",
            harness.text,
        )
    }
    assert len(found) > 1
    for (what, declared), line in found.items():
        kind = what.lower()
        expected = declared_at(toml, kind, declared)
        if kind == "rule" and not expected:  # a rule that nobody wrote is that of the oracle
            expected = declared_at(toml, "oracle", "") or declared_at(toml, "tensor", declared)
        assert line == expected, (what, declared)


@pytest.mark.parametrize("name", NAMES)
def test_the_source_map_is_what_the_comments_say(name: str, rendered: Rendered) -> None:
    harness = rendered(name)
    lines = harness.text.splitlines()
    for number, line in harness.source_map:
        assert lines[number - 1].endswith(f"  # {name}.toml:{line}")
    assert len(harness.source_map) == harness.text.count(f"  # {name}.toml:")


def test_the_launches_of_a_sequence_name_their_own_lines(rendered: Rendered) -> None:
    toml = (HERE / "stages.toml").read_text(encoding="utf-8").splitlines()
    program = rendered("stages").text.splitlines()
    for number, line in enumerate(toml, start=1):
        if target := re.match(r"  \{.*target = \"[\w.:]*?(\w+)\"", line):
            launches = [one for one in program if one.endswith(f"  # stages.toml:{number}")]
            assert launches
            assert all(target[1] in one for one in launches)


# --- Ranks ----------------------------------------------------------------------------------------


def ranked(args: str, tensors: str = "") -> str:
    """The workload of ranks with other arguments of its `prepare`, and further tensors."""
    text = (HERE / "ranks.toml").read_text(encoding="utf-8")
    text = text.replace('args = ["shared"] }', f"args = {args} }}")
    return text.replace("[tensors]\n", f"[tensors]\n{tensors}")


def test_prepare_names_its_line_of_the_toml(rendered: Rendered) -> None:
    toml = (HERE / "ranks.toml").read_text(encoding="utf-8").splitlines()
    line = next(n for n, text in enumerate(toml, start=1) if text.startswith("prepare = "))
    assert rendered("ranks").text.count(f"    @case.prepare  # ranks.toml:{line}\n") == 2


def test_prepare_computes_its_arguments_at_every_call(rendered: Rendered) -> None:
    args = '{ seen = "shared", rank = "rank + 1", rows = "sum(shared)" }'
    text = rendered("ranked", ranked(args)).text
    assert "return lambda: count(seen=shared, rank=device.rank + 1, rows=f.sum(shared))" in text


def test_prepare_is_not_named_like_a_tensor(rendered: Rendered) -> None:
    more = 'prepare = { shape = [1], dtype = "int64", init = "zeros" }\n'
    more += 'count = { like = "prepare", init = "ones" }\n'
    text = rendered("ranked", ranked('["prepare", "count"]', more)).text
    assert "    def prepare_2():\n        count_2 = case.load('ops.py:count')\n" in text
    assert "        return lambda: count_2(prepare, count)\n" in text


def test_a_tensor_that_an_initialiser_and_prepare_read_stays(rendered: Rendered) -> None:
    more = 'plan = { shape = [64], dtype = "int64", init = "zeros" }\n'
    text = ranked('["plan"]', more).replace(
        'memory = "symmetric", init = "zeros"', 'memory = "symmetric"'
    )
    text = text.replace(
        "[kernels.exchange]",
        '[[init]]\ntarget = "ops.py:rows_of"\nargs = ["plan", 2]\nreturns = "shared"\n\n[kernels.exchange]',
    )
    harness = rendered("ranked", text)
    assert "temporary" not in harness.text
    assert "lambda: count(plan)" in harness.text


def test_a_workload_without_ranks_names_no_number_of_them(rendered: Rendered) -> None:
    text = rendered("single").text
    assert "world_size" not in text
    assert "torchrun" not in text


# --- The same bytes -------------------------------------------------------------------------------


RENDER = """\
import sys
from tirbench.expand import expand
from tirbench.load import load
from tirbench.render import render
for path in sys.argv[1:]:
    workload = load(path)
    print(render(workload, expand(workload)).text)
"""


def test_the_seed_of_hashes_changes_no_byte(project: Path, rendered: Rendered) -> None:
    expected = "".join(rendered(name).text + "\n" for name in NAMES)
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", RENDER, *(str(project / f"{name}.toml") for name in NAMES)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=True,
        )
        assert done.stdout == expected


def test_rendering_twice_gives_the_same_program(rendered: Rendered) -> None:
    assert rendered("paged") == rendered("paged")


ORDERED = {"args", "tensors", "kernels", "references", "matrix", "params", "init", "size"}
"""Tables whose order is part of what they say: of arguments, of what is declared, of axes."""


def written(value: Any, shuffle: Callable[[list[Any]], None], key: str = "") -> str:
    """A value as TOML on one line, with the keys of its tables in another order where none is meant."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        safe = (c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08X}" for c in value)
        return f'"{"".join(safe)}"'
    if isinstance(value, list):
        return f"[{', '.join(written(item, shuffle, key) for item in value)}]"
    keys = list(value)
    if key not in ORDERED:
        shuffle(keys)
    return f"{{ {', '.join(f'{name} = {written(value[name], shuffle, name)}' for name in keys)} }}"


def as_toml(document: dict[str, Any], shuffle: Callable[[list[Any]], None] = lambda _: None) -> str:
    """A document as TOML, one top-level key a line."""
    keys = list(document)
    shuffle(keys)
    return "".join(f"{key} = {written(document[key], shuffle, key)}\n" for key in keys)


def without_places(harness: Harness) -> str:
    return re.sub(r"  # \w+\.toml:\d+$", "", harness.text, flags=re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_keys_changes_nothing_but_line_numbers(name: str, rendered: Rendered) -> None:
    text = (HERE / f"{name}.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    expected = without_places(rendered(name))
    try:
        for seed in range(3):
            shuffled = as_toml(document, random.Random(seed).shuffle)  # noqa: S311 - an order
            assert without_places(rendered(name, shuffled)) == expected
    finally:
        rendered(name, text)


# --- No text of a workload becomes code -----------------------------------------------------------


def hostile(text: str, quoted: str) -> dict[str, Any]:
    """A workload with a text in every position that takes any text.

    `quoted` stands inside an expression, where there are no backslashes or quotes to escape with.
    """
    tensor = {"shape": [1], "dtype": "float32"}
    return {
        "schema": 1,
        "description": text,
        "id": "n{n}",
        "params": {"words": text},
        "matrix": {"size": [{"n": 1, "tag": text}, {"n": 2, "tag": text}]},
        "skip": [{"when": "n == 2", "reason": text, "implementations": ["other"]}],
        "tensors": {
            "x": {**tensor, "init": "normal"},
            "z": tensor,
            "r": {
                **tensor,
                "role": "inout",
                "init": "normal",
                "reset": "none",
                "reason": text,
            },
            "y": {"role": "out", "like": "x"},
        },
        "init": [{"target": "ops.py:cast", "args": ["x", "words"], "returns": ["z"]}],
        "kernels": {
            "ours": {"target": "ops.py:finish", "args": ["x", "y", "words"]},
            "other": {"target": "ops.py:finish", "args": {"x": "z", "y": "y", "log": "tag"}},
            "third": {
                "kind": "build",
                "target": "ops.py:build_exchange",
                "args": ["r", "x", "y", f"'{quoted}'"],
                "context": {"target": "ops.py:autocast", "args": ["words", f"'{quoted}'"]},
            },
        },
        "references": {
            "theirs": {
                "target": "ops.py:finish",
                "args": ["x", "words", "r"],
                "returns": "y",
                "unchecked": text,
            }
        },
        "check": {
            "oracle": {"target": "ops.py:finish", "args": ["x", "words", "tag"], "returns": "y"},
            "outputs": {"y": {"rtol": 0.5, "reason": text}, "r": {"unchecked": text}},
        },
        "meta": {"note": text},
    }


class Texts(ast.NodeTransformer):
    """Puts one and the same literal in place of every text."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant(value="…") if isinstance(node.value, str) else node


def skeleton(harness: Harness) -> str:
    return ast.dump(Texts().visit(ast.parse(harness.text)))


EVIL = (
    "{{ 7 * 7 }}",
    "{% raw %}{# #}",
    "'\"\\",
    "'''\"\"\"",
    "\n    import os\n",
    "\\N{BULLET}\\",
    "  # hostile.toml:1",
    "\u2028\u0085\x0c",
    "\U0001f600\u202e\x00",
)
texts = st.lists(st.sampled_from(EVIL) | st.text(max_size=3), max_size=4).map("".join).filter(bool)


@settings(max_examples=40, deadline=None)
@given(text=texts)
def test_no_text_of_a_workload_changes_more_than_literals(text: str, rendered: Rendered) -> None:
    quoted = re.sub(r"['\\\n\r]|[^\x20-\U0010ffff]", "", text)
    plain = rendered("hostile", as_toml(hostile("plain", "plain")))
    evil = rendered("hostile", as_toml(hostile(text, quoted)))
    assert skeleton(evil) == skeleton(plain)
    assert [line for _, line in evil.source_map] == [line for _, line in plain.source_map]
    literals = {n.value for n in ast.walk(ast.parse(evil.text)) if isinstance(n, ast.Constant)}
    assert {text, quoted} <= literals


def test_kernel_files_may_have_any_name_that_a_file_can_have(
    project: Path, rendered: Rendered
) -> None:
    file = "{{ x }} \"'#.py"
    (project / file).write_text((project / "ops.py").read_text())
    document = hostile("plain", "plain")
    document["kernels"]["ours"]["target"] = f"{file}:finish"
    assert f"case.load({f'{file}:finish'!r})" in rendered("hostile", as_toml(document)).text


def test_no_path_of_the_machine_is_in_a_program(project: Path, rendered: Rendered) -> None:
    for name in NAMES:
        text = rendered(name).text
        assert str(project) not in text
        assert str(ROOT) not in text
        assert str(Path.home()) not in re.sub(r"'[^']*'", "", text)


# --- Names that get in each other's way -----------------------------------------------------------


def test_ids_that_are_no_names_of_functions_still_name_cases(rendered: Rendered) -> None:
    ids = ["if", "dict", "__name__", "7", "a-b", "torch", "x"]
    document = {**hostile("plain", "plain"), "id": "{name}", "matrix": {"name": ids}}
    document["kernels"]["other"]["args"]["log"] = "name"
    document["check"]["oracle"]["args"][2] = "name"
    del document["skip"]
    harness = rendered("hostile", as_toml(document))
    assert list(harness.cases) == ids
    functions = [n.name for n in ast.parse(harness.text).body if isinstance(n, ast.FunctionDef)]
    assert functions == [
        *("case_if", "case_dict", "case___name__", "case_7", "a_b", "case_torch", "x"),
    ]


def test_builders_are_not_named_like_tensors(rendered: Rendered) -> None:
    document = hostile("plain", "plain")
    tensors = document["tensors"]
    document["tensors"] = {"kernel_ours": tensors.pop("x"), **tensors, "finish": tensors["z"]}
    text = as_toml(document).replace('"x"', '"kernel_ours"')
    text = text.replace('args = ["kernel_ours", "y", "words"]', 'args = ["finish", "y", "words"]')
    text = text.replace('returns = ["z"]', 'returns = ["z"]').replace(
        "init = [", 'init = [{ target = "ops.py:rows_of", args = [1, 2], returns = ["finish"] }, '
    )
    program = rendered("hostile", text).text
    assert "def kernel_ours_2():" in program
    assert "finish_2 = case.load('ops.py:finish')" in program
    assert "finish_2(finish, y, 'plain')" in program


def test_more_tensors_than_a_line_holds_are_unpacked_in_parentheses(rendered: Rendered) -> None:
    document = hostile("plain", "plain")
    tensor = {"shape": [1], "dtype": "int8", "init": "zeros"}
    more = {f"a_rather_long_name_{n}": tensor for n in range(9)}
    document["tensors"] |= more
    document["kernels"]["ours"]["args"] = ["x", "y", [*more]]
    program = rendered("hostile", as_toml(document)).text
    compile(program, "hostile.py", "exec")
    assert ") = case.tensors(" in program


def test_a_tolerance_of_zero_is_a_tolerance(rendered: Rendered) -> None:
    document = hostile("plain", "plain")
    document["check"]["outputs"]["y"] = {"rtol": 0, "atol": 0.5, "reason": "wide"}
    assert "tb.Rule('y', rtol=0.0, atol=0.5)" in rendered("hostile", as_toml(document)).text


def test_a_name_that_cannot_stand_in_a_comment_is_refused(project: Path) -> None:
    workload = load(project / "single.toml")
    with pytest.raises(UsageError, match=r"^single\.toml: a workload's file name holds letters"):
        render(replace(workload, name="two\nwords"), expand(workload))
