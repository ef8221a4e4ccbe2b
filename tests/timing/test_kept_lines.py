"""What makes the L2 cache let go of lines, as far as it needs no GPU."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tirbench.errors import MeasurementError
from tirbench.execute import blame
from tirbench.timing.kept_lines import LINE, PTX, Driver, letting_go

MIB = 1 << 20


@dataclass
class FakeCuda:
    """The driver's library: one device, of whose cache so much is set aside; launches are listed."""

    aside: int = 12 * MIB
    most: int = 40 * MIB
    fails: dict[str, int] = field(default_factory=dict)
    loaded: bytes = b""
    launches: list[tuple[str, int, int, int, int]] = field(default_factory=list)
    current: int | None = 5
    pushed: list[int | None] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("cu"):
            raise AttributeError(name)
        return lambda *arguments: self.fails.get(name) or getattr(self, f"do_{name}")(*arguments)

    def do_cuCtxGetCurrent(self, context: Any) -> int:  # noqa: N802
        context._obj.value = self.current
        return 0

    def do_cuCtxPushCurrent_v2(self, context: Any) -> int:  # noqa: N802
        self.pushed.append(self.current)
        self.current = context.value
        return 0

    def do_cuCtxPopCurrent_v2(self, _: Any) -> int:  # noqa: N802
        self.current = self.pushed.pop()
        return 0

    def do_cuGetErrorString(self, error: int, said: Any) -> int:  # noqa: N802
        said._obj.value = {719: b"unspecified launch failure"}.get(error)
        return 0 if error == 719 else 1

    def do_cuDeviceGet(self, device: Any, ordinal: int) -> int:  # noqa: N802
        device._obj.value = 100 + ordinal
        return 0

    def do_cuDeviceGetAttribute(self, value: Any, which: int, device: Any) -> int:  # noqa: N802
        assert (which, device.value) == (108, 103)
        value._obj.value = self.most
        return 0

    def do_cuCtxGetLimit(self, value: Any, which: int) -> int:  # noqa: N802
        assert which == 6
        value._obj.value = self.aside
        return 0

    def do_cuModuleLoadData(self, module: Any, image: Any) -> int:  # noqa: N802
        module._obj.value = 1
        self.loaded = image.value
        return 0

    def do_cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:  # noqa: N802
        assert module.value == 1
        self._names.append(name.decode())
        function._obj.value = len(self._names)
        return 0

    def do_cuLaunchKernel(self, function: Any, *rest: Any) -> int:  # noqa: N802
        assert self.current == 5
        *shape, shared, stream, arguments, extra = rest
        assert (shape[1:3], shape[4:], shared, extra) == ([1, 1], [1, 1], 0, None)
        address = ctypes.c_uint64.from_address(arguments[0]).value
        count = ctypes.c_uint32.from_address(arguments[1]).value
        name = self._names[function.value - 1]
        self.launches.append((name, address, count, shape[0] * shape[3], stream.value))
        return 0


def closure(
    cuda: FakeCuda, nbytes: int = 256 * MIB, stream: int = 7
) -> Callable[[], object] | None:
    return letting_go(Driver(cuda), 3, 0x1000, nbytes, lambda: stream)


@pytest.mark.parametrize(
    ("aside", "written"),
    [
        pytest.param(12 * MIB, 18 * MIB, id="half as much again as is set aside"),
        pytest.param(0, 60 * MIB, id="or may be, where the driver says none is"),
        pytest.param(99 * MIB, 60 * MIB, id="and no more than may be"),
    ],
)
def test_more_than_the_cache_keeps_is_kept_and_let_go(aside: int, written: int) -> None:
    cuda = FakeCuda(aside=aside)
    run = closure(cuda)
    assert run is not None
    cuda.launches.clear()
    run()
    assert cuda.launches == [
        ("keep", 0x1000, written // 16, written // 16, 7),
        ("let_go", 0x1000, written // LINE, written // LINE, 7),
    ]
    assert cuda.loaded == PTX


def test_no_more_is_written_than_the_buffer_holds_and_threads_beyond_it_do_nothing() -> None:
    cuda = FakeCuda()
    closure(cuda, nbytes=1000)
    assert cuda.launches == [("keep", 0x1000, 56, 256, 7), ("let_go", 0x1000, 7, 256, 7)]


def test_the_kernels_are_launched_once_before_anything_can_be_captured() -> None:
    cuda = FakeCuda()
    closure(cuda)
    assert [name for name, *_ in cuda.launches] == ["keep", "let_go"]


def test_a_cache_that_keeps_nothing_is_left_alone() -> None:
    cuda = FakeCuda(most=0)
    assert closure(cuda) is None
    assert (cuda.loaded, cuda.launches) == (b"", [])


@pytest.mark.parametrize("current", [None, 9])
def test_another_thread_and_another_device_launch_on_the_context_that_it_was_made_for(
    current: int | None,
) -> None:
    cuda = FakeCuda()
    run = closure(cuda)
    assert run is not None
    cuda.current = current
    run()
    assert (cuda.current, cuda.pushed, len(cuda.launches)) == (current, [], 4)


def test_a_fault_of_a_launch_before_is_told_as_such() -> None:
    """`execute.blame` knows it by these words, and replaces the worker."""
    with pytest.raises(MeasurementError) as raised:
        closure(FakeCuda(fails={"cuLaunchKernel": 719}))
    assert str(raised.value) == (
        "CUDA error: unspecified launch failure (719), in cuLaunchKernel before a flush"
    )
    with pytest.raises(MeasurementError, match="CUDA error: number 999, in cuDeviceGet "):
        closure(FakeCuda(fails={"cuDeviceGet": 999}))


def test_memory_that_ran_out_is_told_as_such_with_what_needs_none() -> None:
    with pytest.raises(MeasurementError) as raised:
        closure(FakeCuda(fails={"cuModuleLoadData": 2}))
    assert str(raised.value) == (
        "out of memory in cuModuleLoadData, before a flush; l2='warm' flushes nothing and needs none of it"
    )
    assert blame.OUT_OF_MEMORY.search(str(raised.value))
    assert not blame.STICKY.search(str(raised.value))


def test_a_driver_that_is_not_there_under_its_name_is_no_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> object:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(MeasurementError, match=r"libcuda.so.1: cannot open.*l2='warm'"):
        Driver()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_the_kernels_are_valid_for_every_generation_that_keeps_lines(
    tmp_path: Path, arch: str
) -> None:
    nvidia = pytest.importorskip("triton.backends.nvidia")
    source = tmp_path / "kept_lines.ptx"
    source.write_bytes(PTX)
    ptxas = Path(nvidia.__file__).parent / "bin" / "ptxas"
    done = subprocess.run(
        [ptxas, "-arch", arch, source, "-o", tmp_path / "out.cubin"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_what_is_written_fits_the_flush_buffer_of_a_device_that_keeps_three_quarters_of_its_cache() -> (
    None
):
    l2_bytes = 192 * MIB
    cuda = FakeCuda(aside=0, most=l2_bytes * 3 // 4)
    closure(cuda, nbytes=2 * l2_bytes)
    assert cuda.launches[0][2] * 16 == 1.5 * cuda.most
