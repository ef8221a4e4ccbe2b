"""What a bisection found, as text, Markdown, JSON, or workflow commands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Protocol

from tirbench import codec
from tirbench.report import columns, text
from tirbench.report.github import annotate_rows
from tirbench.report.rows import Commit
from tirbench.report.verdicts import effect_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tirbench.model import Verdict

FORMAT: Final = 1
HEADS: Final = ("commit", "judged", "effect", "subject", "how")
STYLES: Final = {"good": "green", "bad": "red", "unknown": "yellow"}


class Bisection(Protocol):
    """A `bisecting.Bisection`: stages do not import each other."""

    @property
    def key(self) -> str:
        """Of the row."""

    @property
    def path(self) -> str:
        """The file of its workload."""

    @property
    def good(self) -> Commit:
        """Where the search began."""

    @property
    def bad(self) -> Commit:
        """Where it ended."""

    @property
    def between(self) -> int:
        """How many commits there are after good, up to bad."""

    @property
    def steps(self) -> Sequence[Any]:
        """`Step`, in the order in which they were judged."""

    @property
    def suspects(self) -> Sequence[Any]:
        """`Commit` at fault, or those among which it is."""

    @property
    def answer(self) -> str:
        """`found`, `narrowed`, `not slower`, `undecided`."""

    @property
    def verdict(self) -> Verdict | None:
        """Of the commit at fault."""

    @property
    def exit_code(self) -> int:
        """Of the command."""


class Step(Protocol):
    """A `bisecting.Step`."""

    @property
    def commit(self) -> Commit:
        """That was judged."""

    @property
    def light(self) -> str:
        """`good`, `bad`, `unknown`."""

    @property
    def how(self) -> str:
        """A sentence."""

    @property
    def verdict(self) -> Verdict | None:
        """Of its comparison."""


def render(found: Bisection, form: str, *, width: int, color: bool = False) -> str:
    """A bisection in one of the formats, with its last line ended.

    Args:
        found: what was found.
        form: `text`, `markdown`, `json` or `github`.
        width: columns of the text.
        color: whether the text has colours.
    """
    if form == "json":
        return json.dumps(_document(found), allow_nan=False, indent=2) + "\n"
    if form == "markdown":
        head = [f"**{text.markdown(line)}**  " for line in conclusion(found)]
        table = columns.markdown(HEADS, _cells(found), frozenset({2}))
        return "\n".join([*head, "", *table]) + "\n"
    body = _text(found, columns.Look(width=width, color=color))
    return annotate_rows(_annotations(found)) + body if form == "github" else body


def conclusion(found: Bisection) -> list[str]:
    """What came of it, in a line or a few."""
    good = f"{found.good.id[:10]} ({found.good.subject})"
    ends = f"{found.key}: {text.count(found.between, 'commit')} after {good}"
    if found.answer == "found":
        (culprit,) = found.suspects
        by = f" by {effect_of(found.verdict)}" if found.verdict is not None else ""
        lines = [f"{culprit.id[:10]} {culprit.subject}: slower than good{by}"]
    elif found.answer == "narrowed":
        lines = [f"one of {len(found.suspects)} commits; those before the last cannot be judged:"]
        lines += [f"  {commit.id[:10]} {commit.subject}" for commit in found.suspects]
    elif found.answer == "not slower":
        lines = [f"{found.bad.id[:10]} is not slower than good: nothing to find"]
    else:
        lines = [f"{found.bad.id[:10]} cannot be told from good: nothing to go by"]
    return [*lines, f"bisect {ends}: {found.answer}: exit {found.exit_code}"]


def _document(found: Bisection) -> dict[str, Any]:
    steps: Sequence[Step] = found.steps
    return {
        "schema": FORMAT,
        "exit_code": found.exit_code,
        "row": found.key,
        "answer": found.answer,
        "good": _commit(found.good),
        "bad": _commit(found.bad),
        "between": found.between,
        "suspects": [_commit(commit) for commit in found.suspects],
        "verdict": _verdict(found.verdict),
        "steps": [
            {
                "commit": _commit(step.commit),
                "light": step.light,
                "how": step.how,
                "verdict": _verdict(step.verdict),
            }
            for step in steps
        ],
    }


def _commit(commit: Commit) -> dict[str, str]:
    return {"id": commit.id, "date": commit.date, "subject": commit.subject}


def _verdict(verdict: Verdict | None) -> Any:
    return None if verdict is None else codec.dump(verdict)


def _cells(found: Bisection) -> list[tuple[str, ...]]:
    steps: Sequence[Step] = found.steps
    return [
        (
            step.commit.id[:10],
            step.light,
            "" if step.verdict is None else effect_of(step.verdict),
            step.commit.subject,
            step.how,
        )
        for step in steps
    ]


def _text(found: Bisection, look: columns.Look) -> str:
    lines = columns.table(
        HEADS, _cells(found), look, right=frozenset({2}), style=lambda row: STYLES[row[1]]
    )
    lines.append("")
    *said, last = conclusion(found)
    lines += [text.plain(line) for line in said]
    lines.append(look.paint(text.plain(last), "bold"))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _annotations(found: Bisection) -> list[tuple[str, str, str, str]]:
    if found.answer not in {"found", "narrowed"}:
        return []
    command = "error" if found.answer == "found" else "warning"
    return [(command, found.path, f"bisect: {found.key}", " ".join(conclusion(found)[:-1]))]
