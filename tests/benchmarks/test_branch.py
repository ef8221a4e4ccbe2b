"""`benchmarks/branch.py` without a device: plants, the search for a strength and what is expected."""

from __future__ import annotations

import ast
import json
import math
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirbench import codec
from tirbench.model import PairEstimate, PairReport, Row, Verdict, VerdictKind

ROOT = Path(__file__).parents[2]
OWN = "matmul/m2048_n2048_k2048_bfloat16/triton"
OTHER = "matmul/m2048_n2048_k2048_bfloat16/triton_tma"


@pytest.fixture(scope="module")
def plants() -> Iterator[ModuleType]:
    """`benchmarks` is no installed package."""
    sys.path.insert(0, str(ROOT))
    yield import_module("benchmarks.branch_plants")
    sys.path.remove(str(ROOT))


@pytest.fixture(scope="module")
def projects(plants: ModuleType) -> ModuleType:
    return import_module(plants.__name__.replace("_plants", "_project"))


@pytest.fixture(scope="module")
def branch(plants: ModuleType) -> ModuleType:
    return import_module(plants.__name__.removesuffix("_plants"))


def verdict(key: str, kind: VerdictKind, slower: float) -> Verdict:
    workload, case, implementation = key.split("/")
    return Verdict(
        row=Row(workload=workload, case=case, implementation=implementation, role="kernel"),
        kind=kind,
        rule="within-band",
        reason="",
        estimate=PairEstimate(log_ratio=math.log1p(slower), standard_error=0.0004, workers=5),
    )


def report(*verdicts: Verdict) -> PairReport:
    return PairReport(id="1", base="main", head="here", hardware="h", verdicts=verdicts)


# --- Plants ---------------------------------------------------------------------------------------


def _functions(text: str) -> dict[str, str]:
    tree = ast.parse(text)
    return {one.name: ast.dump(one) for one in tree.body if isinstance(one, ast.FunctionDef)}


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_plant_changes_one_kernel_of_the_suite_and_no_other_function_of_its_file(
    plants: ModuleType, tmp_path: Path, device: str
) -> None:
    plant = plants.PLANTS[device]
    before = (ROOT / plant.file).read_text(encoding="utf-8")
    copy = tmp_path / plant.file
    copy.parent.mkdir(parents=True)
    copy.write_text(before, encoding="utf-8")
    plant.into(tmp_path, 100)
    old, new = _functions(before), _functions(copy.read_text(encoding="utf-8"))
    assert old.keys() == new.keys()
    assert [name for name in old if old[name] != new[name]] == [
        {"cuda": "matmul_kernel", "cpu": "softmax_llvm"}[device]
    ]
    with pytest.raises(ValueError, match="not as the plant knows it"):
        plant.into(tmp_path, 100)


def test_the_workload_of_a_plant_has_the_kernel_and_is_among_the_files(
    plants: ModuleType, branch: ModuleType
) -> None:
    for device, plant in plants.PLANTS.items():
        text = (ROOT / "workloads" / f"{plant.workload}.toml").read_text(encoding="utf-8")
        assert f"[kernels.{plant.kernel}]" in text
        assert f"workloads/{plant.workload}.toml" in branch.DEFAULT_FILES[device][0]


# --- The strength of a size -----------------------------------------------------------------------


@given(slope=st.floats(1e-5, 1e-3), offset=st.floats(-0.002, 0.002), wanted=st.floats(0.009, 0.014))
def test_two_tries_on_a_line_give_the_strength_of_what_is_wanted(
    plants: ModuleType, slope: float, offset: float, wanted: float
) -> None:
    tried = {100: offset + 100 * slope, 400: offset + 400 * slope}
    strength = plants.strength_for(tried, wanted)
    if 1 < strength < 8 * 400:
        assert abs(offset + strength * slope - wanted) <= slope


def test_the_search_ends_at_the_first_strength_that_is_what_is_asked_for(
    plants: ModuleType,
) -> None:
    plant, aim = plants.MATMUL, plants.Aim(low=0.009, high=0.014)
    asked: list[int] = []

    def measure(strength: int) -> Mapping[str, Any]:
        asked.append(strength)
        return {OWN: plants.Effect(0.002 + 0.00008 * strength, 0.0005)}

    strength, found = plants.search(plant, aim, measure, tries=4)
    assert aim.met(found[strength])
    assert asked == list(found)
    assert len(asked) <= 3


