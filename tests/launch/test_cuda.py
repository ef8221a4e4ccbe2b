"""A cuda launch: how it is written, how its arguments become C, and what a fake device is asked for."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tirbench.errors import UsageError
from tirbench.expand import expand
from tirbench.harness.case import Case, Shared
from tirbench.harness.device import Device
from tirbench.launch import cuda
from tirbench.launch.c_values import c_value
from tirbench.launch.cscalar import CScalar
from tirbench.launch.cuda import CudaKernel, code_facts, specific
from tirbench.launch.nvrtc import CudaSource
from tirbench.load import load
from tirbench.model import BoundArguments, BoundLaunch, CodeFacts, Plan
from tirbench.model import Case as BoundCase
from tirbench.plan import Ask, plan
from tirbench.render import render
from tirbench.tensors import Arena
from tirbench.values import CScalar as BoundScalar
from tirbench.values import Dtype, TensorRef

SOURCE = CudaSource(folder=Path(), file="kernels/scale.cu", expression="scale<__half, 128>")


def launch_of(**options: Any) -> BoundLaunch:
    args = BoundArguments(
        positional=(TensorRef(name="x"), None, BoundScalar(ctype="int32", value=7))
    )
    return BoundLaunch(
        kind="cuda",
        target="kernels/scale.cu:scale",
        path=("kernels", "scale"),
        args=args,
        options=tuple(options.items()),
    )


def test_a_launch_is_written_as_arguments_then_sizes() -> None:
    launch = launch_of(grid=(4, 2), block=(128,), cluster=(2,), shared_bytes=1024)
    assert cuda.KIND.arguments(launch) == (
        "x",
        "None",
        "tb.CScalar('int32', 7)",
        "grid=(4, 2)",
        "block=(128,)",
        "cluster=(2,)",
        "shared_bytes=1024",
    )


def test_what_decides_the_machine_code_is_written_apart_and_only_where_given() -> None:
    template = (Dtype("float16"), 128, True)
    written = cuda.KIND.options(launch_of(template=template, flags=("--use_fast_math",)))
    assert written == {
        "template": "template=(torch.float16, 128, True)",
        "flags": "flags=('--use_fast_math',)",
        "include": "",
    }


@pytest.mark.parametrize(
    ("argument", "c_type", "value"),
    [
        (CScalar("int32", -3), ctypes.c_int32, -3),
        (CScalar("int64", 2**40), ctypes.c_int64, 2**40),
        (CScalar("uint8", 255), ctypes.c_uint8, 255),
        (CScalar("bool", 1), ctypes.c_bool, True),
        (CScalar("float64", 1e-6), ctypes.c_double, 1e-6),
        (CScalar("float32", 0.5), ctypes.c_float, 0.5),
        (CScalar("float16", 1.0), ctypes.c_uint16, 0x3C00),
        (CScalar("bfloat16", 1.0), ctypes.c_uint16, 0x3F80),
        (CScalar("float8_e4m3fn", 1.0), ctypes.c_uint8, 0x38),
    ],
)
def test_a_number_has_the_width_it_was_given(argument: CScalar, c_type: Any, value: Any) -> None:
    made = c_value(argument)
    assert type(made) is c_type
    assert made.value == value


def test_a_tensor_is_the_address_of_its_first_element_and_none_the_null_pointer() -> None:
    tensor = torch.zeros(8)[2:]
    assert c_value(tensor).pointer == tensor.data_ptr()
    assert c_value(None).pointer == 0


def test_a_bare_number_is_refused_with_what_to_write() -> None:
    with pytest.raises(UsageError, match=r"4096 has no C width: write int32\(…\)"):
        c_value(4096)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_a_number_that_does_not_fit_its_width_is_refused(value: int) -> None:
    with pytest.raises(UsageError, match=f"{value} does not fit int32"):
        c_value(CScalar("int32", value))


def test_a_device_is_compiled_for_with_its_own_instructions() -> None:
    assert specific("sm_90") == "sm_90a"
    assert specific("sm_120") == "sm_120a"
    assert specific("sm_89") == "sm_89"


class FakeCore:
    """`cuda.core` for a device that has 100,000 bytes of shared memory; remembers what was launched."""

    LEGACY_DEFAULT_STREAM = "default stream"

    def __init__(self, widths: tuple[int, ...] | None) -> None:
        self.launched: list[tuple[Any, ...]] = []
        self.streams: list[int] = []
        parameters = widths and [SimpleNamespace(size=size) for size in widths]
        self.loaded = FakeKernel(parameters)
        self.Stream = SimpleNamespace(from_handle=self._stream)
        self.LaunchConfig = SimpleNamespace

    def Device(self, index: int) -> Any:  # noqa: N802 - as cuda-core spells it
        properties = SimpleNamespace(max_shared_memory_per_block_optin=100_000)
        return SimpleNamespace(set_current=lambda: None, properties=properties, index=index)

    def _stream(self, handle: int) -> str:
        self.streams.append(handle)
        return f"stream {handle}"

    def launch(self, *arguments: Any) -> None:
        self.launched.append(arguments)


class FakeKernel:
    attributes = SimpleNamespace(num_regs=40, local_size_bytes=16, shared_size_bytes=128)

    def __init__(self, parameters: Any) -> None:
        self._parameters = parameters

    @property
    def arguments_info(self) -> Any:
        if self._parameters is None:
            raise NotImplementedError("Driver version 12.4 or newer is required")
        return self._parameters


class Bound:
    """A kernel of three parameters (pointer, pointer, int) on a fake device."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *widths: int) -> None:
        self.core = FakeCore(widths or (8, 8, 4))
        self.noted: list[Any] = []
        self.opted: list[int] = []
        code = SimpleNamespace(get_kernel=lambda _: self.core.loaded)
        self.kernel = CudaKernel(
            source=SOURCE, code=code, device=0, note=self.noted.append, core=self.core
        )
        self.stream = 0
        stream = lambda _: SimpleNamespace(cuda_stream=self.stream)  # noqa: E731 - a fake in a line
        monkeypatch.setattr(torch.cuda, "current_stream", stream)
        monkeypatch.setattr(cuda, "opt_in", lambda _kernel, size, _device: self.opted.append(size))

    def bind(self, *args: Any, **sizes: Any) -> Any:
        return self.kernel.bind(*args, **{"grid": (4,), "block": (128,), **sizes})


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> Bound:
    return Bound(monkeypatch)


