"""The gate of one row without a GPU: pins against the code that stands beside them.

Source: MEASURING, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tirbench.judge.gate import broken_pin
from tirbench.judge.words import share
from tirbench.model import GateDecision, PinnedRow

if TYPE_CHECKING:
    from tirbench.model import GateRule


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFacts:
    """What is known of one row on both revisions.

    Attributes:
        case: the case's id, without the workload's name.
        implementation: of the case.
        known: whether the workload at HEAD still has the row.
        base: the row's pin at BASE, `None` where it had none.
        head: the row's pin at HEAD, `None` where it has none.
        sealed: whether the seal of HEAD's pin holds.
        problem: digest of the problem at HEAD.
        protocol: digest of the protocol at HEAD.
        base_problem: digest of the problem at BASE; `None` where BASE has no such row.
        base_protocol: digest of the protocol at BASE.
        source: digest of the implementation's source at HEAD.
        base_code: machine code at BASE by the local compiler, `None` where it cannot be compiled.
        code: the same at HEAD.
        weakenings: what `diff` says of the row; any of them fails it.
        command: what to run on a machine with the hardware of the pin.
    """

    case: str
    implementation: str
    known: bool = True
    base: PinnedRow | None
    head: PinnedRow | None
    sealed: bool = True
    problem: str
    protocol: str
    base_problem: str | None
    base_protocol: str | None
    source: str
    base_code: str | None = None
    code: str | None = None
    weakenings: tuple[str, ...] = ()
    command: str


def gate_static(facts: StaticFacts) -> GateDecision:
    """Decide about a row by what stands in the two revisions.

    Everything that fails a row comes first: an author can mend it here and now.
    """
    head = facts.head
    if head is None:
        return _decide(facts, 1, "missing", f"not pinned; {facts.command}")
    broken = broken_pin(facts.known, facts.sealed, head, facts.problem, facts.protocol)
    if broken is not None:
        return _decide(facts, 1, *broken)
    if facts.weakenings:
        return _decide(facts, 1, "weakened", "; ".join(facts.weakenings))
    slower = _slower_without_reason(facts.base, head)
    if slower:
        return _decide(facts, 1, "slower-row", slower)
    if head.source == facts.source:
        return _decide(facts, 0, "remeasured", "pinned with the source of HEAD")
    same_task = (facts.base_problem, facts.base_protocol) == (facts.problem, facts.protocol)
    if same_task and _same_code(facts):
        return _decide(facts, 0, "current", "the code is what it was when it was pinned")
    why = "the code is not what was pinned" if facts.code else "nothing could be compiled here"
    return _decide(facts, 3, "remeasure", f"{why}; {facts.command}")


def _same_code(facts: StaticFacts) -> bool:
    """Whether HEAD compiles to the code of BASE, and the pin is of the code that BASE's pin is of.

    A pin that was measured on a revision between the two, and then left behind, is of neither.
    """
    base, head = facts.base, facts.head
    same_pin = base is not None and head is not None and base.code == head.code
    return same_pin and facts.code is not None and facts.code == facts.base_code


def _slower_without_reason(base: PinnedRow | None, head: PinnedRow) -> str:
    """The sentence about a number that rose; numbers of another problem or protocol do not compare.

    A reason that the row had before explains what happened before.
    """
    if base is None or (head.reason and head.reason != base.reason):
        return ""
    if (base.problem, base.protocol) != (head.problem, head.protocol):
        return ""
    for name, before, after in (
        ("time", base.midmean_us, head.midmean_us),
        ("anchor", base.anchor_us, head.anchor_us),
    ):
        if after > before:
            return (
                f"the pinned {name} rose by {share(after / before - 1)} without a reason; "
                "`tirbench pin --accept … --reason`"
            )
    return ""


def _decide(
    facts: StaticFacts, code: Literal[0, 1, 3], rule: GateRule, reason: str
) -> GateDecision:
    return GateDecision(
        case=facts.case,
        implementation=facts.implementation,
        exit_code=code,
        rule=rule,
        reason=reason,
    )
