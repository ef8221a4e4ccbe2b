"""`gate`: a kept run against the baselines beside its workloads, with what must be measured once more.

The rules are `judge.gate`'s. Here every row is accounted for: what the run timed, and what is pinned. A
row that trips is measured again or compared with old code by who is given for that; where nobody is, it
answers 3 with the command that would.

`pins` reads what is pinned and finds the code of a pin, `rows` gathers what is known of a row, `trips` goes
on with those that trip, `run` has the whole. `sessions` learns what a band must allow.
"""

from tirbench.gating.pins import Pins, commit_of_pin, of_no_workload
from tirbench.gating.rows import DEFAULTS, plan_of, timer_on
from tirbench.gating.run import code_of, gate_run
from tirbench.gating.sessions import learn, reports
from tirbench.gating.trips import Confirm, Measure, Suspect

__all__ = [
    "DEFAULTS",
    "Confirm",
    "Measure",
    "Pins",
    "Suspect",
    "code_of",
    "commit_of_pin",
    "gate_run",
    "learn",
    "of_no_workload",
    "plan_of",
    "reports",
    "timer_on",
]
