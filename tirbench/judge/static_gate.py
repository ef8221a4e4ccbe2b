"""The gate of one row without a GPU: pins against the code that stands beside them.

Source: MEASURING, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tirbench.judge.gate import broken_pin
from tirbench.model import GateDecision, PinnedRow

if TYPE_CHECKING:
    from tirbench.model import GateRule


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFacts:
    """What is known of one row at HEAD, and of what it was at BASE.

    Attributes:
        case: the case's id, without the workload's name.
        implementation: of the case.
        known: whether the workload at HEAD still has the row.
        head: the row's pin at HEAD, `None` where it has none.
        sealed: whether the seal of HEAD's pin holds.
        problem: digest of the problem at HEAD.
        protocol: digest of the protocol at HEAD.
        source: digest of the implementation's source at HEAD.
        slower: what `diff` says of numbers of the pin that rose without a reason.
        weakenings: what else it says of the row that has no reason; any of them fails it.
        needs: why the row must be measured again, empty where it need not: it is neither pinned as it is
            now nor as it was at BASE.
        command: what to run on a machine with the hardware of the pin.
    """

    case: str
    implementation: str
    known: bool = True
    head: PinnedRow | None
    sealed: bool = True
    problem: str
    protocol: str
    source: str
    slower: tuple[str, ...] = ()
    weakenings: tuple[str, ...] = ()
    needs: str = ""
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
    if facts.slower:
        why = f"{'; '.join(facts.slower)} without a reason; `tirbench pin --accept … --reason`"
        return _decide(facts, 1, "slower-row", why)
    if facts.weakenings:
        return _decide(facts, 1, "weakened", "; ".join(facts.weakenings))
    if facts.needs:
        return _decide(facts, 3, "remeasure", f"{facts.needs}; {facts.command}")
    if head.source == facts.source:
        return _decide(facts, 0, "remeasured", "pinned with the source of HEAD")
    return _decide(facts, 0, "current", "the code is what it was when it was pinned")


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