def test_a_launch_goes_to_the_stream_that_is_current_then(bound: Bound) -> None:
    x = torch.zeros(4)
    launch = bound.bind(x, None, CScalar("int32", 4))
    launch()
    bound.stream = 77  # as while a graph is captured
    launch()
    launch()
    assert [call[0] for call in bound.core.launched] == ["default stream", "stream 77", "stream 77"]
    assert bound.core.streams == [77]
    _, config, kernel, pointer, null, number = bound.core.launched[0]
    assert vars(config) == {"grid": (4,), "block": (128,), "cluster": None, "shmem_size": 0}
    assert kernel is bound.core.loaded
    assert (pointer, null, number.value) == (x.data_ptr(), 0, 4)


def test_another_number_of_arguments_is_refused(bound: Bound) -> None:
    with pytest.raises(UsageError, match="scale<__half, 128> takes 3 arguments, got 1"):
        bound.bind(None)


def test_an_argument_of_another_width_is_refused(bound: Bound) -> None:
    with pytest.raises(UsageError, match="argument 3 of scale<__half, 128> has 4 bytes, got 8"):
        bound.bind(None, None, CScalar("int64", 4))


def test_a_driver_that_cannot_tell_the_parameters_is_not_asked_for_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bound = Bound(monkeypatch)
    bound.core.loaded = FakeKernel(None)
    bound.bind(None)()
    assert len(bound.core.launched) == 1


def test_shared_memory_is_opted_in_above_48_kib(bound: Bound) -> None:
    arguments = (None, None, CScalar("int32", 4))
    bound.bind(*arguments, shared_bytes=48 << 10)
    assert bound.opted == []
    bound.bind(*arguments, shared_bytes=(48 << 10) + 16)()
    assert bound.opted == [(48 << 10) + 16]
    assert bound.core.launched[0][1].shmem_size == (48 << 10) + 16


def test_more_shared_memory_than_the_device_has_is_refused_with_both_numbers(bound: Bound) -> None:
    with pytest.raises(UsageError, match=r"asks for 200,000 bytes .* has at most 100,000"):
        bound.bind(None, None, CScalar("int32", 4), shared_bytes=200_000)


