"""What several parts of the test suite share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent / "load" / "examples"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh",
        action="store_true",
        help="write what the code says now into the expected files instead of comparing with them",
    )


@pytest.fixture
def refresh(request: pytest.FixtureRequest) -> bool:
    """Whether expected files are to be rewritten; look at their diff afterwards."""
    return bool(request.config.getoption("--refresh"))


@pytest.fixture
def example_project(tmp_path: Path) -> Path:
    """A project with the example workloads of the language and stand-ins for their kernels."""
    (tmp_path / ".tirbench").mkdir()
    (tmp_path / "kernels" / "include").mkdir(parents=True)
    for source in (EXAMPLES / "kernels").glob("*.txt"):
        shutil.copy(source, tmp_path / "kernels" / source.stem)
    for source in EXAMPLES.glob("*.toml"):
        shutil.copy(source, tmp_path / source.name)
    return tmp_path
