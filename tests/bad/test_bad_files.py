"""Every bad file gives exactly the message that stands beside it.

`pytest tests/bad --refresh` rewrites the messages; read the diff before you commit it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tirbench.diagnostics import CODES
from tirbench.errors import InputError
from tirbench.expand import expand
from tirbench.load import load

FOLDER = Path(__file__).parent
FILES = sorted(path.stem for path in FOLDER.glob("*.toml"))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the stand-in kernels that the corpus names."""
    root = tmp_path_factory.mktemp("project")
    (root / "pyproject.toml").touch()
    (root / "kernels").mkdir()
    for source in (FOLDER / "kernels").glob("*.txt"):
        shutil.copy(source, root / "kernels" / source.stem)
    return root


def problems_of(project: Path, name: str) -> str:
    path = project / f"{name}.toml"
    shutil.copy(FOLDER / path.name, path)
    try:
        expand(load(path))
    except InputError as error:
        return f"{error}\n"
    return ""


@pytest.mark.parametrize("name", FILES)
def test_a_bad_file_gives_the_message_beside_it(project: Path, name: str, refresh: bool) -> None:
    expected = FOLDER / f"{name}.txt"
    message = problems_of(project, name)
    if refresh:
        expected.write_text(message, encoding="utf-8")
    assert message == expected.read_text(encoding="utf-8")
    assert message, "a file of the corpus must be bad"


def test_every_message_has_a_file_and_every_file_a_message() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.txt")) == FILES


def test_the_corpus_shows_every_error_code() -> None:
    shown = "".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.txt"))
    unshown = {code for code in CODES if f"[{code}]" not in shown}
    assert sorted(unshown) == [
        "TB001",
        "TB006",
        "TB007",
        "TB070",
        "TB071",
        "TB072",
    ], "these need a file that cannot be in the corpus, are warnings, or are of baselines"
