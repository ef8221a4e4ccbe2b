"""Whatever is done to a file, it loads or says what is wrong with it."""

from __future__ import annotations

import random
import re
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tirbench.errors import InputError
from tirbench.expand import expand
from tirbench.load import load

EXAMPLES = Path(__file__).parent / "examples"
TEXTS = [path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.toml"))]
WORDS = sorted({word for text in TEXTS for word in re.findall(r'"[^"\n]*"|\w+|[=\[\]{},]', text)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("damage")
    (root / ".tirbench").mkdir()
    (root / "kernels" / "include").mkdir(parents=True)
    for source in (EXAMPLES / "kernels").glob("*.txt"):
        shutil.copy(source, root / "kernels" / source.stem)
    return root


def damaged(seed: int) -> str:
    """An example with a few of its words replaced by words of other examples, or left out."""
    rng = random.Random(seed)  # noqa: S311 - damage, not secrets
    parts = re.split(r'("[^"\n]*"|\w+|[=\[\]{},])', rng.choice(TEXTS))
    values = [index for index, part in enumerate(parts) if part[:1] == '"' or part.isdigit()]
    texts = [word for word in WORDS if word[0] == '"' or word.isdigit()]
    anywhere = rng.random() < 0.3  # most such files are not even TOML
    for _ in range(rng.randint(1, 4)):
        index = rng.randrange(len(parts)) if anywhere else rng.choice(values)
        parts[index] = rng.choice(["1", "-1", "true", '"omit"', *(WORDS if anywhere else texts)])
    return "".join(parts)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 2**32))
def test_a_damaged_file_gives_our_errors_and_no_others(folder: Path, seed: int) -> None:
    path = folder / "w.toml"
    path.write_text(damaged(seed), encoding="utf-8")
    with suppress(InputError):
        expand(load(path))
