"""A branch as a reviewer meets it: everything at once, in a real repository."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.diff.conftest import BASELINE, Project
from tirbench import reviewing
from tirbench.diff import exit_code
from tirbench.model import Diff
from tirbench.report import diffs
from tirbench.store.baseline import sealed


@pytest.fixture
def branch(project: Project) -> Project:
    """A kernel's body edited, a tolerance loosened, a case added, a reference dropped, two rows pinned."""
    project.git("checkout", "--quiet", "-b", "work")
    project.replace("y.copy_(x + x)", "y.copy_(x.add(x))", "workloads/kernels/ops.py")
    project.replace("rtol = 1e-4", "rtol = 1e-3")
    project.replace("[1024, 2048, 4096]", "[1024, 2048, 4096, 8192]")
    before, _, rest = (
        (project.root / "workloads/double.toml").read_text().partition("[references.slow]")
    )
    project.write(
        "workloads/double.toml", before + "[check.oracle]" + rest.partition("[check.oracle]")[2]
    )
    rows = {key: row for key, row in project.rows.items() if key[1] != "slow"}
    project.keep(rows)
    project.pin(only=(("n1024", "fast"),), midmean_us=4.4, anchor_us=4.4)
    project.pin(only=(("n2048", "fast"),), midmean_us=3.6, anchor_us=3.6)
    project.commit("faster, they say")
    # What others did meanwhile is not the author's.
    project.git("checkout", "--quiet", "main")
    project.replace("y = 2 x", "y is twice x")
    project.commit("of others")
    project.git("checkout", "--quiet", "work")
    return project


def found(project: Project, head: str | None = "work") -> Diff:
    return reviewing.diff(project.root, "main", head)


def test_exactly_what_weakens_is_named(branch: Project) -> None:
    texts = {(one.subject, one.text) for one in found(branch).weakenings}
    assert texts == {
        ("output y", "rtol 0.0001 → 0.001"),
        ("reference slow", "removed"),
        ("pin n1024/fast on nvidia-h200", "the pinned time rose by 10 %: 4 → 4.4 µs"),
        ("pin n1024/fast on nvidia-h200", "the pinned anchor rose by 10 %: 4 → 4.4 µs"),
    }
    assert exit_code(found(branch)) == 1


def test_exactly_what_changed_is_named_and_nothing_of_others(branch: Project) -> None:
    told = {(one.kind, one.subject, one.what, one.old, one.new) for one in found(branch).changes}
    assert told == {
        ("contract", "output y", "rtol", "0.0001", "0.001"),
        ("contract", "reference slow", "", "there", None),
        ("contract", "case n8192", "", None, "added"),
        ("implementation", "kernel fast", "code of workloads/kernels/ops.py", None, "edited"),
    }


def test_the_two_numbers_are_shown_with_what_may_be_believed_of_them(branch: Project) -> None:
    moved = {one.case: one for one in found(branch).pins if one.old and one.new}
    assert {case: one.verdict for case, one in moved.items()} == {
        "n1024": "slower",
        "n2048": "faster",
    }
    assert moved["n1024"].ratio == pytest.approx(1.1)
    assert all("other code" in one.notes for one in moved.values())


def test_what_must_be_measured_is_what_the_pins_are_not_of(branch: Project) -> None:
    asked = {row.key for row in found(branch).measure}
    assert asked == {"double/n4096/fast", "double/n8192/fast", "double/n8192/torch"}
    assert {one.kind for one in found(branch).problems} == {"missing"}


def test_the_text_begins_with_the_verdict_and_weakening_stands_before_the_numbers(
    branch: Project,
) -> None:
    text = diffs.render(found(branch), "text", code=1)
    first, *_ = text.splitlines()
    assert first.startswith(
        "4 weakenings without a reason; 2 missing; 1 slower; 3 removed; 1 faster"
    )
    places = [
        text.index(word) for word in ("next:", "Weakened without", "Baselines", "what is timed")
    ]
    assert places == sorted(places)
    assert "workloads/double.toml:29  double: output y: rtol 0.0001 → 0.001" in text


def test_the_working_tree_is_compared_before_anything_is_committed(branch: Project) -> None:
    branch.git("reset", "--quiet", "--soft", "HEAD~1")
    assert found(branch, None).weakenings == found(branch, None).weakenings != ()
    assert len(found(branch, None).weakenings) == 4


