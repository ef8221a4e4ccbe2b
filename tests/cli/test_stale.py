"""`check` says which pinned numbers mean something else by now."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tirbench import reading, stale
from tirbench.diagnostics import Diagnostic
from tirbench.model import Baseline, PinnedRow
from tirbench.selection import Selection
from tirbench.store import write_baseline
from tirbench.store.baseline import sealed

WORKLOAD = """\
schema = 1
description = "Twice the input"
id = "n{n}"

[matrix]
n = [64, 128]

[tensors]
x = { shape = ["n"], dtype = "float32" }
y = { role = "out", like = "x" }

[[init]]
target = "kernels/ops.py:filled"
args = ["n"]
returns = "x"

[kernels.ours]
target = "kernels/ops.py:double"
args = ["x", "y"]

[check.oracle]
target = "kernels/ops.py:doubled"
args = ["x"]
returns = "y"
"""

OPS = """\
import torch


def filled(n):
    return torch.full((n,), 1.0)


def double(x, y):
    torch.mul(x, 2, out=y)


def doubled(x):
    return x * 2
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two cases of one kernel, pinned as they are."""
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "workloads" / "kernels").mkdir(parents=True)
    (tmp_path / "workloads" / "double.toml").write_text(WORKLOAD)
    (tmp_path / "workloads" / "kernels" / "ops.py").write_text(OPS)
    monkeypatch.chdir(tmp_path)
    pinned(tmp_path)
    return tmp_path


def pinned(root: Path, *more: PinnedRow) -> None:
    from tirbench import digest

    asked = Selection(files=("workloads",), select="all")
    (chosen,) = reading.read(asked).chosen
    read = digest.reader(root)
    rows = [
        PinnedRow(
            case=case.id,
            implementation="ours",
            midmean_us=1.0,
            band=0.01,
            anchor_us=1.0,
            problem=digest.problem(case, read),
            protocol=digest.protocol(case, "proton", 5, 2),
            code="src:" + "1" * 16,
            source="5a" * 8,
            env="torch 2.11.0",
            unit="97eb" * 3,
        )
        for case in chosen.cases
    ]
    baseline = Baseline(
        workload="double", hardware="nvidia-h200", rows=tuple(map(sealed, (*rows, *more)))
    )
    write_baseline(root, "workloads/baselines/nvidia-h200/double.toml", baseline)


def checked(*files: str) -> tuple[Diagnostic, ...]:
    return reading.check(Selection(files=files or ("workloads",), select="all")).found


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.usefixtures("project")
def test_pins_of_what_is_written_are_not_mentioned() -> None:
    assert checked() == ()


def test_a_changed_problem_makes_its_rows_stale(project: Path) -> None:
    edit(project / "workloads" / "kernels" / "ops.py", "1.0", "2.0")
    (found,) = checked()
    assert str(found) == (
        "workloads/baselines/nvidia-h200/double.toml:4:1: warning[TB070]: 2 of 2 rows mean something else "
        "by now: n128, n64\n"
        "  |\n"
        "4 | [n128.ours]\n"
        "  | ^^^^^^^^^^^\n"
        "help: on nvidia-h200: tirbench exec workloads/double.toml --pin"
    )


def test_a_changed_kernel_makes_no_row_stale(project: Path) -> None:
    edit(project / "workloads" / "kernels" / "ops.py", "torch.mul(x, 2, out=y)", "y.copy_(x + x)")
    assert checked() == ()


def test_a_changed_protocol_makes_all_rows_stale(project: Path) -> None:
    with (project / "workloads" / "double.toml").open("a") as file:
        file.write('\n[timer]\nl2 = "warm"\n')
    (found,) = checked()
    assert found.message == "2 of 2 rows mean something else by now: n128, n64"


def test_another_timer_than_the_default_is_a_way_to_pin(project: Path) -> None:
    path = project / "workloads" / "baselines" / "nvidia-h200" / "double.toml"
    from tirbench import digest

    (chosen,) = reading.read(Selection(files=("workloads",), select="all")).chosen
    case = chosen.cases[0]
    edit(path, digest.protocol(case, "proton", 5, 2), digest.protocol(case, "event", 3, 1))
    assert checked() == ()


def test_rows_of_cases_that_are_gone_are_named(project: Path) -> None:
    edit(project / "workloads" / "double.toml", "[64, 128]", "[64]")
    (found,) = checked()
    assert (found.code, found.severity, found.line) == ("TB071", "warning", 4)
    assert found.message == "1 of 2 rows is of no kernel or reference of a case: n128/ours"
    assert found.hint == "`tirbench pin --prune` drops it"


def test_a_baseline_in_the_middle_of_a_merge_is_an_error(project: Path) -> None:
    path = project / "workloads" / "baselines" / "nvidia-h200" / "double.toml"
    path.write_text("<<<<<<< HEAD\n" + path.read_text())
    (found,) = checked()
    assert (found.code, found.severity, found.line) == ("TB072", "error", 1)
    assert found.message.startswith("conflict marker of a merge.")
    assert "git checkout --ours -- workloads/baselines/nvidia-h200/double.toml" in found.hint


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff\xfe", "not UTF-8 text"),
        (b"x = " + b"[" * 100_000, "maximum recursion depth exceeded"),
        (b"#" * (1 << 20) + b"#", "larger than 1 MiB"),
        (b".".join([b"a"] * 5_000) + b" = 1", "a key of too many parts"),
    ],
    ids=["bytes", "nested", "large", "key"],
)
def test_a_baseline_that_a_stranger_wrote_is_an_error_and_no_crash(
    project: Path, data: bytes, message: str
) -> None:
    (project / "workloads" / "baselines" / "nvidia-h200" / "double.toml").write_bytes(data)
    (found,) = checked()
    assert (found.code, found.severity) == ("TB072", "error")
    assert found.message.startswith(message)


def test_nothing_outside_of_the_project_is_read_or_written(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "double.toml").write_text("secret")
    baselines = project / "workloads" / "baselines"
    shutil.rmtree(baselines / "nvidia-h200")
    (baselines / "nvidia-h200").symlink_to(outside)
    (project / ".tirbench").symlink_to(outside)
    (found,) = checked()
    assert (found.code, found.message) == ("TB072", "outside of the project")
    assert [path.name for path in outside.iterdir()] == ["double.toml"]


def test_one_case_by_name_says_nothing_of_the_others(project: Path) -> None:
    edit(project / "workloads" / "kernels" / "ops.py", "1.0", "2.0")
    assert checked("workloads/double.toml::n64") == ()


# --- What is kept, so that it is not found anew -----------------------------------------------------


def kept(project: Path) -> Path:
    (file,) = (project / ".tirbench" / "stale").iterdir()
    return file


@pytest.fixture
def digests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The baselines that are looked at anew."""
    looked: list[str] = []
    look = stale._look

    def counting(*given: object) -> object:
        looked.append(str(given[-1]))
        return look(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(stale, "_look", counting)
    return looked


def test_what_did_not_change_is_not_digested_again(project: Path, digests: list[str]) -> None:
    edit(project / "workloads" / "kernels" / "ops.py", "1.0", "2.0")
    first, second = checked(), checked()
    assert first == second != ()
    assert len(digests) == 1
    assert (project / ".tirbench" / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize(
    "change",
    [
        lambda root: edit(root / "workloads" / "kernels" / "ops.py", "1.0", "2.0"),
        lambda root: edit(root / "workloads" / "double.toml", "[64, 128]", "[64]"),
        lambda root: edit(
            root / "workloads" / "baselines" / "nvidia-h200" / "double.toml", "97eb", "97ec"
        ),
        lambda root: shutil.copytree(
            root / "workloads" / "baselines" / "nvidia-h200",
            root / "workloads" / "baselines" / "nvidia-b200",
        ),
        lambda root: (root / "workloads" / "kernels" / "ops.py").unlink(),
    ],
)
def test_whatever_it_depends_on_has_it_found_anew(
    project: Path, digests: list[str], change: Callable[[Path], object]
) -> None:
    checked()
    digests.clear()
    change(project)
    checked()
    assert digests or not (project / "workloads" / "kernels" / "ops.py").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}', "[1, 2", '{"found": "x"}'])
def test_what_is_kept_and_cannot_be_read_is_found_anew(
    project: Path, digests: list[str], text: str
) -> None:
    checked()
    digests.clear()
    kept(project).write_text(text)
    assert checked() == ()
    assert len(digests) == 1
    assert json.loads(kept(project).read_text())["found"] == []


def test_what_somebody_else_has_put_there_is_no_diagnostic_of_ours(
    project: Path, digests: list[str]
) -> None:
    edit(project / "workloads" / "kernels" / "ops.py", "1.0", "2.0")
    checked()
    for field, value in (("code", "TB999"), ("severity", "note"), ("line", "4"), ("message", 4)):
        data = json.loads(kept(project).read_text())
        data["found"][0][field] = value
        kept(project).write_text(json.dumps(data))
        digests.clear()
        assert checked()[0].code == "TB070"
        assert len(digests) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_project_that_cannot_be_written_is_checked_all_the_same(project: Path) -> None:
    project.chmod(0o500)
    try:
        assert checked() == ()
    finally:
        project.chmod(0o700)
