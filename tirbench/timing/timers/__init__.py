"""The timers, each a small class in its own module behind `tirbench.timing.plan.Timer`."""
