"""What a builder is asked to build in tests: code that does everything that compiling code may do."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def build(request: dict[str, Any], goes_on: Callable[[str], bool]) -> dict[str, Any]:
    """Behave as the request says: `do`, and where a note of it is left."""
    note = Path(request["note"])
    if not goes_on(f"{request['do']}/ours"):
        return {}
    with note.open("a") as file:
        file.write(f"{request['do']}\n")
    BEHAVIOURS.get(request["do"], _nothing)(request)
    if request["do"] == "lies":
        return {"kernels": "many", "compiled": float("inf"), "failed": [1]}
    return {"kernels": 2, "compiled": 1, "failed": 0}


def _nothing(_: dict[str, Any]) -> None:
    """A good build."""


def _raises(_: dict[str, Any]) -> None:
    raise ValueError("no such kernel")


def _exits(_: dict[str, Any]) -> None:
    sys.exit("a kernel file that ends the process")


def _dies(_: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _hangs(_: dict[str, Any]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def _waits(request: dict[str, Any]) -> None:
    while not Path(request["until"]).exists():
        time.sleep(0.01)


def _tells(request: dict[str, Any]) -> None:
    facts = {
        "cores": sorted(os.sched_getaffinity(0)),
        "gpus": os.environ["CUDA_VISIBLE_DEVICES"],
        "nice": os.nice(0),
        "leads": os.getpgid(0) == os.getpid(),
    }
    Path(request["until"]).write_text(json.dumps(facts))


BEHAVIOURS: dict[str, Callable[[dict[str, Any]], None]] = {
    "raises": _raises,
    "exits": _exits,
    "dies": _dies,
    "hangs": _hangs,
    "waits": _waits,
    "tells": _tells,
}
