"""Files become workloads, or everything that is wrong with them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from tirbench.errors import InputError
from tirbench.expression import Expression
from tirbench.load import find_root, load, load_all
from tirbench.model import DeadlineChoice, Workload
from tirbench.values import Dtype

EXAMPLES = sorted(path.stem for path in (Path(__file__).parent / "examples").glob("*.toml"))

SMALL = """\
schema = 1
description = "y = x"

[tensors]
x = { shape = [4], dtype = "float16", init = "normal" }
y = { role = "out", like = "x" }

[kernels.torch]
target = "torch.clone"
args = ["x"]
returns = "y"

[check.oracle]
target = "torch.clone"
args = ["x"]
returns = "y"
"""


def messages(path: Path) -> list[str]:
    with pytest.raises(InputError) as caught:
        load(path)
    return [diagnostic.message for diagnostic in caught.value.diagnostics]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_the_language_loads(name: str, example_project: Path) -> None:
    workload = load(example_project / f"{name}.toml")
    assert workload.name == name
    assert workload.source.path == f"{name}.toml"


def test_like_is_followed_and_a_view_has_the_role_of_its_base(example_project: Path) -> None:
    tensors = {t.name: t for t in load(example_project / "f8_state_update.toml").tensors}
    assert tensors["z"].shape == tensors["x"].shape
    assert tensors["y"].dtype == Expression("bfloat16")
    matmul = SMALL.replace("y = {", 'b = { role = "inout", like = "x", init = "ones" }\ny = {')
    matmul = matmul.replace('y = { role = "out", like = "x" }', 'y = { view = "b", shape = [4] }')
    path = example_project / "small.toml"
    path.write_text(matmul)
    assert {t.name: t.role for t in load(path).tensors}["y"] == "inout"


def test_text_that_spells_a_dtype_is_one(example_project: Path) -> None:
    matrix = dict(load(example_project / "matmul.toml").matrix)
    assert [type(dict(point)["dtype"]) for point in matrix["dtype"]] == [Dtype, Dtype]


def test_a_workload_without_axes_is_fine(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    assert load(tmp_path / "small.toml").matrix == ()


def test_all_problems_of_a_file_are_found_at_once(tmp_path: Path) -> None:
    bad = SMALL.replace("shape = [4]", 'shape = ["n"]').replace("float16", "flaot16")
    (tmp_path / "bad.toml").write_text(bad.replace("returns", "retruns", 1))
    assert len(messages(tmp_path / "bad.toml")) == 3


def test_problems_of_several_files_come_together_and_good_ones_are_kept(tmp_path: Path) -> None:
    (tmp_path / "good.toml").write_text(SMALL)
    (tmp_path / "bad.toml").write_text(SMALL + "colour = 1\n")
    workloads, diagnostics = load_all([tmp_path / "good.toml", tmp_path / "bad.toml"])
    assert [workload.name for workload in workloads] == ["good"]
    assert [diagnostic.file for diagnostic in diagnostics] == ["bad.toml"]


def test_two_files_of_one_stem_are_refused(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "pyproject.toml").touch()
    for path in (tmp_path / "a.toml", tmp_path / "sub" / "a.toml"):
        path.write_text(SMALL)
    _, diagnostics = load_all([tmp_path / "a.toml", tmp_path / "sub" / "a.toml"])
    assert [diagnostic.message for diagnostic in diagnostics] == [
        "a workload named 'a' exists already: a.toml"
    ]


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    assert messages(tmp_path / "none.toml") == ["cannot be read: No such file or directory"]
    assert messages(tmp_path) == ["cannot be read: Is a directory"]


def test_the_name_of_a_file_must_be_able_to_name_a_workload(tmp_path: Path) -> None:
    (tmp_path / "a b.toml").write_text(SMALL)
    assert messages(tmp_path / "a b.toml") == ["'a b' cannot name a workload"]


def test_a_link_out_of_the_project_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (tmp_path / "outside.py").write_text("def f(x):\n    return x\n")
    (root / "inside.py").symlink_to(tmp_path / "outside.py")
    (root / "w.toml").write_text(SMALL.replace("torch.clone", "inside.py:f"))
    assert set(messages(root / "w.toml")) == {"'inside.py' leaves the project"}


def test_the_root_is_the_nearest_folder_of_a_project(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    (tmp_path / "a" / ".tirbench").mkdir()
    assert find_root(folder / "w.toml") == tmp_path / "a"


def test_every_field_of_a_workload_comes_from_the_file() -> None:
    """A field that nothing fills would be a key of the schema that is silently ignored."""
    source = (Path(__file__).parents[2] / "tirbench" / "load" / "build.py").read_text()
    call = source[source.index("return Workload(") : source.index("# --- cases")]
    assert [f.name for f in fields(Workload) if f"{f.name}=" not in call] == []


def test_checking_files_imports_nothing_heavy(example_project: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tirbench.load import load_all; "
        "from tirbench.expand import expand; "
        f"w, d = load_all(sorted(Path({str(example_project)!r}).glob('*_*.toml'))); "
        "assert not d; [expand(x) for x in w]; "
        "print([m for m in ('torch', 'triton', 'numpy', 'jinja2', 'jsonschema', 'rich', 'difflib')"
        " if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_deadlines_are_seconds_by_stage(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL + "\n[deadlines]\ntime = 2.5\nbuild = 1200\n")
    assert load(path).deadlines == DeadlineChoice(build=1200, time=2.5)
