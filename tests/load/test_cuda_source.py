"""The kernels of a `.cu` file are found as a compiler would, without one."""

from __future__ import annotations

import pytest

from tirbench.load.cuda import kernels_of, parameters_at, without_comments

SOURCES = {
    "a kernel": ("__global__ void f(int a, float* b) {}", {"f": ("int a", "float* b")}),
    "none": ("void f(int a) {}", {}),
    "no parameters": ("__global__ void f(void) {}", {"f": ()}),
    "extern C": ('extern "C" __global__ void f(int a) {}', {"f": ("int a",)}),
    "launch bounds": ("__global__ void __launch_bounds__(128, 2) f(int a) {}", {"f": ("int a",)}),
    "bounds of a name": (
        "__global__ __launch_bounds__(kThreads) void f(int a) {}",
        {"f": ("int a",)},
    ),
    "a cluster": ("__global__ __cluster_dims__(2, 1, 1) void f(int a) {}", {"f": ("int a",)}),
    "an attribute": ("__global__ __attribute__((used)) void f(int a) {}", {"f": ("int a",)}),
    "a template": (
        "template <typename T, int N>\n__global__ void f(const Vec<T, N>* x, int (*g)(int, int)) {}",
        {"f": ("const Vec<T, N>* x", "int (*g)(int, int)")},
    ),
    "two": (
        "__global__ void f(int a);\n__global__ void g() {}\nvoid h() { f<<<1, 1>>>(1); }",
        {"f": ("int a",), "g": ()},
    ),
    "in comments": (
        "// __global__ void f()\n/* __global__ void g() */ __global__ void h() {}",
        {"h": ()},
    ),
    "in a text": ('const char* s = "/* \\" //"; __global__ void f(int a) {}', {"f": ("int a",)}),
    "comments among the parameters": (
        "__global__ void f(int a, // first, of two\n  int /* , */ b) {}",
        {"f": ("int a", "int b")},
    ),
    "a list that never closes": ("__global__ void f(int a", {"f": None}),
    "a word alone": ("__global__", {}),
}


@pytest.mark.parametrize("name", SOURCES)
def test_kernels_are_found_with_their_parameters(name: str) -> None:
    source, expected = SOURCES[name]
    code = without_comments(source)
    found = {kernel: parameters_at(code, at) for kernel, at in kernels_of(code).items()}
    assert found == expected


def test_what_no_comment_encloses_is_kept_to_the_letter() -> None:
    text = 'int a = \'"\'; char b[] = "// no comment"; // one'
    assert without_comments(text) == 'int a = \'"\'; char b[] = "// no comment";  '
