"""Programs that measure tirbench itself; run them from the root: `python -m benchmarks.fidelity`."""