def test_a_search_that_nothing_can_measure_answers_the_first_strength(plants: ModuleType) -> None:
    plant, aim = plants.MATMUL, plants.Aim(low=0.009, high=0.014)
    assert plants.search(plant, aim, lambda _: {}, tries=4) == (plant.first, {})


def test_a_try_without_effect_is_followed_by_a_stronger_one(plants: ModuleType) -> None:
    assert plants.strength_for({200: -0.001}, 0.01) == 400


# --- What is expected -----------------------------------------------------------------------------


@pytest.fixture
def proof(branch: ModuleType, projects: ModuleType, tmp_path: Path) -> Any:
    plant = import_module("benchmarks.branch_plants").MATMUL
    return branch.Proof(
        project=projects.Project(tmp_path), plant=plant, device="cuda", files=(), until=0.0
    )


@pytest.mark.parametrize(
    ("true", "own", "other", "right"),
    [
        (0.011, "slower", "same", True),
        (0.011, "same", "same", False),
        (0.011, "slower", "slower", False),
        (0.006, "same", "same", True),
        (0.006, "slower", "same", True),
        (0.001, "slower", "same", False),
        (0.011, "slower", "undecided", True),
    ],
)
def test_the_planted_rows_must_be_named_where_they_are_slow_and_no_others(
    proof: Any, true: float, own: VerdictKind, other: VerdictKind, *, right: bool
) -> None:
    proof.truth = {OWN: import_module("benchmarks.branch_plants").Effect(true, 0.0005)}
    said, _ = proof._named(report(verdict(OWN, own, true), verdict(OTHER, other, 0.0)))
    assert (said == "as expected") is right


def test_what_was_left_out_is_exit_3_and_what_is_wrong_exit_1(branch: ModuleType) -> None:
    def steps(*verdicts: str) -> list[Any]:
        return [branch.Step(name="", expected="", said="", verdict=one) for one in verdicts]

    assert branch.exit_code(steps("as expected", "for information")) == 0
    assert branch.exit_code(steps("as expected", "left out")) == 3
    assert branch.exit_code(steps("left out", "NOT AS EXPECTED")) == 1


# --- The repository, with real git, and commands made up ------------------------------------------


def test_the_project_is_a_repository_with_the_workloads_and_no_baselines(
    projects: ModuleType, tmp_path: Path
) -> None:
    project = projects.Project.make(tmp_path / "project")
    assert project.git("status", "--porcelain") == ""
    assert project.git("branch", "--show-current") == "main\n"
    tracked = project.git("ls-files").splitlines()
    assert "workloads/kernels/matmul.py" in tracked
    assert not [name for name in tracked if "baselines" in name]
    assert project.numbers() == {}


def test_a_planted_commit_is_compared_and_the_page_holds_its_diff_and_its_sizes(
    branch: ModuleType, projects: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = projects.Project.make(tmp_path / "project")
    found = report(verdict(OWN, "slower", 0.0112), verdict(OTHER, "same", 0.0001))
    dumped = codec.dump(found)
    assert isinstance(dumped, dict)
    document = {"schema": 1, "exit_code": 1, **dumped}

    def run(_: object, *arguments: str, **__: object) -> Any:
        return projects.Said(
            command=f"tirbench {' '.join(arguments)}",
            code=1,
            out=json.dumps(document),
            err="",
            seconds=1.0,
        )

    monkeypatch.setattr(projects.Project, "run", run)
    plant = import_module("benchmarks.branch_plants").MATMUL
    proof = branch.Proof(
        project=project,
        plant=plant,
        device="cuda",
        files=("workloads/matmul.toml", "workloads/softmax.toml"),
        until=math.inf,
    )
    step = proof.planted()
    assert step.verdict == "as expected", step.said
    assert "+1.12 ± 0.08 %" in step.said
    facts = {"device": "a card", "date": "2025-01-31", "versions": {"torch": "2"}, "seconds": 1}
    page = import_module("benchmarks.branch_report").markdown({**facts, "command": "x"}, [step])
    assert "+    for _ in range((K - 192) * 90 // 4096):" in page
    assert "ab main → here: 2 rows: 1 slower, 1 same: exit 1" in page
    kept = branch.document(facts, [step])["steps"][0]["commands"]
    assert [one["report"]["verdicts"][0]["kind"] for one in kept] == ["slower", "slower"]


def test_long_outputs_keep_their_ends(projects: ModuleType) -> None:
    text = "\n".join(str(number) for number in range(100))
    said = projects.Said(command="tirbench exec", code=0, out=text, err="", seconds=1.0)
    assert projects.as_text(said, 4).splitlines() == ["0", "1", "[96 lines]", "98", "99"]
