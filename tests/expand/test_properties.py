"""Ids are unique and stable; cases do not depend on how a file is formatted or how its keys are ordered."""

from __future__ import annotations

import tempfile
from itertools import product
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tirbench.expand import expand
from tirbench.load import load
from tirbench.model import Case

NAMES = st.lists(
    st.from_regex(r"[a-e][a-e0-9_]{0,4}", fullmatch=True).filter(lambda n: n not in ("and", "as")),
    min_size=1,
    max_size=3,
    unique=True,
)
POINTS = st.one_of(
    st.lists(st.integers(1, 10_000), min_size=1, max_size=3, unique=True),
    st.lists(st.sampled_from(["float16", "bfloat16", "int8"]), min_size=1, max_size=3, unique=True),
    st.lists(st.booleans(), min_size=1, max_size=2, unique=True),
)
FIXED = """
[kernels.ours]
target = "torch.clone"
args = ["xx"]
returns = "yy"
[check.oracle]
target = "torch.clone"
args = ["xx"]
returns = "yy"
"""
TENSORS = (
    'xx = { shape = [4], dtype = "float16", init = "normal" }',
    'yy = { role = "out", like = "xx" }',
)


def written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def cases(text: str) -> tuple[Case, ...]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "w.toml"
        path.write_text(text)
        return expand(load(path))


@settings(max_examples=60, deadline=None)
@given(NAMES, st.data())
def test_ids_are_unique_ordered_and_free_of_formatting(
    names: list[str], data: st.DataObject
) -> None:
    axes = {name: data.draw(POINTS) for name in names}
    matrix = [f"{name} = [{', '.join(map(written, points))}]" for name, points in axes.items()]
    head = 'schema = 1\ndescription = "d"\n'
    plain = cases("\n".join([head, "[matrix]", *matrix, "[tensors]", *TENSORS, FIXED]))
    spread = [
        line.replace(", ", ",\n   # note\n   ").replace(" = [", "   =  [ ") for line in matrix
    ]
    other = cases("\n".join([head, FIXED, "[tensors]", *reversed(TENSORS), "[matrix]", *spread]))
    ids = [case.id for case in plain]
    assert len(set(ids)) == len(ids) == len(list(product(*axes.values())))
    assert ids == [case.id for case in other]
    assert [case.values for case in plain] == [case.values for case in other]
    assert {t.name: t for t in plain[0].tensors} == {t.name: t for t in other[0].tensors}
