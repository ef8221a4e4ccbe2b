"""The digest of machine code sees the code and not what it is called."""

from __future__ import annotations

import pytest

from tirbench.launch.sass import sections, text_digest

triton = pytest.importorskip("triton")

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def {name}(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) {operation}, mask=at < n)
"""


def cubin(tmp_path: object, name: str, operation: str, file: str) -> bytes:
    import importlib.util
    from pathlib import Path

    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    path = Path(str(tmp_path)) / file
    path.write_text(KERNEL.format(name=name, operation=operation))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel = getattr(module, name)
    source = ASTSource(kernel, {"x_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 128})
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    code: bytes = compiled.asm["cubin"]
    return code


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def test_name_and_path_do_not_enter_the_digest(tmp_path: object) -> None:
    one, other = (
        cubin(tmp_path, "first", "* 2.0", "a.py"),
        cubin(tmp_path, "second_name", "* 2.0", "b.py"),
    )
    assert one != other
    assert text_digest([one]) == text_digest([other])


def test_another_operation_is_another_digest(tmp_path: object) -> None:
    one, other = cubin(tmp_path, "k", "* 2.0", "a.py"), cubin(tmp_path, "k", "* 3.0", "b.py")
    assert text_digest([one]) != text_digest([other])


def test_the_order_of_a_sequence_of_kernels_matters(tmp_path: object) -> None:
    one, other = cubin(tmp_path, "k", "* 2.0", "a.py"), cubin(tmp_path, "k", "+ 3.0", "b.py")
    assert text_digest([one, other]) != text_digest([other, one])


def test_what_is_no_cubin_is_refused() -> None:
    with pytest.raises(ValueError, match="not a 64-bit little-endian ELF file"):
        list(sections(b"not a cubin"))
