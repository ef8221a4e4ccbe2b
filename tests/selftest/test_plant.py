"""A planted slowdown is a revision of a kernel file that differs in one argument and one statement."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import sys
from pathlib import Path

import pytest

from tirbench.errors import UsageError
from tirbench.selftest.plant import ARGUMENT, PTX, launched, planted

HEAD = '"""Kernels."""\n\nimport triton\nimport triton.language as tl\n\n\n'
KERNEL = '''@triton.jit
def scale(
    x_ptr,
    n,
    BLOCK: tl.constexpr,
):
    """Twice."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # × as in the field
    tl.store(x_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)
'''
WORKLOADS = Path(__file__).parents[2] / "workloads" / "kernels"


def function(text: str, name: str) -> ast.FunctionDef:
    return next(
        one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef) and one.name == name
    )


def test_a_planted_kernel_has_one_argument_and_one_statement_more() -> None:
    before, after = (
        function(HEAD + KERNEL, "scale"),
        function(planted(HEAD + KERNEL, ["scale"]), "scale"),
    )
    assert [one.arg for one in after.args.args] == ["x_ptr", "n", "BLOCK", ARGUMENT]
    assert ast.unparse(after.args.defaults[0]) == "2"
    assert [ast.dump(one) for one in after.body[2:]] == [ast.dump(one) for one in before.body[1:]]
    assert ast.unparse(after.body[1]).startswith("tl.inline_asm_elementwise('{ .reg .pred p;")


def test_nothing_else_of_the_file_changes() -> None:
    other = "\n\n@triton.jit\ndef other(y_ptr):\n    tl.store(y_ptr, 1)\n"
    text = HEAD + KERNEL + other
    changed = [
        line
        for line in difflib.ndiff(text.splitlines(), planted(text, ["scale"]).splitlines())
        if line[0] in "+-"
    ]
    assert len(changed) == 3
    assert changed[:2] == [
        "-     BLOCK: tl.constexpr,",
        f"+     BLOCK: tl.constexpr, {ARGUMENT}=2,",
    ]


def test_columns_of_lines_with_wide_characters_are_counted_in_bytes() -> None:
    text = HEAD + "@triton.jit\ndef f(x_ptr, µ='×', n=1):\n    tl.store(x_ptr, n)\n"
    assert [one.arg for one in function(planted(text, ["f"]), "f").args.args][-1] == ARGUMENT


def test_the_language_may_be_imported_under_any_name() -> None:
    text = HEAD.replace("import triton.language as tl", "from triton import language as lang") + (
        "@triton.jit\ndef f(x_ptr):\n    lang.store(x_ptr, 1)\n"
    )
    assert "lang.inline_asm_elementwise(" in planted(text, ["f"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + "@triton.jit\ndef f(*args):\n    pass\n", "f takes arguments in a way"),
        (HEAD + "@triton.jit\ndef f(x, *, n):\n    pass\n", "f takes arguments in a way"),
        (HEAD + "@triton.jit\ndef f(x): tl.store(x, 1)\n", "f has its body on the line"),
        (HEAD, "f is not defined in its file"),
        ("def f(x):\n    pass\n", "does not import triton.language"),
    ],
)
def test_a_file_that_cannot_be_planted_in_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        planted(text, ["f"])


def test_no_number_of_steps_reaches_the_trap() -> None:
    # The generator runs through all 2³² values, and the one before 1 is the last that it reaches from 1.
    value = 615934122
    assert f"setp.eq.u32 p, x, {value};" in PTX
    assert (1664525 * value + 1013904223) % (1 << 32) == 1


def test_every_triton_kernel_of_the_suite_can_be_planted_in() -> None:
    from tirbench.reading import read
    from tirbench.selection import Selection

    reading = read(Selection(files=(str(WORKLOADS.parent),)))
    wanted: dict[Path, set[str]] = {}
    for chosen in reading.chosen:
        for case in chosen.cases:
            for step in (step for one in case.implementations for step in one.steps):
                file, _, name = step.target.rpartition(":")
                if step.kind == "triton":
                    wanted.setdefault(WORKLOADS.parent / file, set()).add(name)
    assert len(wanted) >= 20
    for path, names in wanted.items():
        text = planted(path.read_text(encoding="utf-8"), names)
        assert text.count("inline_asm_elementwise(") == len(names), path.name


def test_what_a_function_launches_is_found_and_what_it_only_names_is_not() -> None:
    text = (
        HEAD
        + KERNEL
        + (
            "\n\n@triton.jit\ndef helper(x):\n    return x\n"
            "\n\ndef build(x, table):\n"
            "    def launch():\n        scale[(3,)](x, table[0], helper)\n    return launch\n"
        )
    )
    assert launched(text, "build") == ["scale"]
    assert launched(text, "absent") == []


def test_a_planted_kernel_compiles_with_its_delay_in_it(tmp_path: Path) -> None:
    triton = pytest.importorskip("triton", reason="Triton compiles it")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    if triton.knobs.runtime.interpret:
        pytest.skip("Triton's interpreter has no inline assembly")
    path = tmp_path / "planted_scale.py"
    path.write_text(planted(HEAD + KERNEL, ["scale"]), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kinds = {"x_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr", ARGUMENT: "i32"}
    source = ASTSource(fn=module.scale, signature=kinds, constexprs={(2,): 1024})
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    assert "mad.lo.u32 x, x, 1664525, 1013904223" in compiled.asm["ptx"]
    assert compiled.asm["cubin"]
