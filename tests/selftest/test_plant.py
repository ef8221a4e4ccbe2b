"""A planted slowdown is a revision of a kernel file that differs in one argument and one statement."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import operator
import sys
from collections.abc import Callable
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


OPERATIONS: dict[str, Callable[..., int]] = {
    "shr.u32": operator.rshift,
    "and.b32": operator.and_,
    "add.u32": operator.add,
    "sub.u32": operator.sub,
    "mul.lo.u32": operator.mul,
    "mad.lo.u32": lambda first, second, third: first * second + third,
    "setp.ge.u32": operator.ge,
    "setp.le.u32": operator.le,
    "setp.eq.u32": operator.eq,
}


def steps_of(argument: int, program: tuple[int, int, int], grid: tuple[int, int, int]) -> int:
    """Run the statement as one program of a grid does: how many multiply-adds it makes."""
    special = {
        **{f"%ctaid.{axis}": at for axis, at in zip("xyz", program, strict=True)},
        **{f"%nctaid.{axis}": size for axis, size in zip("xyz", grid, strict=True)},
        "$1": argument,
    }
    body = PTX.strip("{} ").replace(": ", ":;")
    lines = [line.strip() for line in body.split(";") if line.strip()]
    labels = {line[:-1]: at for at, line in enumerate(lines) if line.endswith(":")}
    registers: dict[str, int] = {}

    def value(name: str) -> int:
        return int(name) if name.isdigit() else {**registers, **special}[name]

    at = mads = 0
    while at < len(lines):
        words = lines[at].replace(",", "").split()
        at += 1
        guarded = words[0] == "@p"
        if guarded and not registers["p"]:
            continue
        operation, *of = words[guarded:]
        if operation == ".reg" or operation.endswith(":"):
            continue
        if operation.startswith("bra"):
            at = labels[of[0]]
        elif operation == "trap":
            raise AssertionError("the trap was reached")
        elif operation.startswith("mov"):
            registers[of[0]] = value(of[1])
        else:
            mads += operation == "mad.lo.u32"
            found = OPERATIONS[operation](*(value(name) for name in of[1:]))
            registers[of[0]] = int(found) & 0xFFFFFFFF
    return mads


@pytest.mark.parametrize("steps", [1, 2, 7, 8, 9, 17, 1000])
def test_a_program_that_waits_makes_as_many_steps_as_it_is_told(steps: int) -> None:
    assert steps_of(7 << 16 | steps, (0, 0, 0), (9, 1, 1)) == steps


def test_only_as_many_programs_wait_as_told_in_the_order_in_which_a_device_starts_them() -> None:
    grid = (3, 2, 2)
    order = [(x, y, z) for z in range(2) for y in range(2) for x in range(3)]
    for waiting in (0, 1, 5, 12, 100):
        found = [steps_of(waiting << 16 | 2, program, grid) for program in order]
        assert found == [2] * min(waiting, 12) + [0] * max(0, 12 - waiting)


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
