"""Right before fast: one restored, poisoned call compared with what the oracle says."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from tirbench.check import compare, zeros_pass
from tirbench.errors import UsageError
from tirbench.launch import triton
from tirbench.model import Verification
from tirbench.tensors import checksum, poison_allocator

if TYPE_CHECKING:
    from tirbench.check import Rule
    from tirbench.harness.case import Case, Declared, Launch


@dataclass(frozen=True, slots=True)
class Accepted:
    """Outputs that were compared and found right: their checksums by tensor, and what was found."""

    digests: Mapping[str, int]
    verification: Verification


@dataclass(frozen=True, slots=True)
class Expected:
    """What is right: one tensor for each checked output, as the oracle computes it.

    Attributes:
        want: by tensor name; `None` where the case has a reason to check nothing.
        unchecked: that reason.
        accepted: outputs that were found right, by implementation: the same bits again need no comparison.
        references: outputs of references that a kernel may not be worse than, by implementation.
    """

    want: Mapping[str, torch.Tensor]
    unchecked: str | None = None
    references: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)
    accepted: dict[str, Accepted] = field(default_factory=dict)

    @classmethod
    def of(cls, case: Case) -> Expected:
        """Call the oracle once, on private copies of the initial contents.

        Raises:
            UsageError: the oracle returns something else than it says, or zeros would pass the check.
            Exception: what the oracle raises.
        """
        if case.unchecked_reason is not None:
            return cls({}, case.unchecked_reason)
        oracle = case.declared_oracle
        if oracle is None:
            raise UsageError(
                "the workload has neither an oracle nor a reason to check nothing ([check])"
            )
        copies = {
            name: case.memory.initial(name, oracle.dtype)
            for name in inspect.signature(oracle.function).parameters
        }
        want = bind(oracle.returns, oracle.function(**copies), "the oracle")
        case.device.synchronize()
        for name, rule in case.checked.items():
            if name not in want:
                raise UsageError(f"{name} is checked, but the oracle does not return it")
            declared = case.memory[name].shape
            if rule.through is None and want[name].shape != declared:
                raise UsageError(
                    f"the oracle returns {list(want[name].shape)} for {name}, which is declared as "
                    f"{list(declared)}: one of them is wrong"
                )
            if zeros_are_right(case, rule, want[name]):
                raise UsageError(
                    f"the check of {name} would accept an output of zeros: tighten its tolerance, "
                    "or give inputs that make the output differ from zero"
                )
        return cls({name: tensor.detach() for name, tensor in want.items()})

    def notes(self, case: Case, declared: Declared) -> list[str]:
        """What a reader of the row must know about how it was run and checked."""
        said = []
        if case.memory.restored:
            said.append(f"{', '.join(case.memory.restored)} restored, untimed")
        if case.declared_prepare is not None:
            said.append("prepare of [ranks] before every launch, untimed")
        if case.device.world_size > 1:
            said.append(f"over {case.device.world_size} ranks, the slowest of which counts")
        if declared.returns:
            said.append("returns its own memory")
        skipped = [
            name
            for name in case.checked
            if declared.outputs is not None and name not in declared.outputs
        ]
        if skipped:
            said.append(f"does not compute {', '.join(skipped)}")
        if declared.looser > 1:
            said.append(f"held to {declared.looser:g} times the tolerance")
        missing = sorted(bounds(case) - set(self.references) - {declared.name})
        if missing and declared.role == "kernel":
            said.append(f"not compared with {', '.join(missing)}, which is not there")
        return said


def verify(
    case: Case, declared: Declared, launch: Launch, expected: Expected
) -> Verification | str:
    """Run an implementation once and compare what it wrote or returned.

    Every output is poisoned and every inout tensor restored before the call, so that only what this
    call writes can be right. Guard bytes, gaps and inputs are looked at after it.

    Returns:
        What was compared, or the sentence that says what is wrong.

    Raises:
        Exception: what the launch raises, also asynchronously.
    """
    memory = case.memory
    memory.restore()
    memory.poison()
    if case.preparation is not None:
        case.preparation()
    for name in declared.returns:
        if name in expected.want:
            poison_allocator(case.device.torch, memory[name].nbytes)
    result = launch()
    case.device.synchronize()
    reason = expected.unchecked or declared.unchecked
    returned = bind(declared.returns, result, declared.name) if declared.returns else {}
    if damage := memory.violations():
        return "; ".join(damage)
    if reason is not None:
        return Verification(method="unchecked", worst=None, detail=reason)
    outputs = {
        name: returned.get(name, memory[name])
        if rule.through is None
        else _through(rule.through, case, returned)
        for name, rule in case.checked.items()
        if declared.outputs is None or name in declared.outputs
    }
    digests = {name: int(checksum(got)) for name, got in outputs.items()}
    known = expected.accepted.get(declared.name)
    if known is not None and known.digests == digests:
        return known.verification
    worst = 0.0
    for name, got in outputs.items():
        rule = replace(case.checked[name], looser=declared.looser)
        reference = expected.references.get(rule.not_worse_than or "", {}).get(name)
        comparison = compare(
            got, expected.want[name], rule, reference=reference, **surroundings(case, rule)
        )
        if not comparison.passed:
            return comparison.message
        worst = max(worst, comparison.worst)
    if declared.name in bounds(case):
        expected.references[declared.name] = {name: got.clone() for name, got in outputs.items()}
    interpreted = declared.launches_triton and triton.interpreted()
    found = Verification(method="interpreter" if interpreted else "oracle", worst=worst)
    expected.accepted[declared.name] = Accepted(digests, found)
    return found


def bind(names: tuple[str, ...], value: Any, whose: str) -> dict[str, Any]:
    """Returned values by the names they are bound to; `_` ignores one.

    Raises:
        UsageError: another number of values was returned.
    """
    values = tuple(value) if isinstance(value, tuple | list) else (value,)
    if len(values) != len(names):
        raise UsageError(
            f"{whose} returned {len(values)} value(s), `returns` names {len(names)}: {', '.join(names)}"
        )
    return {name: item for name, item in zip(names, values, strict=True) if name != "_"}


def zeros_are_right(case: Case, rule: Rule, want: torch.Tensor) -> bool:
    """Whether the check of an output would take zeros for right, though the oracle wants something else."""
    beside = surroundings(case, rule)
    if rule.through is None:
        return zeros_pass(want, rule, dtype=case.memory[rule.tensor].dtype, **beside)
    if not bool(torch.count_nonzero(want)):
        return False
    zeros = {
        name: torch.zeros_like(case.memory[name]) if name in case.checked else case.memory[name]
        for name in inspect.signature(rule.through).parameters
    }
    return compare(rule.through(**zeros), want, rule, **beside).passed


def bounds(case: Case) -> set[str]:
    """The references that a rule of the case bounds a kernel's error by."""
    return {rule.not_worse_than for rule in case.rules if rule.not_worse_than is not None}


def surroundings(case: Case, rule: Rule) -> dict[str, torch.Tensor | None]:
    """What a rule is compared beside: the tensor of its region, and initial contents it must keep."""
    memory = case.memory
    kept = rule.through is None and memory.has_initial(rule.tensor)
    return {
        "region_tensor": None if rule.region is None else memory.initial(rule.region),
        "initial": memory.initial(rule.tensor) if kept else None,
    }


def _through(function: Callable[..., Any], case: Case, returned: Mapping[str, Any]) -> Any:
    """A function of the outputs, called with the tensors its parameters name."""
    names = inspect.signature(function).parameters
    return function(*(returned.get(name, case.memory[name]) for name in names))
