"""Compile without a GPU: what a case's kernels need of the device, and the digest of their machine code.

Kernel files are imported, in processes of their own and never in this one. Like a measurement, every row
that is asked for is answered: a process that dies or stays silent costs the row it was at.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tirbench import codec
from tirbench.aot.request import PRODUCTS, compiles, cut_of, read_contents, target_of
from tirbench.model import Compilation, CompiledSuite, CompileJob, CompileTarget, Row

if TYPE_CHECKING:
    from tirbench.model import Case

SILENCE_S: Final = 300.0
"""Seconds that one row may take: a large kernel takes ptxas a minute at most (seen)."""

_LAST_LINES: Final = 3

RowKey: TypeAlias = "tuple[str, str]"
"""Case and implementation."""


def requests(
    harness: str,
    cases: Sequence[Case],
    targets: Sequence[CompileTarget],
    pinned: Mapping[RowKey, str],
) -> list[CompileJob]:
    """What is compiled of a workload: every row with a kernel whose code can be known.

    Args:
        harness: path of its generated program.
        cases: the chosen ones.
        targets: architectures.
        pinned: choices of tuned kernels by case and implementation.
    """
    return [
        CompileJob(
            harness=harness,
            case=case.id,
            target=target,
            rows=tuple(
                Row(
                    workload=case.workload.name,
                    case=case.id,
                    implementation=one.name,
                    role=one.role,
                )
                for one in chosen
            ),
            configurations=tuple(
                (one.name, pinned[case.id, one.name])
                for one in chosen
                if (case.id, one.name) in pinned
            ),
            contents=tuple(sorted({name for one in chosen for name in read_contents(case, one)})),
            cut=tuple((one.name, cut) for one in chosen if (cut := cut_of(one))),
        )
        for case in cases
        for target in targets
        if (
            chosen := [
                one
                for one in case.implementations
                if case.skipped is None
                and one.skipped is None
                and compiles(one)
                and (one.requires.device or case.workload.requires.device) != "cpu"
            ]
        )
    ]


@dataclass(slots=True)
class _Share:
    """What one process at a time compiles, and what is known of it so far."""

    requests: list[CompileJob]
    compilers: dict[str, str] = field(default_factory=dict)
    done: list[Compilation] = field(default_factory=list)


def compile_all(
    asked: Sequence[CompileJob],
    *,
    root: Path,
    processes: int = 1,
    watch: Callable[[Compilation], None] = lambda _: None,
    command: Sequence[str] = (sys.executable, "-m", "tirbench.aot.worker"),
    silence_s: float = SILENCE_S,
) -> CompiledSuite:
    """Compile what is asked; one answer for each row, in the order of the requests.

    Args:
        asked: of any number of workloads.
        root: the project's folder: harnesses look for it from the working directory.
        processes: how many compile at once.
        watch: is shown every answer.
        command: how a process that compiles is started; takes two file names.
        silence_s: seconds after which a process that says nothing is ended.
    """
    shares = [_Share(list(asked[index::processes])) for index in range(processes)]
    shares = [share for share in shares if share.requests]

    def work(share: _Share) -> None:
        _finish(share, root, watch, command, silence_s)

    with ThreadPoolExecutor(max_workers=max(1, len(shares))) as pool:
        for _ in pool.map(work, shares):
            pass
    answers = {(one.row.key, one.arch): one for share in shares for one in share.done}
    versions = {name: text for share in shares for name, text in share.compilers.items()}
    return CompiledSuite(
        compilers=tuple(sorted(versions.items())),
        compilations=tuple(
            answers[row.key, request.target.arch] for request in asked for row in request.rows
        ),
    )


def _finish(
    share: _Share,
    root: Path,
    watch: Callable[[Compilation], None],
    command: Sequence[str],
    silence_s: float,
) -> None:
    """Compile a share: in one process, or in as many as die."""
    left = share.requests
    while left:
        before = len(share.done)
        with tempfile.TemporaryDirectory(prefix="tirbench-aot-") as folder:
            begun, why = _process(share, left, Path(folder), root, watch, command, silence_s)
        done = {(one.row.key, one.arch) for one in share.done}
        left = list(_without(left, done))
        if not left:
            return
        if begun is None or begun in done:
            begun = (left[0].rows[0].key, left[0].target.arch)
        request = next(r for r in left if r.target.arch == begun[1] and _row(r, begun[0]))
        row = _row(request, begun[0])
        assert row is not None  # noqa: S101 - `request` was chosen by it
        failed = Compilation(row=row, arch=begun[1], failure=why)
        share.done.append(failed)
        watch(failed)
        left = list(_without(left, {begun}))
        if len(share.done) == before + 1 and not share.compilers:
            _give_up(share, left, why, watch)  # it could not even start
            return


def _give_up(
    share: _Share, left: list[CompileJob], why: str, watch: Callable[[Compilation], None]
) -> None:
    for request in left:
        for row in request.rows:
            share.done.append(Compilation(row=row, arch=request.target.arch, failure=why))
            watch(share.done[-1])


def _row(request: CompileJob, key: str) -> Row | None:
    return next((row for row in request.rows if row.key == key), None)


def _without(asked: Iterable[CompileJob], done: Iterable[tuple[str, str]]) -> Iterator[CompileJob]:
    known = set(done)
    for request in asked:
        rows = tuple(row for row in request.rows if (row.key, request.target.arch) not in known)
        if rows:
            yield replace(request, rows=rows)


def _process(
    share: _Share,
    asked: list[CompileJob],
    folder: Path,
    root: Path,
    watch: Callable[[Compilation], None],
    command: Sequence[str],
    silence_s: float,
) -> tuple[tuple[str, str] | None, str]:
    """Run one process; returns the row it was at when it ended and a sentence about its end."""
    requests_file, answers_file = folder / "requests.json", folder / "answers.jsonl"
    requests_file.write_text(json.dumps([codec.dump(request) for request in asked]))
    answers_file.touch()
    begun: tuple[str, str] | None = None
    with (folder / "log.txt").open("w+b") as log, answers_file.open("rb") as answers:
        process = subprocess.Popen(  # noqa: S603 - our own module
            [*command, str(requests_file), str(answers_file)],
            cwd=root,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            heard, buffer, ended = time.monotonic(), b"", False
            while True:
                ended = process.poll() is not None
                text = answers.read()  # after asking whether it has ended: what follows is complete
                if text:
                    heard = time.monotonic()
                    *lines, buffer = (buffer + text).split(b"\n")
                    for line in lines:
                        begun = _heard(share, json.loads(line), watch) or begun
                if ended:
                    return begun, _how_it_ended(process.returncode, log)
                if time.monotonic() - heard > silence_s:
                    return begun, f"not compiled within {silence_s:.0f} s"
                time.sleep(0.02)
        finally:
            _end(process)


def _heard(
    share: _Share, line: dict[str, Any], watch: Callable[[Compilation], None]
) -> tuple[str, str] | None:
    if "compilers" in line:
        share.compilers = line["compilers"]
    elif "done" in line:
        share.done.append(codec.load(Compilation, line["done"]))
        watch(share.done[-1])
    elif "begun" in line:
        return str(line["begun"]), str(line["arch"])
    return None


def _how_it_ended(code: int, log: Any) -> str:
    log.seek(0)
    lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    if code < 0:
        with_name = next((one.name for one in signal.Signals if one.value == -code), str(-code))
        return f"crashed: {with_name}"
    return f"the compiling process ended with {code}: {' / '.join(lines[-_LAST_LINES:])}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it has started (ptxas among it)."""
    with suppress(ProcessLookupError):  # it has ended by itself, with all its children
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _environment() -> dict[str, str]:
    """Of the process: kernels are compiled, not interpreted, and this package is found from everywhere."""
    package = str(Path(__file__).parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    environment.pop("TRITON_INTERPRET", None)
    return environment


__all__ = ["PRODUCTS", "RowKey", "compile_all", "requests", "target_of"]
