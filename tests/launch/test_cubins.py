"""Machine code of TIRx kernels is compiled once for all processes, and again where anything differs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tirbench.launch.cubins import Compile, folder, kept_by, versions

NVRTC = json.dumps({"cuda": {"arch": "sm_90", "compiler": "nvrtc"}})
NVCC = json.dumps({"cuda": {"arch": "sm_90", "compiler": "nvcc"}})


class Compiler:
    """Counts what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, source: str, settings: str) -> Sequence[Any]:
        assert "cuda" in json.loads(settings)
        self.asked.append(source)
        return [bytearray(b"\x7fELF\n" + source.encode()), "cubin"]


@pytest.fixture
def compiler() -> Compiler:
    return Compiler()


def process(compiler: Compiler, where: Path, compilers: str = "NVRTC 13.0") -> Compile:
    """What one process asks."""
    return kept_by(compiler, where, compilers)


def test_a_second_process_finds_what_the_first_compiled(compiler: Compiler, tmp_path: Path) -> None:
    first = process(compiler, tmp_path / "kept")("kernel", NVRTC)
    again = process(compiler, tmp_path / "kept")("kernel", NVRTC)
    assert compiler.asked == ["kernel"]
    assert again == first == [bytearray(b"\x7fELF\nkernel"), "cubin"]


def test_another_source_setting_or_compiler_is_compiled(compiler: Compiler, tmp_path: Path) -> None:
    process(compiler, tmp_path)("kernel", NVRTC)
    process(compiler, tmp_path)("kernel2", NVRTC)
    process(compiler, tmp_path)("kernel", NVRTC.replace("sm_90", "sm_100a"))
    process(compiler, tmp_path, "NVRTC 13.1")("kernel", NVRTC)
    assert compiler.asked == ["kernel", "kernel2", "kernel", "kernel"]
    assert len(list(tmp_path.iterdir())) == 4


def test_what_nvcc_makes_is_not_kept(compiler: Compiler, tmp_path: Path) -> None:
    ask = process(compiler, tmp_path)
    assert ask("kernel", NVCC) == ask("kernel", NVCC)
    assert compiler.asked == ["kernel", "kernel"]
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_kept_every_process_compiles(
    compiler: Compiler, tmp_path: Path
) -> None:
    (tmp_path / "kept").write_text("a file where the folder should be")
    for _ in range(2):
        found = process(compiler, tmp_path / "kept")("kernel", NVRTC)
        assert found == [bytearray(b"\x7fELF\nkernel"), "cubin"]
    assert compiler.asked == ["kernel", "kernel"]


def test_an_error_of_the_compiler_is_the_callers_and_is_not_kept(tmp_path: Path) -> None:
    class Fails(Compiler):
        def __call__(self, source: str, settings: str) -> Sequence[Any]:
            super().__call__(source, settings)
            raise RuntimeError(f"{source}(3): error: expected a ';'")

    with pytest.raises(RuntimeError, match="expected a ';'"):
        process(Fails(), tmp_path)("kernel.cu", NVRTC)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_the_users_and_can_be_moved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder() == tmp_path / "tirbench" / "tirx"
    monkeypatch.delenv("XDG_CACHE_HOME")

    def homeless(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    with monkeypatch.context() as without:
        without.setattr(Path, "expanduser", homeless)
        assert folder() is None
    monkeypatch.setenv("TIRBENCH_CACHE_DIR", str(tmp_path / "elsewhere"))
    assert folder() == tmp_path / "elsewhere" / "tirx"


def test_versions_name_what_compiles() -> None:
    pytest.importorskip("tvm_tirx")
    assert "apache-tvm-tirx " in versions()


def test_tirx_asks_the_folder_before_it_compiles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    pytest.importorskip("tvm_tirx")
    from tirbench.launch import cubins

    original = tvm_ffi.get_global_func(cubins.CALLBACK)
    compiler = Compiler()
    cubins.keep.cache_clear()
    monkeypatch.setenv("TIRBENCH_CACHE_DIR", str(tmp_path))
    try:
        tvm_ffi.register_global_func(cubins.CALLBACK, compiler, override=True)
        cubins.keep()
        cubins.keep()
        for _ in range(2):
            code, form = tvm_ffi.get_global_func(cubins.CALLBACK)("kernel", NVRTC)
            assert (bytes(code), str(form)) == (b"\x7fELF\nkernel", "cubin")
    finally:
        tvm_ffi.register_global_func(cubins.CALLBACK, original, override=True)
        cubins.keep.cache_clear()
    assert compiler.asked == ["kernel"]
