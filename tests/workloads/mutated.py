"""Verify the smoke case of a workload with mistakes put into its kernels, in Triton's interpreter.

    python -m tests.workloads.mutated NAME < MISTAKES

MISTAKES is JSON: by label a list of [text of kernels/NAME.py, what stands there instead]; an empty list is
the workload as it is. Prints by label the sentences that the kernels fail with; `null` where all are right.
A check that accepts a kernel with a mistake in it is worth nothing, and only trying tells.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

from tests.workloads.kernel_files import KERNELS, WORKLOADS
from tirbench.expand import expand
from tirbench.harness import open_program
from tirbench.load import load
from tirbench.model import CaseJob, Plan, Row
from tirbench.render import render


def main() -> None:
    """Print what becomes of the workload with each of the mistakes."""
    (name,) = sys.argv[1:]
    mistakes: dict[str, list[tuple[str, str]]] = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder:
        outcomes = {
            label: verify(name, replacements, Path(folder) / str(number))
            for number, (label, replacements) in enumerate(mistakes.items())
        }
    json.dump(outcomes, sys.stdout)


def verify(name: str, replacements: list[tuple[str, str]], root: Path) -> str | None:
    """The sentences that the kernels of a copy of the workload fail with."""
    workload = load(copied(name, replacements, root))
    (case,) = (case for case in expand(workload) if "smoke" in case.selected_by)
    harness = root / f"{name}.py"
    harness.write_text(render(workload, [case]).text, encoding="utf-8")
    rows = tuple(
        Row(workload=name, case=case.id, implementation=item.name, role=item.role)
        for item in case.implementations
        if item.role == "kernel"
    )
    events: list[dict[str, Any]] = []
    job = CaseJob(case=case.id, rows=rows, time=False)
    open_program(harness).run(job, Plan(device="cpu"), events.append)
    outcomes = [event["outcome"] for event in events if event["event"] == "outcome"]
    assert len(outcomes) == len(rows)
    return "; ".join(reason for item in outcomes if (reason := failure(item))) or None


def copied(name: str, replacements: list[tuple[str, str]], root: Path) -> Path:
    """A project of that workload alone, with its kernel file changed."""
    (root / ".tirbench").mkdir(parents=True)
    shutil.copytree(KERNELS, root / "workloads" / "kernels")
    file = root / "workloads" / "kernels" / f"{name}.py"
    for old, new in replacements:
        text = file.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {file.name}"
        file.write_text(text.replace(old, new), encoding="utf-8")
    return Path(shutil.copy(WORKLOADS / f"{name}.toml", root / "workloads"))


def failure(outcome: dict[str, Any]) -> str | None:
    """Why a row is wrong, if it is; a mistake that raises shows nothing about the check."""
    if outcome["type"] == "wrong":
        return str(outcome["reason"])
    assert outcome["type"] == "verified", outcome
    return None


if __name__ == "__main__":
    main()
