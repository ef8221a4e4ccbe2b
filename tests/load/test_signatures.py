"""What a kernel file defines is read from its syntax tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tirbench.load.signatures import Definition, read_module

SOURCE = """
import triton
from elsewhere import imported

CONFIGS = [triton.Config({"BLOCK": 64}, num_warps=4)]


def make():
    return [triton.Config({"BLOCK": 64})]


@triton.jit
def plain(x, y, N: int, BLOCK=128, *, flag, other=1):
    pass


@triton.autotune(configs=CONFIGS, key=["N"])
@triton.heuristics({"EVEN": lambda args: True})
@triton.jit
def tuned(x, N, BLOCK, EVEN):
    pass


@triton.autotune(configs=[triton.Config(dict(A=a, B=1)) for a in (1, 2)], key=[])
@triton.jit
def comprehended(x, A, B):
    pass


@triton.autotune(configs=make(), key=[])
@triton.jit
def computed(x, BLOCK):
    pass


@surprising
def decorated(x):
    pass


if True:
    def conditional(*args, **kwargs):
        pass

assigned, (other, *rest) = plain, (1, 2)
"""


@pytest.fixture
def definitions(tmp_path: Path) -> dict[str, Definition]:
    path = tmp_path / "k.py"
    path.write_text(SOURCE)
    return read_module(path).definitions


def test_parameters_are_read_with_what_is_required(definitions: dict[str, Definition]) -> None:
    signature = definitions["plain"].signature
    assert signature is not None
    assert signature.positional == ("x", "y", "N", "BLOCK")
    assert signature.required == ("x", "y", "N", "flag")
    assert "other" in signature.by_name


@pytest.mark.parametrize(
    ("name", "tuned"),
    [
        ("tuned", {"BLOCK": "autotune", "EVEN": "heuristics"}),
        ("comprehended", {"A": "autotune", "B": "autotune"}),
        ("plain", {}),
    ],
)
def test_what_a_tuner_sets_is_read(
    name: str, tuned: dict[str, str], definitions: dict[str, Definition]
) -> None:
    assert dict(definitions[name].tuned) == tuned
    assert not definitions[name].tuned_unreadably


def test_configurations_that_are_computed_may_set_anything(
    definitions: dict[str, Definition],
) -> None:
    assert definitions["computed"].tuned_unreadably


def test_a_decorator_that_may_change_the_signature_hides_it(
    definitions: dict[str, Definition],
) -> None:
    assert definitions["decorated"].signature is None


def test_all_ways_to_bind_a_name_are_seen(definitions: dict[str, Definition]) -> None:
    assert {"imported", "triton", "CONFIGS", "conditional", "assigned", "other"} <= set(definitions)


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text("def f(): pass\n")
    assert "f" in read_module(path).definitions
    path.write_text("def longer(): pass\n")
    assert "longer" in read_module(path).definitions


def test_a_file_that_is_not_python_says_so(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_bytes(b"\x00\xff")
    assert read_module(path).error
    assert read_module(tmp_path / "none.py").error == "No such file or directory"
