"""The kernels of `benchmarks/kept_lines.py` say to the cache what they are named after."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# In a process of its own: here Triton interprets, and compiles nothing.
PROGRAM = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from benchmarks import kept_kernels as kernels
source = ASTSource(
    getattr(kernels, {name!r}),
    {signature!r},
    constexprs={{"BLOCK": kernels.BLOCK, **{constants!r}}},
)
print(compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"])
"""


READING = {"x_ptr": "*i32", "y_ptr": "*i32", "n": "i32"}


@pytest.mark.parametrize(
    ("name", "signature", "constants", "said"),
    [
        ("read_kernel", READING, {"KEPT": True}, "L2::evict_last"),
        ("write_kernel", {"x_ptr": "*i32", "n": "i32"}, {}, "L2::evict_last"),
        (
            "demote_kernel",
            {"x_ptr": "*i32", "lines": "i32"},
            {},
            "applypriority.global.L2::evict_normal",
        ),
    ],
)
def test_a_kernel_gives_lines_a_priority(
    name: str,
    signature: dict[str, str],
    constants: dict[str, bool],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert said in compiled(name, signature, constants, monkeypatch)


def test_a_reader_that_keeps_nothing_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "evict" not in compiled("read_kernel", READING, {"KEPT": False}, monkeypatch)


def compiled(
    name: str,
    signature: dict[str, str],
    constants: dict[str, bool],
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """The PTX of a kernel."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    signature = {**signature, **dict.fromkeys((*constants, "BLOCK"), "constexpr")}
    program = PROGRAM.format(name=name, signature=signature, constants=constants)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
