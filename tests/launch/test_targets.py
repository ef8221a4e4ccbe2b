"""Targets of a workload: files beside it and installed packages."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tirbench.errors import UsageError
from tirbench.launch.targets import load_dotted, load_target


def test_a_file_target_is_imported_once_and_finds_its_siblings(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "shared_by_both.py").write_text("FACTOR = 3\n")
    (tmp_path / "kernels" / "k.py").write_text(
        "from shared_by_both import FACTOR\n\ndef triple(x):\n    return FACTOR * x\n"
    )
    triple = load_target(tmp_path, "kernels/k.py:triple")
    assert triple(2) == 6
    assert load_target(tmp_path, "kernels/k.py:triple") is triple


def test_equal_file_names_in_two_folders_are_two_modules(tmp_path: Path) -> None:
    for side in ("old", "new"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "k.py").write_text(f"def name():\n    return {side!r}\n")
    names = [load_target(tmp_path / side, "k.py:name")() for side in ("old", "new")]
    assert names == ["old", "new"]


def test_a_missing_name_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text("")
    with pytest.raises(UsageError, match=r"k\.py has no function 'kernel'"):
        load_target(tmp_path, "k.py:kernel")


def test_a_file_that_fails_can_be_imported_again_after_it_is_mended(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text("raise ValueError('not yet')\n")
    with pytest.raises(ValueError, match="not yet"):
        load_target(tmp_path, "k.py:f")
    (tmp_path / "k.py").write_text("def f():\n    return 'mended now, and longer'\n")
    assert load_target(tmp_path, "k.py:f")() == "mended now, and longer"


def test_a_dotted_target_is_the_longest_module_then_attributes() -> None:
    assert load_dotted("math.sqrt") is math.sqrt
    assert load_dotted("pathlib.Path.cwd")() == Path.cwd()


def test_a_missing_package_keeps_the_message_of_python() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_package'"):
        load_dotted("no_such_package.ops.norm")


def test_a_missing_attribute_names_the_package_and_the_target() -> None:
    with pytest.raises(
        UsageError, match=r"math has no attribute 'sqroot' \(target 'math.sqroot'\)"
    ):
        load_dotted("math.sqroot")
