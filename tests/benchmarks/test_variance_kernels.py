"""The kernels of `benchmarks/variance.py` say to the cache what they are named after."""

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
from benchmarks import variance_kernels as kernels
source = ASTSource(
    getattr(kernels, {name!r}),
    {signature!r},
    constexprs={{"BLOCK": kernels.BLOCK}},
)
print(compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"])
"""


@pytest.mark.parametrize(
    ("name", "signature", "said"),
    [
        ("keep_kernel", {"x_ptr": "*i32", "y_ptr": "*i32", "n": "i32"}, "L2::evict_last"),
        (
            "demote_kernel",
            {"x_ptr": "*i32", "lines": "i32"},
            "applypriority.global.L2::evict_normal",
        ),
    ],
)
def test_a_kernel_gives_lines_a_priority(
    name: str, signature: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    program = PROGRAM.format(name=name, signature={**signature, "BLOCK": "constexpr"})
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
