"""A run as tables of texts: what stands in which cell, for every format that has tables.

One table a workload; in it the cases in the order of the run, and of each case the kernels before the
references. A column is there if any row has something in it. Rows of one case that were skipped for one
reason are one line.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from tirbench import digest
from tirbench.model import Failed, Outcome, Row, Run, Skipped, Timed, Verified, Wrong
from tirbench.report import text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Kind: TypeAlias = Literal["timed", "verified", "wrong", "failed", "skipped"]
KINDS: Final[tuple[Kind, ...]] = ("timed", "verified", "wrong", "failed", "skipped")

BASELINE_ERROR: Final = "BASELINE_ERROR"
"""How a reference that fails is called: no fault of the workload, and it never fails a run."""

ROOF_WORDS: Final = {"bandwidth": "bw", "compute": "math", None: ""}


@dataclass(frozen=True, slots=True)
class Column:
    """Head of a column; numbers are set to the right."""

    key: str
    head: str
    right: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a table: texts by column key, and what kind of outcome it shows."""

    kind: Kind
    first_of_case: bool
    cells: tuple[tuple[str, str], ...]
    reference: bool = False

    def cell(self, key: str) -> str:
        """The text in a column, empty where there is none."""
        return dict(self.cells).get(key, "")


@dataclass(frozen=True, slots=True)
class Table:
    """One workload of a run."""

    workload: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Trouble:
    """What went wrong with an implementation, and in which cases it did so in the same way."""

    word: str
    implementation: str
    cases: tuple[str, ...]
    reason: str
    stage: str
    place: str = ""
    detail: str = ""


def tables(outcomes: Iterable[Outcome]) -> tuple[Table, ...]:
    """The tables of outcomes, one a workload."""
    return tuple(_table(name, rows) for name, rows in _grouped(outcomes, by="workload"))


def troubles(outcomes: Iterable[Outcome]) -> tuple[Trouble, ...]:
    """Everything wrong or failed, kernels first; the same fault of one implementation once."""
    found: dict[tuple[str, ...], list[Wrong | Failed]] = {}
    for outcome in outcomes:
        if isinstance(outcome, Wrong | Failed):
            row = outcome.row
            key = (row.workload, row.implementation, word(outcome), outcome.stage, outcome.reason)
            found.setdefault(key, []).append(outcome)
    ordered = sorted(found.values(), key=lambda group: group[0].row.role)
    return tuple(_trouble(group) for group in ordered)


def summary(outcomes: Sequence[Outcome]) -> str:
    """`34 timed · 12 verified · 2 wrong · 1 failed · 20 skipped: …`, with the reasons of skipping."""
    counts = Counter(kind_of(outcome) for outcome in outcomes)
    parts = [f"{counts[kind]} {kind}" for kind in KINDS if counts[kind]]
    reasons = Counter(outcome.reason for outcome in outcomes if isinstance(outcome, Skipped))
    shown = [
        f"{reason} ({number})" if len(reasons) > 1 else reason
        for reason, number in reasons.most_common(3)
    ]
    more = [f"{len(reasons) - 3} other reasons"] if len(reasons) > 3 else []
    tail = f": {'; '.join([*shown, *more])}" if reasons else ""
    return (" · ".join(parts) or "nothing was asked for") + tail


def kind_of(outcome: Outcome) -> Kind:
    """The word for an outcome, which is the name of its type."""
    match outcome:
        case Timed():
            return "timed"
        case Verified():
            return "verified"
        case Wrong():
            return "wrong"
        case Failed():
            return "failed"
        case Skipped():
            return "skipped"


def word(outcome: Outcome) -> str:
    """The word for an outcome: its kind, and of what failed the cause where it is more than an exception.

    A reference that failed is a `BASELINE_ERROR`.
    """
    if isinstance(outcome, Failed):
        if outcome.row.role == "reference":
            return BASELINE_ERROR
        if outcome.cause != "raised":
            return outcome.cause.replace("_", " ")
    return kind_of(outcome)


def headline(run: Run) -> str:
    """Device and versions of a run, in a line."""
    parts = [run.machine.device, digest.environment(run.machine), f"run {run.id}"]
    return " · ".join(part for part in parts if part)


# --- Tables ---------------------------------------------------------------------------------------


