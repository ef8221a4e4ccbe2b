"""What all tests share: golden files, and where there is a GPU."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

Golden = Callable[[Path, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh", action="store_true", help="rewrite golden files, then read the diff"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none; the marker and nothing else decides."""
    if shutil.which("nvidia-smi") is None:
        for item in items:
            if item.get_closest_marker("gpu") is not None:
                item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text with a golden file, or rewrite the file under `--refresh`."""
    refresh = bool(request.config.getoption("--refresh"))

    def compare(path: Path, text: str) -> None:
        if refresh:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path.name} is missing: pytest --refresh writes it"
        assert text == path.read_text(encoding="utf-8")

    return compare
