"""Registers, stack, threads and occupancy, read from cubins that Triton's own compiler made."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tirbench.launch.resources import machine_code, occupancy
from tirbench.model import MachineCode

ONE = MachineCode(
    name="k", registers=32, stack_bytes=0, shared_bytes=0, instructions=100, threads=256
)

PTX = """\
.version 8.0
.target sm_90
.address_size 64
.visible .entry spilling(.param .u64 out)
.reqntid 64, 2, 1
{
  .local .align 16 .b8 stack[96];
  .reg .b64 %rd<4>;
  .reg .b32 %r<4>;
  mov.u64 %rd1, stack;
  cvta.local.u64 %rd2, %rd1;
  ld.param.u64 %rd3, [out];
  mov.u32 %r1, %tid.x;
  st.u32 [%rd2+20], %r1;
  st.global.u64 [%rd3], %rd2;
  ret;
}
"""


@pytest.fixture(scope="module")
def cubin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kernel with a stack and a fixed block, by the ptxas that Triton brings."""
    folder = tmp_path_factory.mktemp("cubin")
    (folder / "k.ptx").write_text(PTX)
    _tool("ptxas", "-arch=sm_90", str(folder / "k.ptx"), "-o", str(folder / "k.cubin"))
    return folder / "k.cubin"


def _tool(name: str, *arguments: str) -> str:
    triton = pytest.importorskip("triton")
    program = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def test_registers_and_stack_are_what_cuobjdump_says(cubin: Path) -> None:
    (code,) = machine_code(cubin.read_bytes())
    said = _tool("cuobjdump", "-res-usage", str(cubin))
    registers, stack = map(int, re.findall(r"REG:(\d+) STACK:(\d+)", said)[0])
    assert (code.name, code.registers, code.stack_bytes) == ("spilling", registers, stack)
    assert code.stack_bytes >= 96


def test_threads_are_those_that_the_code_fixes(cubin: Path) -> None:
    assert machine_code(cubin.read_bytes())[0].threads == 128


def test_instructions_are_counted_without_the_padding(cubin: Path) -> None:
    listed = re.findall(
        r"/\*[0-9a-f]{4}\*/ +(?:@!?U?P\w+ )?(\w+)", _tool("cuobjdump", "-sass", str(cubin))
    )
    while listed[-1] == "NOP":
        listed.pop()
    assert machine_code(cubin.read_bytes())[0].instructions == len(listed)


def test_shared_memory_is_what_the_launch_adds_where_the_code_declares_none(cubin: Path) -> None:
    assert machine_code(cubin.read_bytes(), 4096)[0].shared_bytes == 4096


def test_what_is_no_cubin_is_refused() -> None:
    with pytest.raises(ValueError, match="ELF"):
        machine_code(b"text")


@pytest.mark.parametrize(
    ("arch", "changes", "share", "limit"),
    [
        # From the tables of NVIDIA's occupancy calculator.
        ("sm_90", {}, 1.0, "warps"),
        ("sm_90", {"registers": 64}, 0.5, "registers"),
        ("sm_90", {"registers": 255}, 0.125, "registers"),
        ("sm_90", {"threads": 32}, 0.5, "blocks"),
        ("sm_90", {"shared_bytes": 100_000}, 0.25, "shared memory"),
        ("sm_90a", {"shared_bytes": 232_448}, 0.125, "shared memory"),
        ("sm_86", {"threads": 1024}, 32 / 48, "warps"),
        ("sm_80", {"registers": 255, "threads": 1024}, 0.0, "registers"),
    ],
)
def test_occupancy_is_that_of_the_scarcest_resource(
    arch: str, changes: dict[str, int], share: float, limit: str
) -> None:
    found = occupancy(replace(ONE, **changes), arch)  # type: ignore[arg-type]
    assert found is not None
    assert found[0] == pytest.approx(share)
    assert found[1] == limit


def test_there_is_no_occupancy_without_the_size_of_a_block() -> None:
    assert occupancy(replace(ONE, threads=None), "sm_90") is None
    assert occupancy(ONE, "sm_999") is None
