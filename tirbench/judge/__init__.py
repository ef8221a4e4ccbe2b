"""Judge: verdicts of pairs and decisions of the gate, as pure functions of what was measured.

Standard library only: the command line imports it.
"""

from tirbench.judge.environment import environment_text, placebo, shift_since_pins
from tirbench.judge.gate import (
    GateFacts,
    GateNext,
    exit_code,
    gate,
    same_code_as_pinned,
)
from tirbench.judge.pairs import estimate, read_worker, tau_squared
from tirbench.judge.planning import PairPlan, gpu_seconds, minimal_effect, power, workers_for
from tirbench.judge.rates import lower_bound, upper_bound
from tirbench.judge.resolution import Trials, unresolved
from tirbench.judge.rule import Limits, Policy
from tirbench.judge.static_gate import StaticFacts, gate_static
from tirbench.judge.verdict import Next, decide, incomparable, judge, missing, same_code, settle

__all__ = [
    "GateFacts",
    "GateNext",
    "Limits",
    "Next",
    "PairPlan",
    "Policy",
    "StaticFacts",
    "Trials",
    "decide",
    "environment_text",
    "estimate",
    "exit_code",
    "gate",
    "gate_static",
    "gpu_seconds",
    "incomparable",
    "judge",
    "lower_bound",
    "minimal_effect",
    "missing",
    "placebo",
    "power",
    "read_worker",
    "same_code",
    "same_code_as_pinned",
    "settle",
    "shift_since_pins",
    "tau_squared",
    "unresolved",
    "upper_bound",
    "workers_for",
]
