"""A slowdown as a revision of a kernel file: one argument and one statement more.

The statement has the first programs of a grid do so many dependent multiply-adds before their work:
instructions that a real regression could have added. Nothing can remove them: their number is not known to
the compiler, and their result decides over a trap that no number of steps below 2³² - 1 reaches. What it
costs is never computed from the count; it is measured.

With the fewest steps it is the same machine code, launched with another number: a base that differs from the
slower launch in nothing but the delay.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Final

from tirbench.errors import UsageError

ARGUMENT: Final = "tirbench_delay"
"""As `harness.planting.ARGUMENT`, which needs torch."""

# The upper half of the argument says how many programs wait, counted from the first as the device starts
# them; the lower half for how many steps. x ← 1664525·x + 1013904223 (Numerical Recipes) runs through all
# 2³² values; from 1, 615934122 comes last. Every step has a branch of its own: a plain loop is unrolled by
# four and has a remainder, in which one step more may take less time.
STEP: Final = "mad.lo.u32 x, x, 1664525, 1013904223; setp.le.u32 p, n, {}; @p bra DONE; "
STEPS: Final = 8
PTX: Final = (
    "{ .reg .pred p; .reg .u32 n, x, a, b, c; mov.b32 n, $1; shr.u32 c, n, 16; and.b32 n, n, 65535; "
    "mov.u32 a, %ctaid.z; mov.u32 b, %nctaid.y; mul.lo.u32 a, a, b; mov.u32 b, %ctaid.y; add.u32 a, a, b; "
    "mov.u32 b, %nctaid.x; mul.lo.u32 a, a, b; mov.u32 b, %ctaid.x; add.u32 a, a, b; "
    "setp.ge.u32 p, a, c; @p bra END; mov.u32 x, 1; "
    f"LOOP: {''.join(STEP.format(number) for number in range(1, STEPS + 1))}"
    f"sub.u32 n, n, {STEPS}; bra.uni LOOP; "
    "DONE: setp.eq.u32 p, x, 615934122; @p trap; "
    "END: mov.b32 $0, 0; }"
)
"""As `harness.planting.packed` writes the argument."""


def planted(text: str, names: Iterable[str]) -> str:
    """The text of a kernel file whose kernels of these names can be delayed.

    Raises:
        UsageError: the file is not what a kernel can be planted in.
    """
    tree = ast.parse(text)
    language = _language(tree)
    lines = text.splitlines(keepends=True)
    edits: list[tuple[int, int, str]] = []
    for name in sorted(set(names)):
        function = next(
            (one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == name),
            None,
        )
        if function is None:
            raise UsageError(f"{name} is not defined in its file")
        edits += _edits(function, language)
    for line, column, new in sorted(edits, reverse=True):
        raw = lines[line - 1].encode()  # columns of the syntax tree count bytes
        lines[line - 1] = (raw[:column] + new.encode() + raw[column:]).decode()
    return "".join(lines)


def launched(text: str, function: str) -> list[str]:
    """The Triton kernels of a file that one of its functions launches: `kernel[grid](…)`."""
    tree = ast.parse(text)
    defined = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
    kernels = {name for name, one in defined.items() if _is_jitted(one)}
    if function not in defined:
        return []
    return sorted(
        {
            node.value.id
            for node in ast.walk(defined[function])
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)
        }
        & kernels
    )


def _is_jitted(function: ast.FunctionDef) -> bool:
    return any("jit" in ast.unparse(one) for one in function.decorator_list)


def _language(tree: ast.Module) -> str:
    """What the file calls `triton.language`."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            for one in node.names:
                if one.name == "triton.language":
                    return one.asname or one.name
        if isinstance(node, ast.ImportFrom) and node.module == "triton":
            for one in node.names:
                if one.name == "language":
                    return one.asname or one.name
    raise UsageError("the file does not import triton.language")


def _edits(function: ast.FunctionDef, language: str) -> list[tuple[int, int, str]]:
    """Line, column and text of what is inserted."""
    arguments = function.args
    if not arguments.args or arguments.vararg or arguments.kwonlyargs or arguments.kwarg:
        raise UsageError(f"{function.name} takes arguments in a way that none can be added to")
    last: ast.expr | ast.arg = arguments.args[-1]
    if arguments.defaults:
        last = arguments.defaults[-1]
    first = function.body[0]
    if first.lineno == last.end_lineno:
        raise UsageError(f"{function.name} has its body on the line of its arguments")
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and function.body[1:]:
        first = function.body[1]
    statement = (
        f'{language}.inline_asm_elementwise("{PTX}", "=r,r", [{ARGUMENT}], '
        f"dtype={language}.int32, is_pure=False, pack=1)\n{' ' * first.col_offset}"
    )
    if last.end_lineno is None or last.end_col_offset is None:
        raise UsageError(f"{function.name} has no place in its file")
    return [
        # Neither 1 nor a multiple of 16, for which Triton compiles code of its own.
        (last.end_lineno, last.end_col_offset, f", {ARGUMENT}=2"),
        (first.lineno, first.col_offset, statement),
    ]
