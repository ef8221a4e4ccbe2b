"""The repository of the tests of `diff`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.diff.conftest import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "project").mkdir()
    return Project(tmp_path / "project")
