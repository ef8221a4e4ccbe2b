"""`bisect`: which commit made a row slower, by comparing good with what lies between it and bad.

Every midpoint is compared with good itself, side by side (`comparing`), so that nothing of an earlier
comparison is carried over. A commit whose row has the same source as one already judged is judged alike and
not measured. Everything is read from archives: the working tree is not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from tirbench import comparing, digest
from tirbench.errors import InputError, TirbenchError, UsageError
from tirbench.expand import expand
from tirbench.gating import Pins, commit_of_pin
from tirbench.load import load
from tirbench.model import TimerName, Verdict
from tirbench.plan import rows_of
from tirbench.store import revisions

if TYPE_CHECKING:
    from tirbench.execute.events import Event
    from tirbench.model import Case, Row

Light: TypeAlias = Literal["good", "bad", "unknown"]
"""Not slower than good; slower; could not be judged."""

LIGHTS: Final[dict[str, Light]] = {"slower": "bad", "same": "good", "faster": "good"}

Compare: TypeAlias = "Callable[[str, str], Verdict | str]"
"""The row at one commit, and at another: the verdict, or why they cannot be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is looked for.

    Attributes:
        name: `workload/case` or `workload/case/implementation`.
        good: a revision; `None` for the code of the row's last pin.
        bad: a revision that is slower.
        device: where it is measured.
        timer: instead of the workload's.
        resolve: T instead of the workload's, relative.
    """

    name: str
    good: str | None = None
    bad: str = "HEAD"
    device: Literal["cuda", "cpu"] = "cuda"
    timer: TimerName | None = None
    resolve: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One commit that was judged: how, and by how much it is slower than good.

    Attributes:
        commit: the commit.
        light: `good`, `bad` or `unknown`.
        how: a sentence: the verdict's reason, whose code it shares, or why it was skipped.
        verdict: of its own comparison; `None` where there was none.
    """

    commit: revisions.Commit
    light: Light
    how: str
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """What a search found.

    Attributes:
        key: of the row.
        path: the file of its workload.
        good: where the search began.
        bad: where it ended.
        between: how many commits there are after good, up to bad.
        steps: in the order in which they were judged.
        suspects: the commit at fault; several where those in between cannot be judged; none where bad is
            not slower.
        answer: `found`, `narrowed` to several, `not slower`, or `undecided` about bad itself.
        verdict: of the commit at fault, or one with its code, against good.
    """

    key: str
    path: str
    good: revisions.Commit
    bad: revisions.Commit
    between: int
    steps: tuple[Step, ...]
    suspects: tuple[revisions.Commit, ...]
    answer: Literal["found", "narrowed", "not slower", "undecided"]
    verdict: Verdict | None = None

    @property
    def exit_code(self) -> int:
        """1 where a commit is at fault, 0 where nothing is slower, 3 where it could not be told."""
        return {"found": 1, "not slower": 0}.get(self.answer, 3)


def bisect(
    root: Path,
    asked: Asked,
    watch: Callable[[Event], None],
    say: Callable[[str], None],
    compare: Compare | None = None,
) -> Bisection:
    """Find the commit that made a row slower.

    Args:
        root: the project's folder.
        asked: what is looked for.
        watch: is shown every event of a comparison as it happens.
        say: takes sentences: which commit is judged, and what came of it.
        compare: instead of `comparing`.

    Raises:
        UsageError: there is no such row at bad, bad does not go back to good, or no good is known.
    """
    bad = revisions.commit_of(root, asked.bad)
    place = _place(root, bad.id, asked.name)
    good = revisions.commit_of(root, asked.good or _pinned(root, place, asked))
    commits = revisions.between(root, good.id, bad.id)
    if not commits:
        raise UsageError(f"{asked.bad} and {good.id[:10]} are the same commit: name an older GOOD")
    by = compare or (lambda old, new: _by_ab(root, asked, place, (old, new), watch, say))
    return _Search(root=root, place=place, good=good, commits=commits, compare=by, say=say).run()