def _grouped(
    outcomes: Iterable[Outcome], by: Literal["workload", "case"]
) -> list[tuple[str, list[Outcome]]]:
    """Outcomes by workload or case, in the order of their first."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(getattr(outcome.row, by), []).append(outcome)
    return list(groups.items())


def _table(workload: str, outcomes: list[Outcome]) -> Table:
    references = _names(row.row for row in outcomes if row.row.role == "reference")
    ratios = [Column(f"ratio:{name}", f"/ {name}", right=True) for name in references]
    cases = _grouped(outcomes, by="case")
    idle = _idle(cases)
    lines = [line for case, rows in cases if case not in idle for line in _case_lines(rows)]
    lines += [_idle_line(reason, idle) for reason in dict.fromkeys(idle.values())]
    columns = [
        Column("case", "case"),
        Column("implementation", "implementation"),
        Column("verified", "verified"),
        Column("time", "midmean µs", right=True),
        *ratios,
        Column("rate", "rate", right=True),
        Column("roof", "roof", right=True),
        Column("notes", "notes"),
    ]
    shown = [column for column in columns if any(line.cell(column.key) for line in lines)]
    return Table(workload, tuple(shown), tuple(lines))


def _idle(cases: list[tuple[str, list[Outcome]]]) -> dict[str, str]:
    """The cases of which nothing was run, each with the one reason for all of it."""
    reasons = {
        case: {outcome.reason if isinstance(outcome, Skipped) else None for outcome in rows}
        for case, rows in cases
    }
    return {
        case: reason
        for case, found in reasons.items()
        if len(found) == 1 and (reason := next(iter(found))) is not None
    }


def _idle_line(reason: str, idle: Mapping[str, str]) -> Line:
    """One line for all cases that were not run for the same reason."""
    cases = [case for case, why in idle.items() if why == reason]
    cells = {
        "case": text.count(len(cases), "case"),
        "implementation": "all",
        "verified": "skipped",
        "notes": f"{reason} ({', '.join(cases)})",
    }
    return Line(kind="skipped", first_of_case=True, cells=tuple(cells.items()), reference=False)


def _names(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row.implementation for row in rows))


def _case_lines(outcomes: list[Outcome]) -> list[Line]:
    ordered = sorted(outcomes, key=lambda outcome: outcome.row.role)  # "kernel" < "reference"
    times = {
        outcome.row.implementation: outcome.estimate.midmean_us
        for outcome in ordered
        if isinstance(outcome, Timed) and outcome.row.role == "reference"
    }
    lines: list[tuple[Kind, bool, dict[str, str]]] = []
    merged: dict[str, dict[str, str]] = {}
    for outcome in ordered:
        if isinstance(outcome, Skipped) and outcome.reason in merged:
            merged[outcome.reason]["implementation"] += f", {outcome.row.implementation}"
            continue
        cells = {"implementation": outcome.row.implementation, **_cells(outcome, times)}
        if isinstance(outcome, Skipped):
            merged[outcome.reason] = cells
        lines.append((kind_of(outcome), outcome.row.role == "reference", cells))
    case = ordered[0].row.case
    return [
        Line(
            kind=kind,
            first_of_case=index == 0,
            cells=tuple({"case": case if index == 0 else "", **cells}.items()),
            reference=reference,
        )
        for index, (kind, reference, cells) in enumerate(lines)
    ]


def _cells(outcome: Outcome, reference_us: dict[str, float]) -> dict[str, str]:
    match outcome:
        case Timed():
            estimate = outcome.estimate
            return {
                "verified": _verified(outcome),
                "time": text.microseconds(estimate.midmean_us, estimate.half_width_us),
                **_ratios(outcome, reference_us),
                **_rates(outcome),
                "notes": "; ".join(outcome.notes),
            }
        case Verified():
            notes = "; ".join([outcome.untimed, *outcome.notes])
            return {"verified": _verified(outcome), "notes": notes}
        case Wrong():
            return {"verified": "wrong", "notes": outcome.reason}
        case Failed():
            return {"verified": word(outcome), "notes": f"{outcome.stage}: {_reason(outcome)}"}
        case Skipped():
            return {"verified": "skipped", "notes": outcome.reason}


def _verified(outcome: Timed | Verified) -> str:
    """How a row was verified, and how much of its tolerance it used."""
    verification = outcome.verification
    if verification.method == "unchecked" or verification.worst is None:
        return verification.method
    return f"{verification.method} {text.percent(verification.worst)}"


def _ratios(outcome: Timed, reference_us: dict[str, float]) -> dict[str, str]:
    if outcome.row.role != "kernel":
        return {}
    own = outcome.estimate.midmean_us
    return {
        f"ratio:{name}": text.significant(own / theirs, 3) for name, theirs in reference_us.items()
    }


def _rates(outcome: Timed) -> dict[str, str]:
    """The rate that bounds the case (bandwidth, or compute where it names a roof) and the share of it."""
    rates = outcome.rates
    cells: dict[str, str] = {}
    computes = rates.roof_by == "compute" or (
        rates.roof_by is None and outcome.work.roof is not None
    )
    if rates.tflops is not None and (computes or rates.gbytes_per_s is None):
        cells["rate"] = f"{text.significant(rates.tflops, 3)} TFLOP/s"
    elif rates.gbytes_per_s is not None:
        cells["rate"] = f"{text.significant(rates.gbytes_per_s, 3)} GB/s"
    if rates.roof is not None:
        cells["roof"] = f"{text.percent(rates.roof)} {ROOF_WORDS[rates.roof_by]}".rstrip()
    return cells


def _reason(outcome: Wrong | Failed) -> str:
    """Why, behind the word for it, which is not said twice."""
    return outcome.reason.removeprefix(f"{word(outcome)}: ")


def _trouble(group: list[Wrong | Failed]) -> Trouble:
    first = group[0]
    return Trouble(
        word=word(first),
        implementation=f"{first.row.workload}/{first.row.implementation}",
        cases=tuple(outcome.row.case for outcome in group),
        reason=_reason(first),
        stage=first.stage,
        place=first.place if isinstance(first, Failed) else "",
        detail=first.detail if isinstance(first, Failed) else "",
    )
