"""Comparing what an implementation computed with what the oracle wants."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan
from typing import TYPE_CHECKING, Final

import torch

from tirbench.check import patterns
from tirbench.check.measure import (
    BITS,
    EXACT,
    Elements,
    Norms,
    Scale,
    Tolerance,
    elements,
    kept,
    norms,
    rounding,
    scale,
    wide,
)
from tirbench.check.regions import Region, chosen_region
from tirbench.check.rule import CheckError, Rule, default_rtol
from tirbench.check.text import number, place

if TYPE_CHECKING:
    from collections.abc import Iterator

# Two orders of summation of one formula differ by some per cent in error.
NOT_WORSE_SLACK: Final = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Whether an output is right.

    Args:
        passed: every condition of the rule holds.
        worst: how much of what is tolerated was used by the tightest condition; 1.0 is the limit.
        message: one line; the first condition that failed with position and values, and what the
            difference looks like where that tells something.
    """

    passed: bool
    worst: float
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """One condition: how much of what it tolerates was used, and in words what was found."""

    share: float
    text: str


def compare(
    got: torch.Tensor,
    want: torch.Tensor,
    rule: Rule,
    *,
    region_tensor: torch.Tensor | None = None,
    initial: torch.Tensor | None = None,
    reference: torch.Tensor | None = None,
) -> Comparison:
    """Compare an output with the oracle's.

    Args:
        got: the output; its dtype decides the default tolerance.
        want: the oracle's, of the same shape, mostly in float64.
        rule: what must hold.
        region_tensor: contents of the tensor that `rule.region` names.
        initial: contents of an inout tensor before the call. Outside of the region they must be there
            still.
        reference: the output of `rule.not_worse_than`; `None` where it is not available, and the
            condition is left out.

    Raises:
        CheckError: `want` has NaN or infinities that the rule does not allow, or the region does not
            fit.
    """
    if got.shape != want.shape:
        text = f"{rule.tensor}: got shape {list(got.shape)}, want {list(want.shape)}"
        return Comparison(passed=False, worst=inf, message=text)
    chosen = chosen_region(rule, region_tensor, got.shape, got.device)
    wanted = _checked_scale(want, rule, chosen)
    tolerance, limit = _tolerance(rule, got.dtype, wanted)
    findings = list(_elementwise(got, want, rule, chosen, tolerance, limit))
    whole = norms(got, want, chosen) if _asks_for_norms(rule) else None
    if whole is not None:
        findings += _as_a_whole(rule, whole)
        findings += _against(reference, want, rule, whole, got.dtype, chosen)
    pattern = None
    if any(not one.share <= 1 for one in findings):
        pattern = patterns.telling(got, want, initial, chosen, whole or norms(got, want, chosen))
    if initial is not None and chosen is not None:
        findings.append(_outside(got, initial, rule, chosen))
    return _judged(rule, findings, pattern)


def zeros_pass(
    want: torch.Tensor,
    rule: Rule,
    *,
    dtype: torch.dtype,
    region_tensor: torch.Tensor | None = None,
    initial: torch.Tensor | None = None,
) -> bool:
    """Whether the check would take zeros for right though the oracle wants something else.

    Args:
        want: the oracle's output.
        rule: what must hold of an output.
        dtype: of the output.
        region_tensor: contents of the tensor that `rule.region` names.
        initial: contents of an inout tensor before the call.

    Raises:
        CheckError: as `compare`, and if no element is compared at all.
    """
    chosen = chosen_region(rule, region_tensor, want.shape, want.device)
    wanted = _checked_scale(want, rule, chosen)
    if not wanted.count and want.numel() and initial is None:
        raise CheckError(f"{rule.tensor}: {rule.region} selects no element, so nothing is checked")
    if not wanted.nonzero:
        return False
    zeros = torch.zeros((), dtype=dtype, device=want.device).expand(want.shape)
    return compare(zeros, want, rule, region_tensor=region_tensor).passed


def _checked_scale(want: torch.Tensor, rule: Rule, chosen: Region | None) -> Scale:
    """What is wanted is like; NaN would match anything, an infinite rms tolerate anything."""
    wanted = scale(want, chosen)
    for count, first, what, key in (
        (wanted.nans, wanted.first_nan, "NaN", "allow_nan"),
        (wanted.infinities, wanted.first_infinity, "an infinity", "allow_inf"),
    ):
        if count and not getattr(rule, key):
            at = place(first, want.shape)
            raise CheckError(
                f"{rule.tensor}: the oracle wants {what} {count} time(s), the first "
                f"{number(want[tuple(at)])} at {at}; {key} says that this is meant"
            )
    return wanted


def _tolerance(rule: Rule, dtype: torch.dtype, wanted: Scale) -> tuple[Tolerance, str]:
    """What an element may be off by, and the same in words."""
    if not rule.elementwise:
        return EXACT, "nothing"
    rtol = default_rtol(dtype) if rule.rtol is None else rule.rtol
    rtol *= rule.looser
    if rule.atol is not None:
        atol = rule.atol * rule.looser
        relative = f" + rtol {rtol:g} · |want|" if rtol else ""
        return Tolerance(rtol=rtol, floor=atol), f"atol {atol:g}{relative}"
    if not rtol:
        return EXACT, "nothing"
    text = f"rtol {rtol:g} · (|want| + rms {wanted.rms:.3g})"
    return Tolerance(rtol=rtol, floor=rtol * wanted.rms), text


