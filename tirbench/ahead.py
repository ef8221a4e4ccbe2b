"""What of a run is built ahead of its measurement, and by whom; composed from `aot` and `execute`.

While the worker measures one case, builders compile the Triton kernels of those to come into Triton's own
cache, on cores that no worker uses. The worker then finds what it would have compiled itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tirbench import aot, codec
from tirbench.model import Case, CompileTarget, Job, Machine

if TYPE_CHECKING:
    from tirbench.execute import Workers
    from tirbench.execute.ahead import Ahead, ToBuild

VARIABLE: Final = "TIRBENCH_BUILD_AHEAD"
"""Environment variable: `0` builds nothing ahead, so that its effect can be measured."""

OPENER: Final = "tirbench.aot.ahead:build"  # named, not imported: it needs torch

BUILT: Final = "triton"
"""The launch kind whose kernels have a cache on disk that another process can fill."""


def target_of(machine: Machine) -> CompileTarget | None:
    """The device of a run as code is compiled for it; `None` where the run has not asked it."""
    facts = dict(machine.facts)
    try:
        return CompileTarget(
            arch=f"sm_{float(facts['capability']) * 10:.0f}",
            sm_count=int(facts["sm_count"]),
            l2_bytes=int(facts["l2_bytes"]),
            smem_bytes=int(facts["smem_bytes"]),
            memory_bytes=machine.memory_bytes or 0,
            product=machine.device,
        )
    except (KeyError, ValueError):
        return None


def to_build(
    jobs: Sequence[Job], cases: Mapping[str, Case], target: CompileTarget
) -> Iterator[ToBuild]:
    """Every case that launches Triton kernels, in the order in which the jobs run them."""
    from tirbench.execute.ahead import ToBuild

    for job in jobs:
        for case_job in job.cases:
            key = f"{job.workload}/{case_job.case}"
            case = cases.get(key)
            asked = {row.implementation for row in case_job.rows}
            built = [
                one
                for one in (case.implementations if case is not None else ())
                if one.name in asked and any(step.kind == BUILT for step in one.steps)
            ]
            if case is None or not built:
                continue
            pinned = {(case.id, name): text for name, text in case_job.configurations}
            cut = replace(case, implementations=tuple(built))
            for request in aot.requests(job.harness, [cut], [target], pinned):
                yield ToBuild(case=key, request=codec.dump(request))  # type: ignore[arg-type]


@contextmanager
def building(todo: Sequence[ToBuild], workers: Workers, *, gpus: int, log: Path) -> Iterator[Ahead]:
    """Build ahead while the body runs, where there is something to come and there are cores for it.

    Args:
        todo: what may be built; the first case of each GPU is begun at once and not among what is.
        workers: from whose server builders are forked; its workers keep to their part of the cores from
            now on.
        gpus: how many cases are measured at a time: as many builders share the work.
        log: file that takes what builders print.

    Yields:
        What is to `look` at each event of the run, and knows how much was built.
    """
    from tirbench.execute import division
    from tirbench.execute.ahead import Ahead

    cores = division() if os.environ.get(VARIABLE) != "0" and len(todo) > gpus else None
    count = 0 if cores is None else min(gpus, len(cores.building))
    if cores is not None:
        workers.cores = cores.measuring
    builders = Ahead(
        [todo[gpus:][number::count] for number in range(count)],
        lambda: workers.start_builder("cuda", () if cores is None else cores.building),
        opener=OPENER,
        log=log,
    )
    try:
        yield builders
    finally:
        builders.close()
