"""Each way to make a number easier, written into a workload that was fine: found, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.diff.conftest import BASELINE, Project
from tirbench import digest, reviewing
from tirbench.check import Rule
from tirbench.diff import exit_code
from tirbench.diff.checks import DEFAULT_RTOL
from tirbench.expand import expand
from tirbench.load import load
from tirbench.store.baseline import sealed

EDITS = {
    "tolerance up": ("rtol = 1e-4", "rtol = 5e-4", "output y: rtol 0.0001 → 0.0005"),
    "tolerance left to the default": ("rtol = 1e-4\natol = 1e-5", "", "output y: rtol"),
    "absolute tolerance up": ("atol = 1e-5", "atol = 1e-4", "output y: atol 1e-05 → 0.0001"),
    "only a part must match": (
        "rtol = 1e-4",
        'rtol = 1e-4\nmatched = 0.99\nreason = "r"',
        "output y: matched all → 0.99",
    ),
    "only the angle counts": (
        "rtol = 1e-4\natol = 1e-5",
        'cosine = 0.99\nreason = "r"',
        "output y: every element → cosine only",
    ),
    "nothing is compared": (
        "rtol = 1e-4\natol = 1e-5",
        'unchecked = "too slow"',
        "output y: no longer checked",
    ),
    "NaN allowed": ("rtol = 1e-4", "rtol = 1e-4\nallow_nan = true", "output y: NaN is allowed now"),
    "oracle retargeted": (
        'target = "kernels/right.py:doubled"',
        'target = "kernels/right.py:other"',
        "oracle: kernels/right.py:doubled → kernels/right.py:other",
    ),
    "oracle is the kernel": (
        'target = "kernels/right.py:doubled"\nargs = ["x"]',
        'target = "kernels/ops.py:fast"\nargs = ["x", "x"]',
        "oracle: kernels/right.py:doubled → kernels/ops.py:fast, which is a kernel under test",
    ),
    "oracle in less precision": (
        "[check.oracle]",
        '[check.oracle]\ndtype = "float32"',
        "oracle: computes in float32 instead of float64",
    ),
    "a case removed": ("[1024, 2048, 4096]", "[1024, 2048]", "case n4096: removed"),
    "a case skipped": (
        "[tensors]",
        '[[skip]]\nwhen = "n == 4096"\nreason = "slow"\n\n[tensors]',
        "case: skipped now",
    ),
    "a case out of the default": (
        "[tensors]",
        '[select]\ndefault = ["n1024"]\n\n[tensors]',
        "case: out of `default`",
    ),
    "a kernel skipped": (
        "[tensors]",
        '[[skip]]\nwhen = "n == 4096"\nimplementations = ["fast"]\nreason = "slow"\n\n[tensors]',
        "kernel fast: skipped now",
    ),
    "a reference retargeted": (
        'target = "kernels/ops.py:slow"',
        'target = "kernels/ops.py:fast"',
        "reference slow: target kernels/ops.py:slow → kernels/ops.py:fast",
    ),
    "an older version will do": (
        "torch>=2.6",
        "torch>=2.4",
        "reference slow: requires torch >=2.6 → >=2.4",
    ),
    "fewer machines": (
        'requires = { packages = ["torch>=2.6"] }',
        'requires = { packages = ["torch>=2.6"], capability = ">=9.0" }',
        "reference slow: requires capability none → >=9.0",
    ),
    "a looser reference": (
        'requires = { packages = ["torch>=2.6"] }',
        'requires = { packages = ["torch>=2.6"] }\nlooser = 2\nreason = "r"',
        "reference slow: tolerance times 1 → 2",
    ),
    "the same value everywhere": (
        'init = { kind = "uniform", low = -2.0, high = 2.0 }',
        'init = "ones"',
        "tensor x: contents uniform → ones: the same value everywhere",
    ),
    "a narrower range": (
        "low = -2.0",
        "low = 0.0",
        "tensor x: uniform over a narrower range: 4 → 2",
    ),
    "a smaller shape": (
        'shape = ["n"]',
        'shape = ["n // 2"]',
        "tensor x: smaller under the same id",
    ),
    "a smaller type": ('"float16"', '"float8_e4m3fn"', "tensor x: dtype float16 → float8_e4m3fn"),
    "warm": ('"cold-dirty"', '"warm"', "timer: l2 cold-dirty → warm"),
    "fewer rounds": ("rounds = 2", "rounds = 1", "timer: rounds 2 → 1"),
    "a wider gate": (
        'reference = "torch"\n',
        'reference = "torch"\nslower_than = 0.05\n',
        "gate: slower_than 0.01 → 0.05",
    ),
    "no ratio": ('[gate]\nreference = "torch"\n', "", "gate: the gate's reference torch → none"),
    "more work": (
        "nbytes(x) + nbytes(y)",
        "2 * nbytes(x) + nbytes(y)",
        "work: bytes 4,096 → 6,144",
    ),
    "a kernel renamed": ("[kernels.fast]", "[kernels.quick]", "kernel fast: renamed to quick"),
}


def texts(project: Project) -> list[str]:
    found = reviewing.diff(project.root, "main").weakenings
    return [f"{one.subject}: {one.text}" for one in found]


@pytest.mark.parametrize("name", EDITS)
def test_a_weaker_workload_is_found(project: Project, name: str) -> None:
    old, new, text = EDITS[name]
    project.write("workloads/kernels/right.py", RIGHT_AND_OTHER)
    project.commit("a second oracle")
    project.replace(old, new)
    assert any(one.startswith(text) for one in texts(project)), texts(project)


RIGHT_AND_OTHER = "def doubled(x):\n    return 2 * x\n\n\ndef other(x):\n    return x + x\n"

HARMLESS = {
    "tighter": ("rtol = 1e-4", "rtol = 1e-5"),
    "another word": ("y = 2 x", "twice"),
    "a case more": ("[1024, 2048, 4096]", "[1024, 2048, 4096, 8192]"),
    "a wider range": ("low = -2.0", "low = -4.0"),
    "more rounds": ("rounds = 2", "rounds = 3"),
    "ids renamed": ('id = "n{n}"', 'id = "size{n}"'),
    "blanks in expressions": ("nbytes(x) + nbytes(y)", "nbytes(x)+nbytes(y)"),
    "a comment": ("[matrix]", "[matrix] # sizes"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_weakens_nothing_is_not_called_weaker(project: Project, name: str) -> None:
    project.replace(*HARMLESS[name])
    assert texts(project) == []


def test_an_edited_oracle_is_found(project: Project) -> None:
    project.replace("2 * x", "x + x", "workloads/kernels/right.py")
    assert texts(project) == ["oracle: its code is another one"]


def test_a_rename_is_cosmetic_and_keeps_no_case_from_being_found(project: Project) -> None:
    project.replace('id = "n{n}"', 'id = "size{n}"')
    changes = reviewing.diff(project.root, "main").changes
    assert {one.kind for one in changes} == {"cosmetic"}


def test_a_comment_changes_nothing_at_all(project: Project) -> None:
    project.replace("[matrix]", "[matrix] # sizes")
    diff = reviewing.diff(project.root, "main")
    assert (diff.changes, diff.measure, diff.unchanged, diff.rows) == ((), (), 9, 9)


def test_the_default_tolerances_are_those_of_the_check() -> None:
    import torch

    from tirbench.check.rule import _DEFAULT_RTOL

    assert {
        str(name).removeprefix("torch."): one for name, one in _DEFAULT_RTOL.items()
    } == DEFAULT_RTOL
    assert Rule("y").elementwise
    assert torch.float16 in _DEFAULT_RTOL


# --- The record -----------------------------------------------------------------------------------

KEY = ("n1024", "fast")


def edited(project: Project, **changes: object) -> list[str]:
    rows = project.rows
    project.keep({**rows, KEY: sealed(replace(rows[KEY], **changes))})  # type: ignore[arg-type]
    return texts(project)


def test_a_number_without_another_source_or_environment_is_found(project: Project) -> None:
    assert edited(project, midmean_us=3.0, anchor_us=3.0) == [
        "pin n1024/fast on nvidia-h200: another number with the same source, code and environment"
    ]


def test_a_wider_band_is_found(project: Project) -> None:
    assert edited(project, band=0.02) == [
        "pin n1024/fast on nvidia-h200: the band is wider: 1 → 2 %"
    ]


def test_a_deleted_row_is_found_and_a_deleted_file(project: Project) -> None:
    rows = project.rows
    del rows[KEY]
    project.keep(rows)
    assert texts(project) == [
        "pin n1024/fast on nvidia-h200: row deleted, though the workload still has it"
    ]
    (project.root / BASELINE).unlink()
    assert texts(project) == ["baseline nvidia-h200: deleted, with 9 rows"]


def test_fewer_placements_are_found(project: Project) -> None:
    (case,) = [
        one
        for one in expand(load(project.root / "workloads/double.toml", project.root))
        if one.id == "n1024"
    ]
    found = edited(project, protocol=digest.protocol(case, "proton", 3, 2))
    assert found == ["pin n1024/fast on nvidia-h200: measured on 3 placements instead of 5"]


def test_another_problem_with_the_old_number_is_found(project: Project) -> None:
    project.replace("low = -2.0", "low = -4.0")
    project.pin()
    assert len(texts(project)) == 9
    assert all(
        one.endswith("another problem with the number of the old one") for one in texts(project)
    )


def test_a_pin_of_an_uncommitted_tree_is_found(project: Project) -> None:
    found = edited(project, reason="measured on an uncommitted tree")
    assert found == ["pin n1024/fast on nvidia-h200: pinned with --allow-dirty"]


def test_a_pin_of_what_nothing_checked_is_found(project: Project) -> None:
    found = edited(project, reason="not checked: no oracle")
    assert found == ["pin n1024/fast on nvidia-h200: pinned though nothing was checked"]


def test_a_slower_number_and_an_anchor_that_rose_are_found_unless_the_row_says_why(
    project: Project,
) -> None:
    other = "0123456789abcdef"
    changes = {"midmean_us": 4.4, "code": f"sass:{other}", "source": other}
    assert edited(project, **changes) == [
        "pin n1024/fast on nvidia-h200: the pinned time rose by 10 %: 4 → 4.4 µs"
    ]
    assert edited(project, anchor_us=4.2, **changes)[1:] == [
        "pin n1024/fast on nvidia-h200: the pinned anchor rose by 5 %: 4 → 4.2 µs"
    ]
    edited(project, anchor_us=4.2, reason="fewer registers for the fused path", **changes)
    diff = reviewing.diff(project.root, "main")
    assert {one.reason for one in diff.weakenings} == {"fewer registers for the fused path"}


def test_facts_of_a_device_that_are_deleted_are_found(project: Project) -> None:
    path = "workloads/baselines/nvidia-h200/device.toml"
    project.write(path, 'capability = "9.0"\n')
    project.commit("its device")
    (project.root / path).unlink()
    assert texts(project) == ["baseline nvidia-h200: what device it is of was deleted"]
    project.write(path, 'capability = "10.0"\n')
    assert texts(project) == ["baseline nvidia-h200: of compute capability 10 instead of 9"]


def test_a_stale_row_and_a_broken_seal_fail_and_old_ones_do_not(project: Project) -> None:
    rows = project.rows
    project.keep({**rows, KEY: replace(rows[KEY], midmean_us=3.0)})
    diff = reviewing.diff(project.root, "main")
    assert [one.kind for one in diff.problems] == ["broken"]
    project.replace("low = -2.0", "low = -4.0")
    kinds = [one.kind for one in reviewing.diff(project.root, "main").problems]
    assert sorted(kinds) == ["broken"] + ["stale"] * 8
    project.commit("broken on main")
    diff = reviewing.diff(project.root, "main")
    assert (diff.problems, exit_code(diff)) == ((), 0)


def test_a_file_in_the_middle_of_a_merge_is_broken(project: Project) -> None:
    text = (project.root / BASELINE).read_text()
    project.write(BASELINE, "<<<<<<< ours\n" + text)
    diff = reviewing.diff(project.root, "main")
    (problem,) = diff.problems
    assert (diff.weakenings, diff.pins) == ((), ())  # which rows it has nobody can tell
    assert problem.kind == "broken"
    assert "git checkout --ours" in problem.text


def test_faster_with_identical_code_and_a_slower_reference_are_noticed(project: Project) -> None:
    rows = project.rows
    torch = ("n1024", "torch")
    rows[KEY] = sealed(replace(rows[KEY], midmean_us=3.0, env="driver 590"))
    rows[torch] = sealed(replace(rows[torch], midmean_us=6.0, env="driver 590", reason="r"))
    project.keep(rows)
    first, second = reviewing.diff(project.root, "main").notices
    assert "faster with identical code" in first
    assert "which flatters every ratio to it" in second


def test_a_workload_that_cannot_be_read_is_2(project: Project) -> None:
    project.replace("[matrix]", "[matrixx]")
    diff = reviewing.diff(project.root, "main")
    assert exit_code(diff) == 2
    assert diff.invalid[0].startswith("workloads/double.toml: ")
