"""What a cubin runs, apart from what it is called: a digest of its machine code.

A cubin and its PTX change with the path and the name of a kernel's source; the `.text` sections and the
constants they read do not. Sections are read by the ELF-64 layout (System V ABI, chapter 4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

CODE_SECTIONS: Final = (".text.", ".nv.constant0.", ".nv.constant2.", ".nv.constant4.")

NO_BITS: Final = 8
"""SHT_NOBITS: a section without bytes in the file."""


def headers(cubin: bytes) -> Iterator[tuple[str, int, int, int]]:
    """Name, type, offset and size of every section of an ELF-64 little-endian file.

    Raises:
        ValueError: the bytes are no such file.
    """
    import struct

    if cubin[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", cubin, 0x3A)
    found = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + i * entry_size) for i in range(count)]
    names_at = found[names_index][4]
    for name_at, kind, _, _, offset, size, *_ in found:
        start = names_at + name_at
        yield cubin[start : cubin.index(b"\0", start)].decode(), kind, offset, size


def sections(cubin: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and contents of every section of an ELF-64 little-endian file.

    Raises:
        ValueError: the bytes are no such file.
    """
    for name, kind, offset, size in headers(cubin):
        yield name, b"" if kind == NO_BITS else cubin[offset : offset + size]


def text_digest(cubins: Iterable[bytes]) -> str:
    """16 hexadecimal digits over the machine code of a sequence of kernels.

    Section names carry the kernel's name, so only their kind and contents enter, in file order.
    """
    import hashlib  # `check` imports this module for what a kind may say, and digests nothing

    digest = hashlib.sha256()
    for cubin in cubins:
        for name, content in sections(cubin):
            for kind in CODE_SECTIONS:
                if name.startswith(kind):
                    digest.update(f"{kind}{len(content)}:".encode())
                    digest.update(content)
    return digest.hexdigest()[:16]
