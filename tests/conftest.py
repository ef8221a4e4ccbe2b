"""What several parts of the test suite share."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

Golden = Callable[[Path, str], None]

EXAMPLES = Path(__file__).parent / "load" / "examples"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh",
        action="store_true",
        help="write what the code says now into the expected files instead of comparing with them",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none; the marker and nothing else decides."""
    if shutil.which("nvidia-smi") is None:
        for item in items:
            if item.get_closest_marker("gpu") is not None:
                item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


@pytest.fixture
def refresh(request: pytest.FixtureRequest) -> bool:
    """Whether expected files are to be rewritten; look at their diff afterwards."""
    return bool(request.config.getoption("--refresh"))


@pytest.fixture
def golden(refresh: bool) -> Golden:
    """Compare a text with a golden file, or rewrite the file under `--refresh`."""

    def compare(path: Path, text: str) -> None:
        if refresh:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path.name} is missing: pytest --refresh writes it"
        assert text == path.read_text(encoding="utf-8")

    return compare


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
