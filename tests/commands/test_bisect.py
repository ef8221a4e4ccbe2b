"""`bisect`: scripted repositories with measuring made up, and one that really measures."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tirbench import bisecting, store
from tirbench.commands import bisect
from tirbench.errors import UsageError
from tirbench.model import Machine, PairEstimate, Row, Verdict, VerdictKind
from tirbench.report import bisections

from .conftest import MACHINE, MakeRun, Repository, make_repository
from .test_ab import FILES

ROW = "scale/n64/ours"
OPS = "workloads/kernels/ops.py"
LINE = "    torch.mul(x, 2, out=y)"


def nothing(_: object) -> None:
    """Who watches, and who listens."""


class Measured:
    """Comparisons made up: a kernel is 5 % slower for every `slow_` in its file. What was asked is kept."""

    def __init__(self, repository: Repository, answers: dict[str, VerdictKind | str]) -> None:
        self.repository = repository
        self.answers = answers
        self.asked: list[tuple[str, str]] = []

    def subject(self, commit: str) -> str:
        return self.repository.git("log", "-1", "--format=%s", commit).strip()

    def cost(self, commit: str) -> float:
        text = self.repository.git("show", f"{commit}:{OPS}")
        return math.log1p(0.05 * text.count("slow_"))

    def __call__(self, base: str, head: str) -> Verdict | str:
        self.asked.append((self.subject(base), self.subject(head)))
        size = self.cost(head) - self.cost(base)
        kind = self.answers.get(self.subject(head), "slower" if size > 0.01 else "same")
        if kind not in {"slower", "same", "faster", "undecided", "incomparable", "missing"}:
            return kind
        return Verdict(
            row=Row(workload="scale", case="n64", implementation="ours", role="kernel"),
            kind=kind,  # type: ignore[arg-type]
            rule="confirmed",
            reason=f"{100 * math.expm1(size):+.2f} % as made up",
            estimate=PairEstimate(log_ratio=size, standard_error=0.001, workers=5),
        )


@pytest.fixture
def search(repository: Repository) -> Callable[..., tuple[bisecting.Bisection, Measured]]:
    """Bisects with these answers in place of what the files say, by the subject of head."""

    def run(
        good: str | None = "start", *, name: str = ROW, **answers: VerdictKind | str
    ) -> tuple[bisecting.Bisection, Measured]:
        measured = Measured(repository, answers)
        asked = bisecting.Asked(name=name, good=good)
        found = bisecting.bisect(repository.root, asked, nothing, nothing, measured)
        return found, measured

    return run


Search = Callable[..., tuple[bisecting.Bisection, Measured]]


def history(repository: Repository, *changes: str) -> dict[str, str]:
    """A commit for each word, which is its subject: what it does to the kernel, if anything."""
    repository.git("tag", "start")
    commits = {}
    for number, subject in enumerate(changes):
        path = repository.root / OPS
        if subject.startswith("slow"):
            path.write_text(path.read_text() + f"slow_{number} = 0\n")
        elif subject.startswith("words"):
            repository.write("README.md", subject)
        elif subject.startswith("broken"):
            repository.edit("workloads/scale.toml", "schema = 1", "schema = 1\nunheard_of = 1")
        elif subject.startswith("mended"):
            repository.edit("workloads/scale.toml", "unheard_of = 1\n", "")
        else:
            path.write_text(path.read_text() + f"other_{number} = 0\n")
        commits[subject] = repository.commit(subject)
    return commits


def judged(found: bisecting.Bisection) -> dict[str, str]:
    return {step.commit.subject: step.light for step in found.steps}


# --- The search -----------------------------------------------------------------------------------


@given(st.data())
def test_the_first_bad_one_is_found_or_stands_behind_unknown_ones_only(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 40))
    first = data.draw(st.integers(0, count - 1))
    unknown = data.draw(st.sets(st.integers(0, count - 1)))
    asked: list[int] = []

    def judge(index: int) -> bisecting.Light:
        asked.append(index)
        return "unknown" if index in unknown else "bad" if index >= first else "good"

    low, high = bisecting.narrow(count, judge)
    assert low < first <= high
    assert set(range(low + 1, high)) <= unknown
    assert len(asked) == len(set(asked))
    if not unknown:
        assert high == first
        assert len(asked) <= math.ceil(math.log2(count + 1))


def test_the_commit_that_made_a_row_slower_is_named_with_few_comparisons(
    repository: Repository, search: Search
) -> None:
    commits = history(repository, "one", "two", "three", "slow", "five", "six", "seven", "eight")
    found, measured = search()
    assert [commit.id for commit in found.suspects] == [commits["slow"]]
    assert (found.answer, found.exit_code, found.between) == ("found", 1, 8)
    assert found.verdict is not None
    assert found.verdict.reason == "+5.00 % as made up"
    assert {base for base, _ in measured.asked} == {"A workload"}
    assert len(measured.asked) <= 4  # bad itself, and the logarithm


def test_commits_that_leave_the_row_as_it_was_are_not_measured(
    repository: Repository, search: Search
) -> None:
    commits = history(
        repository, "words 1", "words 2", "slow", "words 3", "words 4", "words 5", "words 6"
    )
    found, measured = search()
    assert [commit.id for commit in found.suspects] == [commits["slow"]]
    assert [head for _, head in measured.asked] == ["words 6"]
    hows = [step.how for step in found.steps[1:]]
    assert all(how.startswith("its code is that of ") for how in hows)
    assert found.verdict is not None


def test_commits_that_cannot_be_read_or_compared_are_gone_around(
    repository: Repository, search: Search
) -> None:
    commits = history(repository, "one", "broken", "still", "mended", "two", "slow", "three")
    found, measured = search(two="cannot be built: error")
    assert [commit.id for commit in found.suspects] == [commits["two"], commits["slow"]]
    assert (found.answer, found.exit_code) == ("narrowed", 3)
    assert "broken" not in {head for _, head in measured.asked}
    lights = judged(found)
    assert lights["two"] == "unknown"
    assert lights["mended"] == "good"


def test_an_undecided_midpoint_is_gone_around_and_said(
    repository: Repository, search: Search
) -> None:
    commits = history(repository, "one", "two", "slow", "four")
    found, _ = search(two="undecided")
    assert [commit.id for commit in found.suspects] == [commits["two"], commits["slow"]]
    (step,) = (step for step in found.steps if step.commit.subject == "two")
    assert step.how.startswith("undecided: ")
    found, _ = search(slow="undecided", two="undecided")
    assert [c.subject for c in found.suspects] == ["two", "slow", "four"]


def test_where_bad_is_not_slower_nothing_is_searched(
    repository: Repository, search: Search
) -> None:
    history(repository, "one", "two")
    found, measured = search()
    assert (found.answer, found.exit_code, found.suspects) == ("not slower", 0, ())
    assert len(measured.asked) == 1
    found, _ = search(two="undecided")
    assert (found.answer, found.exit_code, found.suspects) == ("undecided", 3, ())


def test_what_a_digest_cannot_see_is_found_by_whole_trees(
    repository: Repository, search: Search
) -> None:
    """Good and bad have the same source, and one is slower all the same."""
    commits = history(repository, "words 1", "words 2", "words 3")
    found, measured = search(**{"words 3": "slower"})
    assert [commit.id for commit in found.suspects] == [commits["words 3"]]
    assert len(measured.asked) == 3


def test_a_merge_is_one_commit_of_the_branch_that_it_came_to(
    repository: Repository, search: Search
) -> None:
    repository.git("tag", "start")
    repository.git("checkout", "--quiet", "-b", "side")
    path = repository.root / OPS
    path.write_text(path.read_text() + "slow_1 = 0\n")
    repository.commit("slow on a branch")
    repository.git("checkout", "--quiet", "main")
    repository.write("README.md", "words")
    repository.commit("words")
    repository.git("merge", "--quiet", "--no-ff", "-m", "Merge side", "side")
    found, _ = search()
    assert [commit.subject for commit in found.suspects] == ["Merge side"]
    assert found.between == 2


def test_the_working_tree_is_left_as_it_is(repository: Repository, search: Search) -> None:
    history(repository, "one", "slow", "three")
    repository.edit(OPS, LINE, "    torch.mul(x, 3, out=y)")
    repository.write("workloads/untracked.toml", "not = even")
    before = repository.git("status", "--porcelain"), (repository.root / OPS).read_text()
    found, _ = search()
    assert [commit.subject for commit in found.suspects] == ["slow"]
    assert repository.git("branch", "--show-current") == "main\n"
    assert (repository.git("status", "--porcelain"), (repository.root / OPS).read_text()) == before


# --- What is asked --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "good", "message"),
    [
        ("scale", "start", "write workload/case"),
        ("scale/n64", "start", "has several kernels (ours, theirs): name one"),
        ("scale/n65/ours", "start", "scale/n65/ours: no such row at "),
        (ROW, "nowhere", "no revision of this repository"),
        (ROW, "side", "does not go back to"),
        (ROW, "HEAD", "are the same commit"),
        (ROW, "empty", "cannot be read at"),
    ],
)
def test_what_cannot_be_searched_is_said_at_once(
    repository: Repository, search: Search, name: str, good: str, message: str
) -> None:
    repository.git("rm", "--quiet", "-r", "workloads")
    repository.commit("empty")
    repository.git("tag", "empty")
    repository.git("revert", "--no-edit", "HEAD")
    history(repository, "one")
    repository.git("checkout", "--quiet", "-b", "side")
    repository.write("README.md", "side")
    repository.commit("side")
    repository.git("checkout", "--quiet", "main")
    with pytest.raises(UsageError, match=message.replace("(", r"\(").replace(")", r"\)")):
        search(good, name=name)


def test_without_good_the_code_of_the_last_pin_is_good(
    repository: Repository,
    make_run: MakeRun,
    pin: Callable[[store.KeptRun], None],
    search: Search,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tirbench import execute

    def describe(_: str) -> Machine:
        return MACHINE

    monkeypatch.setattr(execute, "describe", describe)
    with pytest.raises(UsageError, match=r"name GOOD.*is not pinned on nvidia-h200"):
        search(None)
    pin(make_run())
    pinned = repository.commit("Baselines")
    history(repository, "one", "slow")
    found, _ = search(None)
    assert found.good.id == pinned
    assert [commit.subject for commit in found.suspects] == ["slow"]


# --- What is printed ------------------------------------------------------------------------------


def test_the_culprit_is_printed_with_its_subject_and_its_ratio_in_every_format(
    repository: Repository, search: Search
) -> None:
    commits = history(repository, "one", "slow and | sly", "three")
    found, _ = search()
    short = commits["slow and | sly"][:10]
    text = bisections.render(found, "text", width=200)
    assert f"{short} slow and | sly: slower than good by +5.00 %" in text
    last = text.splitlines()[-1]
    assert last.startswith(f"bisect {ROW}: 3 commits after ")
    assert last.endswith("(A workload): found: exit 1")
    assert "nobody" not in text
    data = json.loads(bisections.render(found, "json", width=200))
    assert (data["exit_code"], data["answer"]) == (1, "found")
    assert [one["id"] for one in data["suspects"]] == [commits["slow and | sly"]]
    assert data["steps"][0]["commit"]["subject"] == "three"
    markdown = bisections.render(found, "markdown", width=200)
    assert f"| {short} | bad | \\+5.00 % | slow and \\| sly |" in markdown
    github = bisections.render(found, "github", width=200)
    assert github.startswith(f"::error file=workloads/scale.toml,title=bisect%3A {ROW}::{short}")


def test_several_suspects_are_all_printed(repository: Repository, search: Search) -> None:
    history(repository, "one", "slow", "three")
    found, _ = search(one="undecided", slow="undecided")
    text = bisections.render(found, "text", width=200)
    assert "one of 3 commits; those before the last cannot be judged:" in text
    assert all(f" {subject}\n" in text for subject in ("one", "slow", "three"))


# --- For real -------------------------------------------------------------------------------------


def test_a_kernel_that_became_twice_as_slow_is_found_by_measuring_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On this CPU: three commits, of which the second raises a number that the kernel imports."""
    made = make_repository(tmp_path, FILES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TIRBENCH_LOCK_DIR", str(tmp_path / ".tirbench"))
    (tmp_path / ".tirbench").mkdir()
    made.commit("Workloads")
    made.git("tag", "start")
    made.write("README.md", "words")
    made.commit("Words")
    made.write("workloads/kernels/amounts.py", "US = 300\n")
    culprit = made.commit("Work harder")
    made.write("workloads/kernels/late.py", "FACTOR = 1 + 1\n")
    made.commit("Say it otherwise")
    arguments = ["work/n64/work", "start", "--device", "cpu", "--format", "json"]
    done = CliRunner().invoke(bisect.command, arguments, standalone_mode=False)
    assert done.exception is None, done.output
    data = json.loads(done.stdout)
    assert (done.return_value, data["answer"]) == (1, "found"), data
    assert [one["id"] for one in data["suspects"]] == [culprit]
    assert 0.4 < data["verdict"]["estimate"]["log_ratio"] < 1.0
    lights = {one["commit"]["subject"]: one["light"] for one in data["steps"]}
    assert lights == {"Say it otherwise": "bad", "Work harder": "bad", "Words": "good"}
    assert made.git("status", "--porcelain") == ""
