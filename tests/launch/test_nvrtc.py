"""A `.cu` file becomes machine code on any machine, and what is wrong with it is said in one line."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch

from tirbench.errors import UsageError
from tirbench.launch import nvrtc
from tirbench.launch.nvrtc import (
    HEADERS,
    CompileError,
    CudaSource,
    compiled,
    explained,
    name_expression,
    program_options,
)
from tirbench.launch.sass import sections, text_digest

core = pytest.importorskip("cuda.core")

ROOT = Path(__file__).parents[2]
KERNEL = """\
#include <cuda_fp16.h>
#include "factor.cuh"

template <typename T, int THREADS, bool TWICE>
__global__ void scale(const T* x, T* y, int n) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  if (i < n) y[i] = T(float(x[i]) * FACTOR * (TWICE ? 2.0f : 1.0f));
}
"""


@pytest.fixture
def source(tmp_path: Path) -> CudaSource:
    (tmp_path / "kernels" / "include").mkdir(parents=True)
    (tmp_path / "kernels" / "scale.cu").write_text(KERNEL)
    (tmp_path / "kernels" / "include" / "factor.cuh").write_text("#define FACTOR 3.0f\n")
    return CudaSource(
        folder=tmp_path,
        file="kernels/scale.cu",
        expression="scale<__half, 128, false>",
        include=("kernels/include",),
    )


@pytest.mark.parametrize(
    ("template", "expression"),
    [
        ((), "k"),
        ((torch.float16, 256, 8, False), "k<__half, 256, 8, false>"),
        ((torch.bfloat16, True), "k<__nv_bfloat16, true>"),
        ((torch.float8_e4m3fn, torch.int64, -1), "k<__nv_fp8_e4m3, long long, -1>"),
    ],
)
def test_template_arguments_are_written_in_cpp(
    template: tuple[object, ...], expression: str
) -> None:
    assert name_expression("k", template) == expression


def test_a_float_is_no_template_argument() -> None:
    with pytest.raises(UsageError, match=r"takes integers, booleans and dtypes, not 0\.5"):
        name_expression("k", (0.5,))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_a_kernel_compiles_to_a_cubin_without_a_gpu(source: CudaSource, arch: str) -> None:
    code = compiled(source, arch)
    assert code.code_type == "cubin"
    names = [name for name, _ in sections(bytes(code.code))]
    assert [name for name in names if name.startswith(".text.")] == [
        ".text._Z5scaleI6__halfLi128ELb0EEvPKT_PS1_i"
    ]


def test_what_is_compiled_once_is_not_compiled_again(source: CudaSource) -> None:
    assert compiled(source, "sm_90a") is compiled(replace(source), "sm_90a")
    (source.folder / source.file).write_text(KERNEL.replace("2.0f", "4.0f"))
    assert compiled(source, "sm_90a") is compiled(source, "sm_90a")


def test_other_template_arguments_are_other_machine_code(source: CudaSource) -> None:
    other = replace(source, expression="scale<__half, 128, true>")
    digests = {text_digest([bytes(compiled(s, "sm_90a").code)]) for s in (source, other)}
    assert len(digests) == 2


def test_line_numbers_and_the_place_of_the_file_are_not_in_the_digest(
    source: CudaSource, tmp_path: Path
) -> None:
    moved = tmp_path / "kernels" / "moved.cu"
    moved.write_text("\n\n\n" + KERNEL)
    other = replace(source, file="kernels/moved.cu")
    one, two = (bytes(compiled(s, "sm_90a").code) for s in (source, other))
    assert one != two
    assert text_digest([one]) == text_digest([two])


def test_an_error_names_the_file_as_the_workload_does_and_its_line(source: CudaSource) -> None:
    (source.folder / source.file).write_text(KERNEL.replace("* FACTOR", "* FACTOUR"))
    with pytest.raises(CompileError) as caught:
        compiled(source, "sm_90a")
    first, _, log = str(caught.value).partition("\n\n")
    assert first == 'kernels/scale.cu:7: identifier "FACTOUR" is undefined'
    assert "kernels/scale.cu(7): error:" in log
    assert 'error detected in the compilation of "kernels/scale.cu"' in log
    assert str(source.folder) not in str(caught.value)


def test_an_error_of_an_included_file_names_that_file(source: CudaSource) -> None:
    (source.folder / "kernels/include/factor.cuh").write_text(
        "#define FACTOR 3.0f\n__device__ int x = ;\n"
    )
    with pytest.raises(
        CompileError, match=r"^kernels/include/factor\.cuh:2: expected an expression\n\n"
    ):
        compiled(source, "sm_90a")


def test_template_arguments_that_do_not_fit_name_the_kernel(source: CudaSource) -> None:
    with pytest.raises(
        CompileError,
        match=r"^kernels/scale\.cu: scale<__half>: cannot determine which instance .* \(and 1 more\)",
    ):
        compiled(replace(source, expression="scale<__half>"), "sm_90a")


def test_a_file_that_is_gone_is_a_usage_error(source: CudaSource) -> None:
    with pytest.raises(UsageError, match=r"kernels/gone\.cu cannot be read: No such file"):
        compiled(replace(source, file="kernels/gone.cu"), "sm_90a")


def test_flags_are_those_of_the_compilers_command_line(source: CudaSource) -> None:
    flags = (
        "--use_fast_math",
        "-std=c++20",
        "--maxrregcount=64",
        "-DA=1",
        "--define-macro=B",
        "--fmad=false",
        "--diag-suppress=177",
        "-lineinfo",
    )
    options = program_options(replace(source, flags=flags), "sm_90a").as_bytes("nvrtc")
    assert {
        b"-arch=sm_90a",
        b"--use_fast_math",
        b"--std=c++20",
        b"--maxrregcount=64",
        b"--define-macro=A=1",
        b"--define-macro=B",
        b"--fmad=false",
        b"--diag-suppress=177",
        b"--generate-line-info",
    } <= set(options)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("-arch=sm_80", "the code is compiled for the device that runs it"),
        ("-I/usr/include", "write the folder in `include`"),
        ("--include-path=/usr/include", "write the folder in `include`"),
        ("--nonsense", "is no flag that cuda-core hands to NVRTC"),
        ("use_fast_math", "is no flag of NVRTC: one flag an entry"),
        ("--maxrregcount 64", "is no flag of NVRTC: one flag an entry"),
    ],
)
def test_a_flag_that_cannot_be_given_says_why(source: CudaSource, flag: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        compiled(replace(source, flags=(flag,)), "sm_90a")


def test_a_flag_given_twice_is_refused(source: CudaSource) -> None:
    with pytest.raises(UsageError, match="'--std=c\\+\\+20' is given twice"):
        compiled(replace(source, flags=("--std=c++17", "--std=c++20")), "sm_90a")


def test_headers_that_are_nowhere_say_what_to_install(
    source: CudaSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = 'kernels/scale.cu(1): catastrophic error: cannot open source file "cuda_fp16.h"\n'
    monkeypatch.setattr(nvrtc, "header_folders", lambda: ())
    first = explained(f"NVRTC_ERROR_COMPILATION, compilation log:\n\n{log}", source).splitlines()[0]
    assert first == f'kernels/scale.cu:1: cannot open source file "cuda_fp16.h"; {HEADERS}'
    monkeypatch.setattr(nvrtc, "header_folders", lambda: ("/cuda/include",))
    assert HEADERS not in explained(log, source)


def test_a_failure_without_a_place_keeps_its_message(source: CudaSource) -> None:
    assert explained("libnvrtc.so.13 not found", source).splitlines()[0] == (
        "kernels/scale.cu: libnvrtc.so.13 not found"
    )


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("dtype", "threads"), [(torch.float16, 256), (torch.bfloat16, 512), (torch.float32, 512)]
)
def test_our_rmsnorm_keeps_to_its_registers(
    dtype: torch.dtype, threads: int, bias: bool, arch: str
) -> None:
    source = CudaSource(
        folder=ROOT / "workloads",
        file="kernels/rmsnorm.cu",
        expression=name_expression("rmsnorm", (dtype, threads, 16 // dtype.itemsize, bias)),
        flags=("--std=c++17", "--use_fast_math", "--ptxas-options=-v"),
        include=("kernels/include",),
    )
    log = StringIO()
    text = (source.folder / source.file).read_text()
    program = core.Program(text, "c++", program_options(source, arch))
    program.compile("cubin", name_expressions=(source.expression,), logs=log)
    assert "0 bytes spill stores, 0 bytes spill loads" in log.getvalue()
    registers = int(log.getvalue().partition("Used ")[2].split()[0])
    assert registers <= 65536 // 1536  # so that a multiprocessor holds the threads it counts on