def _elementwise(
    got: torch.Tensor,
    want: torch.Tensor,
    rule: Rule,
    chosen: Region | None,
    tolerance: Tolerance,
    limit: str,
) -> Iterator[_Finding]:
    """The conditions on each element."""
    if rule.exact:
        yield _elements(got, want, elements(got, want, BITS, chosen), "nothing", None)
    if rule.elementwise:
        found = elements(got, want, tolerance, chosen)
        yield _elements(got, want, found, limit, rule.share)


def _asks_for_norms(rule: Rule) -> bool:
    """Whether the rule has a condition on the output as a whole."""
    return any(one is not None for one in (rule.relative_l2, rule.cosine, rule.not_worse_than))


def _as_a_whole(rule: Rule, whole: Norms) -> Iterator[_Finding]:
    """The conditions on the output as a whole."""
    if rule.relative_l2 is not None:
        error, allowed = whole.relative_l2, rule.relative_l2 * rule.looser
        yield _Finding(
            share=_ratio(error, allowed),
            text=f"relative L2 error {error:.3g}, allowed {allowed:g}",
        )
    if rule.cosine is not None:
        away = (1 - rule.cosine) * rule.looser
        yield _Finding(
            share=_ratio(1 - whole.cosine, away),
            text=f"cosine {whole.cosine:.6g}, wanted at least {1 - away:g}",
        )


def _elements(
    got: torch.Tensor, want: torch.Tensor, found: Elements, limit: str, matched: float | None
) -> _Finding:
    """The condition on each element, or on the share of them that meets it."""
    share = found.worst
    if matched is not None and matched < 1:
        allowed = int((1 - matched) * found.count + 1e-9)  # 0.1 of 10 is 1 whatever 1 - 0.9 is
        share = _ratio(found.wrong, allowed)
    if not found.wrong:
        used = f", at most {share:.2g} of it used" if limit != "nothing" else ""
        text = f"{found.count} elements {'right' if not used else 'within ' + limit}{used}"
        return _Finding(share=share, text=text)
    at = place(found.worst_at, got.shape)
    verb = "differ" if limit == "nothing" else f"off by more than {limit}"
    times = "" if found.worst == inf else f" ({found.worst:.3g} × the limit)"
    excused = "" if matched is None else f" (a share of {1 - matched:.3g} may)"
    which = "first" if found.worst == inf else "worst"
    return _Finding(
        share=share,
        text=f"{found.wrong} of {found.count} elements {verb}{excused}; {which} at {at}: "
        f"got {number(got[tuple(at)])}, want {number(want[tuple(at)])}{times}",
    )


def _against(
    reference: torch.Tensor | None,
    want: torch.Tensor,
    rule: Rule,
    whole: Norms,
    dtype: torch.dtype,
    chosen: Region | None,
) -> Iterator[_Finding]:
    """The condition that the error is not larger than that of a reference.

    The error of the perfectly rounded result is always allowed: a reference may be right by chance.
    """
    if rule.not_worse_than is None:
        return
    if reference is None:
        yield _Finding(share=0.0, text=f"{rule.not_worse_than} is not here to compare with")
        return
    theirs = norms(reference, want, chosen).relative_l2
    allowed = max(theirs * NOT_WORSE_SLACK, rounding(want, dtype, chosen))
    yield _Finding(
        share=_ratio(whole.relative_l2, allowed),
        text=f"relative L2 error {whole.relative_l2:.3g}, that of {rule.not_worse_than} {theirs:.3g}",
    )


def _outside(got: torch.Tensor, initial: torch.Tensor, rule: Rule, chosen: Region) -> _Finding:
    """The condition that an inout tensor keeps its contents where it is not compared."""
    count, first = 0, -1
    for piece, keep in kept(got, chosen):
        now, then = wide(got[piece.at], got.device), wide(initial[piece.at], got.device)
        same = (now == then) | (now.isnan() & then.isnan())
        changed = (~same & ~keep).reshape(-1).nonzero()
        if len(changed) and first < 0:
            first = piece.start + int(changed[0])
        count += len(changed)
    if not count:
        return _Finding(share=0.0, text="the rest is unchanged")
    at = place(first, got.shape)
    return _Finding(
        share=inf,
        text=f"{count} elements outside of {rule.region} changed; first at {at}: "
        f"got {number(got[tuple(at)])}, was {number(initial[tuple(at)])}",
    )


def _judged(rule: Rule, findings: list[_Finding], pattern: str | None) -> Comparison:
    """All conditions together."""
    failed = [one.text for one in findings if not one.share <= 1]
    worst = max((one.share for one in findings), default=0.0)
    if not failed:
        text = "; ".join(one.text for one in findings)
        return Comparison(passed=True, worst=worst, message=f"{rule.tensor}: {text}")
    text = "; ".join(failed + ([pattern] if pattern else []))
    return Comparison(passed=False, worst=worst, message=f"{rule.tensor}: {text}")


def _ratio(found: float, allowed: float) -> float:
    """How much of what is allowed was used; nothing found uses nothing, NaN more than there is."""
    if isnan(found):
        return inf
    if found <= 0:
        return 0.0
    return found / allowed if allowed > 0 else inf
