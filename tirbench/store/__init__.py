"""What is kept: runs in the ignored `.tirbench/`, accepted numbers beside the workloads."""

from __future__ import annotations

from tirbench.store.baseline import (
    BaselineError,
    baseline_path,
    device_path,
    is_sealed,
    read_baseline,
    render_baseline,
    with_resources,
    write_baseline,
    write_device,
)
from tirbench.store.files import write
from tirbench.store.git import Tree, read_tree, require_committed
from tirbench.store.journal import RunWriter, keeping_latest, open_run, resume_run
from tirbench.store.kept import KeptRun, read_run, run_ids
from tirbench.store.lines import RunError
from tirbench.store.pin import Change, Pinned, Pinning, PinPlan, apply, plan_pin
from tirbench.store.sessions import KeptSession, read_sessions, sessions_path, taught

__all__ = [
    "BaselineError",
    "Change",
    "KeptRun",
    "KeptSession",
    "PinPlan",
    "Pinned",
    "Pinning",
    "RunError",
    "RunWriter",
    "Tree",
    "apply",
    "baseline_path",
    "device_path",
    "is_sealed",
    "keeping_latest",
    "open_run",
    "plan_pin",
    "read_baseline",
    "read_run",
    "read_sessions",
    "read_tree",
    "render_baseline",
    "require_committed",
    "resume_run",
    "run_ids",
    "sessions_path",
    "taught",
    "with_resources",
    "write",
    "write_baseline",
    "write_device",
]