def test_a_grid_is_counted_in_blocks_also_with_clusters(bound: Bound) -> None:
    arguments = (None, None, CScalar("int32", 4))
    bound.bind(*arguments, grid=(8, 3), cluster=(4,))()
    config = bound.core.launched[0][1]
    assert (config.grid, config.cluster) == ((2, 3, 1), (4,))
    with pytest.raises(UsageError, match=r"\(6,\) blocks is no multiple of \(4,\)"):
        bound.bind(*arguments, grid=(6,), cluster=(4,))


def test_the_facts_of_a_kernel_are_read_when_they_are_asked_for(bound: Bound) -> None:
    core = pytest.importorskip("cuda.core")
    program = core.Program(
        'extern "C" __global__ void scale() {}', "c++", core.ProgramOptions(arch="sm_90")
    )
    code = program.compile("cubin")
    bound.bind(None, None, CScalar("int32", 4), shared_bytes=1024)
    (read,) = bound.noted
    bound.kernel.code.code = code.code
    facts = read()
    assert facts == CodeFacts(
        digest=facts.digest,
        registers=40,
        spills=4,
        shared_bytes=128 + 1024,
        stack_bytes=16,
        instructions=facts.instructions,
    )
    assert facts.digest.startswith("sass:")
    assert facts.instructions
    assert facts == code_facts(replace(bound.kernel, source=SOURCE), 1024, 256)
    on_h200 = code_facts(replace(bound.kernel, arch="sm_90"), 1024, 256)
    assert on_h200.occupancy == 0.75  # 40 registers: 48 of 64 warps


WORKLOAD = """\
schema = 1
description = "A cuda kernel"

[params]
dtype = "float16"

[matrix]
n = [1000]

[select]
default = ["n_1000"]
smoke = ["n_1000"]

[tensors]
x = { shape = ["n"], dtype = "dtype", init = "normal" }
y = { role = "out", like = "x" }

[kernels.scale]
kind = "cuda"
target = "scale.cu:scale"
template = ["dtype", 128]
grid = ["min(cdiv(n, 128), sm_count)"]
block = [128]
args = ["x", "y", "int32(n)"]
flags = ["--use_fast_math"]

[check.oracle]
target = "torch.mul"
args = ["x", 2]
returns = "y"
"""


@pytest.fixture
def case(tmp_path: Path) -> BoundCase:
    """The one case of a workload with a cuda kernel."""
    (tmp_path / "pyproject.toml").touch()
    kernel = "template <typename T, int N> __global__ void scale(const T* x, T* y, int n) {}"
    (tmp_path / "scale.cu").write_text(kernel)
    (tmp_path / "w.toml").write_text(WORKLOAD)
    (found,) = expand(load(tmp_path / "w.toml"))
    return found


def test_a_cuda_kernel_reads_as_a_build_and_a_binding(case: BoundCase) -> None:
    text = render(case.workload, [case]).text
    start = text.index("    @case.kernel('scale'")
    assert (
        text[start : text.index("    @case.oracle")]
        == """\
    @case.kernel('scale', requires=tb.Requires(device='cuda'))  # w.toml:18
    def kernel_scale():
        return case.cuda(
            'scale.cu:scale', template=(torch.float16, 128), flags=('--use_fast_math',)
        ).bind(
            x, y, tb.CScalar('int32', 1000), grid=(f.min(8, device.sm_count),), block=(128,)
        )

"""
    )


def test_a_cuda_kernel_is_skipped_where_there_is_no_cuda_device(case: BoundCase) -> None:
    planned = plan([("w.py", [case])], Ask(plan=Plan(device="cpu")))
    assert planned.jobs == []
    assert [(s.row.implementation, s.reason) for s in planned.answered] == [
        ("scale", "needs a CUDA device")
    ]


def test_a_case_on_the_cpu_has_no_cuda_kernel(tmp_path: Path) -> None:
    device = Device("cpu")
    case = Case(
        name="n4",
        folder=tmp_path,
        device=device,
        seed=0,
        placement=0,
        shared=Shared(Arena(device.torch)),
    )
    with pytest.raises(UsageError, match="is a cuda kernel, which needs a CUDA device"):
        case.cuda("kernels/scale.cu:scale")
