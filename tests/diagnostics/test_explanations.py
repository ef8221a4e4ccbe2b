"""Every code is explained, and every example is what it is said to be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tirbench.diagnostics import CODES, MAX_SHOWN
from tirbench.diagnostics.explanations import EXPLANATIONS, explain
from tirbench.errors import InputError
from tirbench.expand import expand
from tirbench.load import load

WHOLE = {
    "": 'schema = 1\ndescription = "Twice the input"\nid = "n{n}"',
    "[matrix]": "n = [64, 128]",
    "[tensors]": 'x = { shape = ["n"], dtype = "float32", init = "normal" }\n'
    'y = { role = "out", like = "x" }',
    "[kernels.ours]": 'target = "ops.py:double"\nargs = ["x", "y"]',
    "[references.torch]": 'target = "ops.py:doubled"\nargs = ["x"]\nreturns = "y"',
    "[check.oracle]": 'target = "ops.py:doubled"\nargs = ["x"]\nreturns = "y"',
}
"""A right workload by its tables; the tables of an example take the place of those of their name."""

OPS = """
import triton

@triton.jit
def double_kernel(x_ptr, y_ptr, N):
    pass

def double(x, y, z=None):
    y.copy_(2 * x)

def doubled(x):
    return 2 * x
"""

UNSHOWN = {"TB001", "TB002", "TB006", "TB007", "TB070", "TB071", "TB072", "TB099"}
"""Codes of what lines of a workload cannot show: its bytes, its name, a warning, its pins, a count."""


def put(example: str) -> str:
    """The whole workload with the tables of the example."""
    tables = dict(WHOLE)
    parts = re.split(r"(?m)^(\[.*\])$", example)
    if parts[0].strip():
        keys = {line.partition("=")[0].strip() for line in parts[0].splitlines()}
        kept = [
            line for line in tables[""].splitlines() if line.partition("=")[0].strip() not in keys
        ]
        tables[""] = "\n".join([parts[0].strip(), *kept])
    for header, body in zip(parts[1::2], parts[2::2], strict=True):
        tables[header] = body.strip()
    return "\n\n".join(f"{header}\n{body}" for header, body in tables.items()).lstrip() + "\n"


def problems(folder: Path, text: str) -> str:
    (folder / ".tirbench").mkdir(exist_ok=True)
    (folder / "ops.py").write_text(OPS)
    path = folder / "example.toml"
    path.write_text(text)
    try:
        expand(load(path))
    except InputError as error:
        return str(error)
    return ""


def test_no_code_is_without_an_explanation() -> None:
    assert EXPLANATIONS.keys() == CODES.keys()
    for code, explanation in EXPLANATIONS.items():
        assert explanation.text.endswith("."), code
        assert bool(explanation.wrong) == bool(explanation.right) == (code not in UNSHOWN), code


@pytest.mark.parametrize("code", sorted(CODES.keys() - UNSHOWN))
def test_what_is_called_wrong_is_wrong_for_that_reason(code: str, tmp_path: Path) -> None:
    found = problems(tmp_path, put(EXPLANATIONS[code].wrong))
    assert set(re.findall(r"error\[(TB\d+)\]", found)) == {code}, found


@pytest.mark.parametrize("code", sorted(CODES.keys() - UNSHOWN))
def test_what_is_called_right_is_right(code: str, tmp_path: Path) -> None:
    assert problems(tmp_path, put(EXPLANATIONS[code].right)) == ""


def test_an_explanation_begins_with_the_code_and_shows_both_examples() -> None:
    text = explain("TB012")
    assert text.startswith("TB012: wrong type\n\n")
    assert text.endswith('Wrong:\n\n    seed = "0"\n\nRight:\n\n    seed = 0\n')
    assert str(MAX_SHOWN) == "20", "TB099 says so in words"
