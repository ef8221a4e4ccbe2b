"""What a cubin says that its kernels need of a multiprocessor, and how many of them fit on one.

Registers, stack and block size stand in `.nv.info` sections as attributes: a format byte, a code, two
bytes of value or of its length, and the value. NVIDIA does not document them; the codes are those that
its own `cuobjdump -elf` prints, and a test holds the numbers against `cuobjdump -res-usage`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from tirbench.launch.sass import headers, sections
from tirbench.model import MachineCode

REGCOUNT: Final = 0x2F
FRAME_SIZE: Final = 0x11
MIN_STACK_SIZE: Final = 0x12
REQUIRED_THREADS: Final = 0x10
SIZED_VALUE: Final = 4
"""The format of an attribute whose value has a length of its own."""

INSTRUCTION_BYTES: Final = 16
"""Since Volta."""
NOP: Final = 0x918
"""Opcode, the low twelve bits of an instruction: what pads a kernel to a multiple of 128 bytes."""

Limit: TypeAlias = Literal["warps", "blocks", "registers", "shared memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiprocessor:
    """How much of everything one multiprocessor has (CUDA C++ programming guide, compute capabilities)."""

    warps: int
    blocks: int
    shared_bytes: int
    registers: int = 65_536


MULTIPROCESSORS: Final[Mapping[str, Multiprocessor]] = {
    "sm_75": Multiprocessor(warps=32, blocks=16, shared_bytes=64 << 10),
    "sm_80": Multiprocessor(warps=64, blocks=32, shared_bytes=164 << 10),
    "sm_86": Multiprocessor(warps=48, blocks=16, shared_bytes=100 << 10),
    "sm_87": Multiprocessor(warps=48, blocks=16, shared_bytes=164 << 10),
    "sm_89": Multiprocessor(warps=48, blocks=24, shared_bytes=100 << 10),
    "sm_90": Multiprocessor(warps=64, blocks=32, shared_bytes=228 << 10),
    "sm_100": Multiprocessor(warps=64, blocks=32, shared_bytes=228 << 10),
    "sm_103": Multiprocessor(warps=64, blocks=32, shared_bytes=228 << 10),
    "sm_120": Multiprocessor(warps=48, blocks=24, shared_bytes=100 << 10),
}
RESERVED_BYTES: Final = 1 << 10
"""Of shared memory, in every block, for the system: since sm_80."""
REGISTER_UNIT: Final = 256
"""Registers are given to a warp in multiples of this many."""
PARTITIONS: Final = 4
"""Of a multiprocessor: a warp takes its registers from one of them."""
SHARED_UNIT: Final = 128


def machine_code(cubin: bytes, dynamic_bytes: int = 0) -> tuple[MachineCode, ...]:
    """The kernels of a cubin, by name, without occupancy.

    Args:
        cubin: of one compilation.
        dynamic_bytes: shared memory that the launch adds to what the kernels declare.

    Raises:
        ValueError: the bytes are no cubin.
    """
    contents = dict(sections(cubin))
    sizes = {name: size for name, _, _, size in headers(cubin) if name.startswith(".nv.shared.")}
    # Where the system's part has a section of its own, those of the kernels begin behind it.
    reserved = RESERVED_BYTES if any(".reserved." in name for name in sizes) else 0
    symbols = _symbols(contents)
    per_kernel = _per_kernel(contents.get(".nv.info", b""))
    found = []
    for section in sorted(name for name in contents if name.startswith(".text.")):
        name = section.removeprefix(".text.")
        own = dict(_attributes(contents.get(f".nv.info.{name}", b"")))
        values = per_kernel.get(symbols.get(name, -1), {})
        found.append(
            MachineCode(
                name=name,
                registers=values.get(REGCOUNT, 0),
                stack_bytes=max(values.get(FRAME_SIZE, 0), values.get(MIN_STACK_SIZE, 0)),
                shared_bytes=max(0, sizes.get(f".nv.shared.{name}", 0) - reserved) + dynamic_bytes,
                instructions=_instructions(contents[section]),
                threads=_threads(own),
            )
        )
    return tuple(found)


def occupancy(code: MachineCode, arch: str) -> tuple[float, Limit] | None:
    """The largest share of a multiprocessor's warps that blocks of a kernel can fill, and what bounds it.

    After the rules of NVIDIA's occupancy calculator. 0 where not even one block fits.

    Args:
        code: of a kernel with a known number of threads.
        arch: `sm_90`; a letter behind the number (`sm_90a`) changes nothing here.

    Returns:
        `None` where the threads of a block or the architecture are unknown.
    """
    limits = MULTIPROCESSORS.get(arch.rstrip("af"))
    if limits is None or code.threads is None:
        return None
    warps = -(-code.threads // 32)
    per_warp = _up(code.registers * 32, REGISTER_UNIT) or REGISTER_UNIT
    of_registers = limits.registers // PARTITIONS // per_warp * PARTITIONS // warps
    reserved = 0 if arch.startswith("sm_7") else RESERVED_BYTES
    each = _up(code.shared_bytes + reserved, SHARED_UNIT)
    blocks: dict[Limit, int] = {
        "warps": limits.warps // warps,
        "blocks": limits.blocks,
        "registers": of_registers,
        "shared memory": limits.shared_bytes // each if each else limits.blocks,
    }
    bound = min(blocks, key=lambda name: blocks[name])
    return blocks[bound] * warps / limits.warps, bound


def with_occupancy(code: MachineCode, arch: str) -> MachineCode:
    """A kernel with its occupancy, where that can be known."""
    found = occupancy(code, arch)
    return code if found is None else replace(code, occupancy=found[0], limited_by=found[1])


# --- Reading --------------------------------------------------------------------------------------


def _attributes(section: bytes) -> Iterator[tuple[int, bytes]]:
    """Code and value of every attribute that has a value of its own."""
    at = 0
    while at + 4 <= len(section):
        form, code, size = struct.unpack_from("<BBH", section, at)
        at += 4
        if form == SIZED_VALUE:
            yield code, section[at : at + size]
            at += size


def _per_kernel(section: bytes) -> dict[int, dict[int, int]]:
    """The numbers that `.nv.info` gives by symbol: code → value for every symbol."""
    found: dict[int, dict[int, int]] = {}
    for code, value in _attributes(section):
        if code in {REGCOUNT, FRAME_SIZE, MIN_STACK_SIZE} and len(value) == 8:
            symbol, number = struct.unpack("<II", value)
            found.setdefault(symbol, {})[code] = number
    return found


def _symbols(contents: Mapping[str, bytes]) -> dict[str, int]:
    """Index of every symbol by its name."""
    table, names = contents.get(".symtab", b""), contents.get(".strtab", b"")
    found = {}
    for index, at in enumerate(range(0, len(table) - 23, 24)):
        (name_at,) = struct.unpack_from("<I", table, at)
        found[names[name_at : names.index(b"\0", name_at)].decode()] = index
    return found


def _threads(attributes: Mapping[int, bytes]) -> int | None:
    """Threads of a block where the code fixes them; `__launch_bounds__` alone only bounds them."""
    value = attributes.get(REQUIRED_THREADS)
    if value is None or len(value) != 12:
        return None
    x, y, z = struct.unpack("<III", value)
    return int(x * y * z)


def _instructions(text: bytes) -> int:
    """Instructions of a kernel without the padding behind them."""
    words = [
        struct.unpack_from("<H", text, at)[0] & 0xFFF
        for at in range(0, len(text), INSTRUCTION_BYTES)
    ]
    while words and words[-1] == NOP:
        words.pop()
    return len(words)


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
