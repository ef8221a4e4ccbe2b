"""Source closures: what a target depends on, by reading."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tirbench.digest import closure

KERNELS = '''"""Kernels and what makes their inputs."""
from __future__ import annotations
import torch
import triton
from _scales import SCALE, unused
from . import _grid

torch.set_printoptions(precision=3)
BLOCK = 128  # tuned
OTHER = 1


@triton.jit
def kernel(x_ptr):
    """One row a program."""
    return _grid.cdiv(x_ptr, BLOCK)


def quantise(x):
    """Make the scales."""

    def inner(y):
        # a comment
        return y * SCALE

    return inner(x) + helper(x)


def helper(x):
    return x


if __name__ == "__main__":
    quantise(1)
'''
FILES = {
    "w/kernels/k.py": KERNELS,
    "w/kernels/_scales.py": "SCALE = 448.0\nunused = 2\nother = 3\n",
    "w/kernels/_grid.py": "def cdiv(a, b):\n    return -(-a // b)\n",
    "w/kernels/k.cu": '#include <cuda.h>\n#include "k.cuh"\nint x;   \n',
    "w/kernels/k.cuh": "int y;\r\n",
}


def reading(files: dict[str, str]) -> Callable[[str], bytes | None]:
    return lambda path: files[path].encode() if path in files else None


def edited(path: str, old: str, new: str) -> dict[str, str]:
    assert old in FILES[path]
    return {**FILES, path: FILES[path].replace(old, new)}


def test_the_files_of_a_kernel_are_those_beside_it_that_it_imports() -> None:
    found = closure.files("w/kernels/k.py", reading(FILES))
    assert sorted(found) == ["w/kernels/_grid.py", "w/kernels/_scales.py", "w/kernels/k.py"]
    assert "comment" not in found["w/kernels/k.py"]
    assert "One row" not in found["w/kernels/k.py"]


def test_the_files_of_a_cuda_kernel_are_those_it_includes_in_quotes() -> None:
    found = closure.files("w/kernels/k.cu", reading(FILES))
    assert sorted(found) == ["w/kernels/k.cu", "w/kernels/k.cuh"]
    assert found["w/kernels/k.cuh"] == "int y;"


def test_include_folders_are_looked_in_too() -> None:
    files = {
        "w/kernels/k.cu": '#include "rows.cuh"\n',
        "w/include/rows.cuh": '#include "sums.cuh"\n',
        "w/include/sums.cuh": "int s;\n",
    }
    assert sorted(closure.files("w/kernels/k.cu", reading(files), ["w/include"])) == sorted(files)
    assert sorted(closure.files("w/kernels/k.cu", reading(files))) == ["w/kernels/k.cu"]


def test_imports_inside_functions_packages_and_parents_are_followed() -> None:
    files = {
        "w/k.py": "def f():\n    import pkg.sub\n    from .. import top\n",
        "w/pkg/__init__.py": "A = 1\n",
        "w/pkg/sub.py": "from . import peer\nfrom .peer import x\n",
        "w/pkg/peer.py": "x = 1\n",
        "top.py": "t = 1\n",
        "w/unrelated.py": "u = 1\n",
    }
    assert sorted(closure.files("w/k.py", reading(files))) == [
        "top.py",
        "w/k.py",
        "w/pkg/__init__.py",
        "w/pkg/peer.py",
        "w/pkg/sub.py",
    ]


def test_a_missing_file_has_an_empty_closure_and_a_cycle_ends() -> None:
    assert closure.files("w/none.py", reading(FILES)) == {}
    cycle = {"a.py": "import b\n", "b.py": "import a\n"}
    assert sorted(closure.files("a.py", reading(cycle))) == ["a.py", "b.py"]


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("w/kernels/k.py", "# tuned", "# tuned again"),
        ("w/kernels/k.py", "BLOCK = 128", "BLOCK = 256"),
        ("w/kernels/k.py", "return _grid", "return 2 * _grid"),
        ("w/kernels/k.py", "OTHER = 1", "OTHER = 2"),
        ("w/kernels/k.py", "Make the scales.", "Make scales."),
        ("w/kernels/k.py", "# a comment", "# another"),
        ("w/kernels/k.py", "    quantise(1)", "    quantise(2)"),
        ("w/kernels/_scales.py", "other = 3", "other = 4"),
        ("w/kernels/_grid.py", "-(-a // b)", "(a + b - 1) // b"),
    ],
)
def test_a_function_does_not_depend_on_what_it_does_not_reach(
    path: str, old: str, new: str
) -> None:
    before = closure.function("w/kernels/k.py", "quantise", reading(FILES))
    after = closure.function("w/kernels/k.py", "quantise", reading(edited(path, old, new)))
    assert sorted(before) == ["w/kernels/_scales.py", "w/kernels/k.py"]
    assert after == before


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("w/kernels/k.py", "return x\n", "return 2 * x\n"),
        ("w/kernels/k.py", "return y * SCALE", "return SCALE * y"),
        ("w/kernels/_scales.py", "448.0", "240.0"),
        ("w/kernels/k.py", "precision=3", "precision=4"),
    ],
)
def test_a_function_depends_on_helpers_imported_constants_and_side_effects(
    path: str, old: str, new: str
) -> None:
    before = closure.function("w/kernels/k.py", "quantise", reading(FILES))
    assert closure.function("w/kernels/k.py", "quantise", reading(edited(path, old, new))) != before


def test_a_decorator_belongs_to_its_function() -> None:
    files = {"k.py": "@cache\ndef f():\n    return 1\n"}
    assert closure.function("k.py", "f", reading(files)) == {
        "k.py": "@cache\ndef f():\n    return 1"
    }


@pytest.mark.parametrize(
    "text",
    [
        "from _scales import *\n\ndef f(x):\n    return SCALE\n",
        "f = __import__('x').f\n",
        "broken(",
    ],
)
def test_what_cannot_be_followed_takes_whole_files(text: str) -> None:
    files = {"w/kernels/k.py": text, "w/kernels/_scales.py": FILES["w/kernels/_scales.py"]}
    before = closure.function("w/kernels/k.py", "g", reading(files))
    assert "w/kernels/k.py" in before
    if "_scales" in text:
        reached = closure.function("w/kernels/k.py", "f", reading(files))
        assert "w/kernels/_scales.py" in reached
