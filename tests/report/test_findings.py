"""What `tirbench doctor` prints."""

from __future__ import annotations

import json

import pytest

from tirbench import doctor
from tirbench.model import Failed, Finding, Row, Verification, Verified
from tirbench.report.findings import findings_json, findings_text

GOOD = Finding(name="NVML", status="yes", detail="1 GPU(s) visible")
SOSO = Finding(
    name="clocks", status="limited", detail="not locked", remedy="sudo nvidia-smi -lgc 1980"
)
BAD = Finding(
    name="timer proton", status="no", detail="CUPTI error 39", remedy="end the other profiler"
)
EXTRA = Finding(name="liger", status="no", detail="absent", remedy="install it", optional=True)


def test_each_finding_is_a_line_and_what_to_do_below_it() -> None:
    assert findings_text((GOOD, SOSO, BAD, EXTRA)) == (
        "yes      NVML          1 GPU(s) visible\n"
        "limited  clocks        not locked\n"
        "                       → sudo nvidia-smi -lgc 1980\n"
        "NO       timer proton  CUPTI error 39\n"
        "                       → end the other profiler\n"
        "NO       liger         absent (optional)\n"
        "                       → install it\n"
    )


def test_programs_get_every_field() -> None:
    document = json.loads(findings_json((BAD,)))
    assert document == {
        "schema": 1,
        "findings": [
            {
                "name": "timer proton",
                "status": "no",
                "detail": "CUPTI error 39",
                "remedy": "end the other profiler",
                "optional": False,
            }
        ],
    }


@pytest.mark.parametrize(
    ("findings", "code"), [((), 0), ((GOOD, SOSO, EXTRA), 0), ((GOOD, BAD), 3)]
)
def test_what_cannot_be_measured_is_exit_3(findings: tuple[Finding, ...], code: int) -> None:
    assert doctor.exit_code(findings) == code


@pytest.mark.parametrize("name", [name for names in doctor.PROBES["cuda"] for name in names])
def test_a_probe_that_fails_says_why_and_what_to_do(name: str) -> None:
    row = Row(workload="doctor", case=name, implementation=name, role="kernel")
    failed = Failed(row=row, stage="time", reason="hung: no progress in 90 s in stage time")
    finding = doctor._finding(failed, "cuda")
    assert (finding.status, finding.detail) == ("no", failed.reason)
    assert finding.remedy


def test_a_kernel_that_is_only_interpreted_is_limited() -> None:
    row = Row(workload="doctor", case="triton", implementation="triton", role="kernel")
    method = Verification(method="unchecked", worst=None, detail="in the interpreter")
    answer = Verified(row=row, verification=method, untimed="a probe")
    assert doctor._finding(answer, "cpu").status == "limited"
    assert doctor._finding(answer, "cuda").status == "yes"
