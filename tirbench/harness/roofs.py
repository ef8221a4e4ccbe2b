"""A program like a harness whose one case measures the ceilings of the device instead of a kernel.

It runs in a worker like every harness, under the lock of the device. The names of its implementations are
the dtypes whose matrix product is measured; `copy` is the bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tirbench import codec
from tirbench.harness.device import Device
from tirbench.model import CaseJob, Failed, Plan, Roofs, Verification, Verified
from tirbench.timing.roofs import measure_roofs

COPY = "copy"  # as in tirbench.pipeline, which cannot import this module: it needs torch

DEVICE_FACTS = ("sm_count", "l2_bytes", "smem_bytes", "capability")
"""What device-phase expressions read, and NVML does not tell."""


class RoofProgram:
    """Measures copy bandwidth and matrix product rates."""

    def run(self, job: CaseJob, plan: Plan, report: Callable[[dict[str, Any]], None]) -> None:
        """Report `{"event": "roofs", "roofs": Roofs, "device": {name: text}}`."""
        report({"event": "stage", "case": job.case, "implementation": None, "stage": "time"})
        dtypes = [row.implementation for row in job.rows if row.implementation != COPY]
        try:
            device = Device(plan.device)
            measured = measure_roofs(plan.device, dtypes)
        except Exception as error:  # noqa: BLE001 - a device without a ceiling still has times
            reason = f"{type(error).__name__}: {error}"
            for row in job.rows:
                answer = Failed(row=row, stage="time", reason=reason)
                report({"event": "outcome", "outcome": codec.dump(answer)})
        else:
            facts = {name: str(getattr(device, name)) for name in DEVICE_FACTS}
            found = Roofs(
                copy_gbytes_per_s=measured.copy_gbytes_per_s,
                tflops=tuple(sorted(measured.tflops.items())),
                zeros_tflops=tuple(sorted(measured.zeros_tflops.items())),
            )
            report(
                {"event": "roofs", "case": job.case, "roofs": codec.dump(found), "device": facts}
            )
            unchecked = Verification(method="unchecked", worst=None)
            for row in job.rows:
                done = Verified(row=row, verification=unchecked, untimed="a ceiling, not a kernel")
                report({"event": "outcome", "outcome": codec.dump(done)})
        report({"event": "case_done", "case": job.case})


program = RoofProgram()