# --- The search -----------------------------------------------------------------------------------


def narrow(count: int, judge: Callable[[int], Light]) -> tuple[int, int]:
    """Narrow a range down to where the first bad one is.

    Args:
        count: how many there are; the last is known to be bad, what precedes the first to be good.
        judge: of an index below `count - 1`, asked once each at most.

    Returns:
        The last good index, -1 for what precedes the first, and the first bad one. All between them are
        unknown.
    """
    low, high = -1, count - 1
    unknown: set[int] = set()
    while True:
        left = [index for index in range(low + 1, high) if index not in unknown]
        if not left:
            return low, high
        middle = (low + high) / 2
        index = min(left, key=lambda one: (abs(one - middle), one))
        light = judge(index)
        if light == "good":
            low = index
        elif light == "bad":
            high = index
        else:
            unknown.add(index)


@dataclass(slots=True, kw_only=True)
class _Search:
    root: Path
    place: _Place
    good: revisions.Commit
    commits: tuple[revisions.Commit, ...]
    compare: Compare
    say: Callable[[str], None]
    steps: list[Step] = field(default_factory=list)
    known: dict[str, Step] = field(default_factory=dict)
    by_source: bool = True

    def run(self) -> Bisection:
        bad = self.commits[-1]
        self._set_out(bad)
        last = self._judge(bad)
        if last.light != "bad":
            answer: Literal["not slower", "undecided"] = (
                "not slower" if last.light == "good" else "undecided"
            )
            return self._answer(answer, (), last.verdict)
        low, high = narrow(len(self.commits), lambda index: self._judge(self.commits[index]).light)
        suspects = self.commits[low + 1 : high + 1]
        culprit = self.commits[high]
        step = next(one for one in self.steps if one.commit == culprit)
        return self._answer("found" if len(suspects) == 1 else "narrowed", suspects, step.verdict)

    def _set_out(self, bad: revisions.Commit) -> None:
        """Remember what good is; where bad has the same source, only whole trees tell commits apart."""
        ends = [self._identity(commit) for commit in (self.good, bad)]
        if ends[0] is not None and ends[0] == ends[1]:
            self.by_source = False
        identity = self._identity(self.good)
        if identity is None:
            raise UsageError(
                f"{self.place.key} cannot be read at {self.good.id[:10]}: name another GOOD"
            )
        self.known[identity] = Step(commit=self.good, light="good", how="")

    def _identity(self, commit: revisions.Commit) -> str | None:
        """What is equal where the row's code is; `None` where the commit has no such row."""
        found = identity_at(self.root, commit.id, self.place)
        if found is None or self.by_source:
            return found
        return revisions.tree_of(self.root, commit.id) or commit.id

    def _judge(self, commit: revisions.Commit) -> Step:
        step = self._step(commit)
        self.steps.append(step)
        self.say(f"{commit.id[:10]} {commit.subject}: {step.light}: {step.how}")
        return step

    def _step(self, commit: revisions.Commit) -> Step:
        identity = self._identity(commit)
        if identity is None:
            return Step(commit=commit, light="unknown", how="has no such row, or cannot be read")
        like = self.known.get(identity)
        if like is not None:
            how = f"its code is that of {like.commit.id[:10]}"
            return Step(commit=commit, light=like.light, how=how, verdict=like.verdict)
        verdict = self.compare(self.good.id, commit.id)
        if isinstance(verdict, str):
            step = Step(commit=commit, light="unknown", how=verdict)
        else:
            light = LIGHTS.get(verdict.kind, "unknown")
            how = verdict.reason if light != "unknown" else f"{verdict.kind}: {verdict.reason}"
            step = Step(commit=commit, light=light, how=how, verdict=verdict)
        self.known[identity] = step
        return step

    def _answer(
        self,
        answer: Literal["found", "narrowed", "not slower", "undecided"],
        suspects: tuple[revisions.Commit, ...],
        verdict: Verdict | None,
    ) -> Bisection:
        return Bisection(
            key=self.place.key,
            path=self.place.path,
            good=self.good,
            bad=self.commits[-1],
            between=len(self.commits),
            steps=tuple(self.steps),
            suspects=suspects,
            answer=answer,
            verdict=verdict,
        )


