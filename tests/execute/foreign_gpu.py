"""A harness for tests on a GPU: kernels that damage the context, hang it or fill its memory."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from foreign import outcome, stage  # type: ignore[import-not-found]

from tirbench.model import Failed, Verification, Verified

if TYPE_CHECKING:
    from collections.abc import Callable

    from tirbench.model import CaseJob, Outcome, Plan, Row


@triton.jit  # type: ignore[untyped-decorator]
def write_far_away(x_ptr) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001 - a pointer
    tl.store(x_ptr + (1 << 44), 1.0)


def illegal_address() -> None:
    write_far_away[(1,)](torch.zeros(1, device="cuda"))


def device_assert() -> None:
    torch.zeros(3, device="cuda")[torch.tensor([5], device="cuda")]


def endless() -> None:
    torch.cuda._sleep(1 << 50)


def out_of_memory() -> None:
    torch.empty(1 << 50, dtype=torch.uint8, device="cuda")


def good() -> None:
    x = torch.arange(1000, device="cuda", dtype=torch.float32)
    assert float((x + x).sum()) == 999_000.0


class Program:
    def run(self, job: CaseJob, plan: Plan, report: Callable[[dict[str, Any]], None]) -> None:
        assert plan.device == "cuda"
        for row in job.rows:
            stage(report, job, "verify", row)
            report(outcome(answer(row)))


def answer(row: Row) -> Outcome:
    try:
        globals()[row.implementation]()
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001 - as the real harness does
        reason = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        return Failed(row=row, stage="verify", reason=reason, detail=traceback.format_exc())
    return Verified(
        row=row, verification=Verification(method="oracle", worst=0.0), untimed="a test"
    )


def open_program(_: str) -> Program:
    return Program()
