"""The repository of `benchmarks/branch.py`: a copy of the workloads, its branches, and commands run in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tirbench import codec, store
from tirbench.model import GateReport, PairReport
from tirbench.report import gates, verdicts

ROOT: Final = Path(__file__).resolve().parents[1]
WIDTH: Final = 150
NUMBERS: Final = ("midmean_us", "band", "anchor_us", "ratio", "ratio_band")
"""Keys of a pinned row that are sticky."""

IDENTITY: Final = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.invalid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What one command did: as it was typed, its exit code, stdout, stderr and seconds."""

    command: str
    code: int
    out: str
    err: str
    seconds: float


@dataclass(slots=True)
class Project:
    """A git repository with the suite's workloads; commands are tirbench's of this checkout.

    `log` holds every command in order.
    """

    root: Path
    log: list[Said] = field(default_factory=list)

    @classmethod
    def make(cls, root: Path) -> Project:
        """Copy the workloads, without baselines, and commit them."""
        root.mkdir(parents=True)
        shutil.copytree(
            ROOT / "workloads",
            root / "workloads",
            ignore=shutil.ignore_patterns("baselines", "__pycache__"),
        )
        (root / "pyproject.toml").write_text("", encoding="utf-8")
        (root / ".gitignore").write_text(".tirbench/\n__pycache__/\n", encoding="utf-8")
        made = cls(root)
        made.git("init", "--quiet", "--initial-branch=main")
        made.commit("The suite")
        return made

    def git(self, *arguments: str) -> str:
        """Run git as somebody who does not exist.

        Raises:
            RuntimeError: git fails.
        """
        done = subprocess.run(  # noqa: S603 - no shell
            ["git", "-C", str(self.root), *IDENTITY, *arguments],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"git {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def commit(self, subject: str) -> None:
        """Commit everything; nothing to commit is no error."""
        self.git("add", "-A")
        self.git("commit", "--quiet", "--allow-empty", "-m", subject)

    def branch(self, name: str, start: str = "main") -> None:
        """Begin a branch anew, at the tip of another, with its files in the working tree."""
        self.git("checkout", "--quiet", "--force", "-B", name, start)

    def run(self, *arguments: str, environment: Mapping[str, str] | None = None) -> Said:
        """Run a command of tirbench in the working tree."""
        begin = time.monotonic()
        done = subprocess.run(  # noqa: S603 - our own interpreter
            [sys.executable, "-m", "tirbench", *arguments],
            cwd=self.root,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(
                    [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
                ),
                **(environment or {}),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        set_ = "".join(f"{name}={value} " for name, value in (environment or {}).items())
        said = Said(
            command=f"{set_}tirbench {' '.join(arguments)}",
            code=done.returncode,
            out=done.stdout,
            err=done.stderr,
            seconds=time.monotonic() - begin,
        )
        self.log.append(said)
        print(f"{said.seconds:6.1f} s  exit {said.code}  {said.command}", file=sys.stderr)
        return said

    def numbers(self) -> dict[tuple[str, str, str], dict[str, float | None]]:
        """The sticky numbers of every pinned row, by workload, case and implementation."""
        found: dict[tuple[str, str, str], dict[str, float | None]] = {}
        for path in sorted(self.root.glob("workloads/baselines/*/*.toml")):
            if path.name == "device.toml":
                continue
            baseline = store.read_baseline(self.root, path.relative_to(self.root).as_posix())
            for row in baseline.rows if baseline else ():
                key = (path.stem, row.case, row.implementation)
                found[key] = {name: getattr(row, name) for name in NUMBERS}
        return found


def pair_report(said: Said) -> PairReport | None:
    """The report of an `ab --format json`; `None` where it has none."""
    data = _document(said)
    return None if data is None else codec.load(PairReport, data)


def gate_report(said: Said) -> GateReport | None:
    """The report of a `gate --format json`; `None` where it has none."""
    data = _document(said)
    return None if data is None else codec.load(GateReport, data)


def _document(said: Said) -> dict[str, Any] | None:
    if not said.out.startswith("{"):
        return None
    data: dict[str, Any] = json.loads(said.out)
    return {key: value for key, value in data.items() if key not in {"schema", "exit_code"}}


def as_text(said: Said, lines: int = 45) -> str:
    """What a person would have seen: of a JSON report the text, of other output its ends."""
    pair = pair_report(said) if said.command.partition(" ab ")[1] else None
    gate = gate_report(said) if said.command.partition(" gate ")[1] else None
    if pair is not None:
        text = verdicts.render(pair, "text", code=said.code, width=WIDTH)
    elif gate is not None:
        text = gates.render(gate, "text", code=said.code, width=WIDTH)
    else:
        text = said.out or said.err
    kept = text.rstrip().splitlines()
    if len(kept) > lines:
        half = lines // 2
        kept = [*kept[:half], f"[{len(kept) - 2 * half} lines]", *kept[-half:]]
    return "\n".join(kept)
