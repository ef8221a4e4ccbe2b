"""A few hundred of the inputs of `fuzz`, from seeds that hypothesis picks and shrinks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from . import fuzz

INPUTS = {"damaged files": 2, "changed bytes": 4, "random TOML": 3, "expressions": 10}
"""Of each target in one example."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fuzz.project(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("name", fuzz.TARGETS)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32))
def test_nothing_but_our_errors_escapes(name: str, root: Path, seed: int) -> None:
    outcomes = fuzz.run(fuzz.TARGETS[name], INPUTS[name], seed, root)
    assert outcomes.total() == INPUTS[name]


def test_some_of_the_damaged_files_are_still_right(root: Path) -> None:
    """Or the renderer would see none."""
    assert fuzz.run(fuzz.damaged, 60, 0, root)["rendered"] > 0