# --- The row through git --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A row and the file of its workload."""

    row: Row
    path: str

    @property
    def key(self) -> str:
        return self.row.key


def identity_at(root: Path, commit: str, place: _Place) -> str | None:
    """What the row is at a commit: digests of its problem and its source; `None` where it is not there."""
    with revisions.archived(root, commit) as folder:
        for case in _cases(folder, place.path):
            names = {one.name for one in case.implementations}
            if case.id == place.row.case and place.row.implementation in names:
                read = digest.reader(folder)
                source = digest.source(case, place.row.implementation, read)
                return f"{digest.problem(case, read)} {source}"
    return None


def _cases(folder: Path, path: str) -> tuple[Case, ...]:
    """The cases of a workload in a tree; none where it is not there or not right."""
    try:
        return expand(load(folder / path, folder))
    except TirbenchError:
        return ()


def _place(root: Path, commit: str, name: str) -> _Place:
    """Where a row is at a commit; a case with one kernel is named by itself.

    Raises:
        UsageError: it is not there, or several rows are meant.
    """
    parts = name.split("/")
    if len(parts) not in {2, 3} or not all(parts):
        raise UsageError(f"{name}: write workload/case or workload/case/implementation")
    workload, wanted, *implementation = parts
    with revisions.archived(root, commit) as folder:
        found = [
            _Place(row=row, path=path)
            for path in _paths(folder, workload)
            for case in _cases(folder, path)
            if case.id == wanted
            for row in rows_of(case)
            if (row.implementation in implementation if implementation else row.role == "kernel")
        ]
    if not found:
        raise UsageError(f"{name}: no such row at {revisions.short(commit)}")
    if len(found) > 1:
        rows = ", ".join(place.row.implementation for place in found)
        raise UsageError(f"{name} has several kernels ({rows}): name one, as {found[0].key}")
    return found[0]


def _paths(folder: Path, workload: str) -> Iterator[str]:
    for path in sorted(folder.rglob(f"{workload}.toml")):
        if "baselines" not in path.parts:
            yield path.relative_to(folder).as_posix()


def _pinned(root: Path, place: _Place, asked: Asked) -> str:
    """The commit with the code of the row's last pin on this hardware.

    Raises:
        UsageError: there is none.
    """
    from tirbench.execute import describe

    hardware = describe(asked.device).hardware
    key = (place.row.case, place.row.implementation)
    try:
        workload = load(root / place.path, root)
    except TirbenchError as error:
        raise UsageError(f"name GOOD: {place.path} cannot be read here") from error
    pinned = Pins.read(root, workload).by_hardware.get(hardware, {}).get(key)
    commit = None if pinned is None else commit_of_pin(root, place.path, pinned, hardware)
    if commit is None:
        what = "is not pinned" if pinned is None else "is pinned with code that git has not"
        raise UsageError(
            f"name GOOD, a revision that was not slower: {place.key} {what} on {hardware}"
        )
    return commit


def _by_ab(
    root: Path,
    asked: Asked,
    place: _Place,
    commits: tuple[str, str],
    watch: Callable[[Event], None],
    say: Callable[[str], None],
) -> Verdict | str:
    """`ab` of the one row."""
    base, head = commits
    how = comparing.Asked(
        base=base,
        head=head,
        files=(str(root / place.path),),
        device=asked.device,
        timer=asked.timer,
        select="all",
        rows=frozenset({place.key}),
        resolve=asked.resolve,
        references=True,
    )
    try:
        report = comparing.compare(root, how, watch, say)
    except (InputError, UsageError) as error:
        return str(error)
    verdict = next((one for one in report.verdicts if one.row.key == place.key), None)
    if verdict is None:
        return "; ".join(why for why, _ in report.left_out) or "it is not compared here"
    return verdict
