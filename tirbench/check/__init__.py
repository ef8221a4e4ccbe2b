"""Whether an output is right: rules, tolerances, and messages that say what is wrong."""

from tirbench.check.compare import Comparison, compare, zeros_pass
from tirbench.check.rule import CheckError, Rule, default_rtol

__all__ = ["CheckError", "Comparison", "Rule", "compare", "default_rtol", "zeros_pass"]