def test_two_folders_are_compared_without_git(branch: Project, tmp_path: Path) -> None:
    for name in ("main", "work"):
        folder = tmp_path / name
        branch.git("worktree", "add", "--quiet", "--detach", str(folder), name)
    between = reviewing.diff(branch.root, str(tmp_path / "main"), str(tmp_path / "work"))
    assert len(between.weakenings) == 4


def test_a_reason_in_a_commit_message_answers_for_what_it_names(branch: Project) -> None:
    branch.commit("why\n\nTirbench-Reason: double/slow: nobody compares with it\n")
    said = {one.subject: one.reason for one in found(branch).weakenings}
    assert said["reference slow"] == "nobody compares with it"
    assert said["output y"] is None


def test_the_whole_is_right_once_every_weakening_has_a_reason(branch: Project) -> None:
    branch.replace("rtol = 1e-3", 'rtol = 1e-3\nreason = "rounded twice"')
    rows = branch.rows
    key = ("n1024", "fast")
    branch.keep({**rows, key: sealed(replace(rows[key], reason="a workaround of the driver"))})
    branch.pin(only=(("n4096", "fast"), ("n8192", "fast"), ("n8192", "torch")))
    branch.commit("why\n\nTirbench-Reason: double/slow: nobody compares with it\n")
    diff = found(branch)
    assert exit_code(diff) == 0
    assert not diff.measure
    assert {one.reason for one in diff.weakenings} == {
        "rounded twice",
        "nobody compares with it",
        "a workaround of the driver",
    }


def test_the_command_prints_markdown_and_exits_1(branch: Project) -> None:
    code = "import sys; from tirbench.commands.diff import command; sys.exit(command(standalone_mode=False))"
    checking = (
        code.replace("sys.exit(", "code = (")
        + "; assert not {'torch', 'numpy', 'triton'} & set(sys.modules); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", checking, "main", "work", "--format", "markdown"],
        cwd=branch.root,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("<!-- tirbench diff -->\n### ❌ 4 weakenings without a reason")
    assert "| double/n1024/fast | nvidia\\-h200 |" in done.stdout.replace(
        "nvidia-h200", "nvidia\\-h200"
    )


def test_the_markdown_names_exactly_the_same_and_the_weakening_before_everything_else(
    branch: Project,
) -> None:
    text = diffs.render(found(branch), "markdown", code=1)
    titles = [line for line in text.splitlines() if line.startswith(("#", "<details>"))]
    assert [re.sub(r"[#<>/]|details|summary", "", one).strip() for one in titles] == [
        f"❌ {diffs.verdict(found(branch))}",
        "Weakened without a reason",
        "Cannot stand",
        "Baselines",
        "Another answer: what is timed (1)",
        "Another promise: what must hold, and for which cases (3)",
        "To measure (3)",
    ]
    weakened = text.partition("Weakened without a reason")[2].partition("####")[0]
    said = re.findall(r"- \*\*(.*?)\*\* `(.*?)`", weakened)
    assert sorted(said) == [
        ("double: output y: rtol 0.0001 → 0.001", "workloads/double.toml:29"),
        (
            "double: pin n1024/fast on nvidia-h200: the pinned anchor rose by 10 %: 4 → 4.4 µs",
            BASELINE,
        ),
        (
            "double: pin n1024/fast on nvidia-h200: the pinned time rose by 10 %: 4 → 4.4 µs",
            BASELINE,
        ),
        ("double: reference slow: removed", "workloads/double.toml:17"),
    ]
    rows = re.findall(r"^\| double/(\S+) .* \| (slower|faster|removed) \|", text, re.MULTILINE)
    assert rows == [
        ("n1024/fast", "slower"),
        *((f"n{n}/slow", "removed") for n in (1024, 2048, 4096)),
        ("n2048/fast", "faster"),
    ]


def test_json_holds_the_verdict_and_everything_of_the_comparison(branch: Project) -> None:
    data = json.loads(diffs.render(found(branch), "json", code=1))
    assert data["exit"] == 1
    assert len(data["diff"]["weakenings"]) == 4


def test_annotations_stand_at_the_lines_that_must_change(branch: Project) -> None:
    lines = diffs.annotate(found(branch))
    assert any(
        line.startswith(
            "::error file=workloads/double.toml,line=29,title=weakening::double: output y"
        )
        for line in lines
    )
    assert any(line.startswith(f"::error file={BASELINE},title=weakening::") for line in lines)
