"""What is said of a machine before anything is tried on it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import pytest

from tirbench.execute.cores import Division
from tirbench.execute.lock import DeviceLock
from tirbench.execute.surroundings import look
from tirbench.model import Finding

from .nvml_stand_in import Nvml


def found(
    library: Nvml,
    root: Path,
    device: Literal["cuda", "cpu"] = "cuda",
    **environ: str,
) -> dict[str, Finding]:
    environment = {"PATH": os.environ["PATH"], **environ}
    return {one.name: one for one in look(device, root, environment, library)}


def test_a_gpu_of_ones_own_is_said_to_be_one(tmp_path: Path) -> None:
    seen = found(Nvml({}), tmp_path)
    for name in ("NVML", "whole GPU", "alone on the GPU", "power limit", "slowdown reasons"):
        assert seen[name].status == "yes", seen[name]
    assert seen["clocks"].detail.startswith("SM at 1755 of 1980 MHz")
    assert "nvidia-smi -lgc 1980" in seen["clocks"].remedy


@pytest.mark.parametrize(
    ("gpu", "name", "detail"),
    [
        ({"mig": ["MIG-a"]}, "whole GPU", "MIG is on"),
        ({"pids": [7]}, "alone on the GPU", "1 other process(es) have a context on it"),
        ({"limit": 400_000}, "power limit", "400 W, the product's own is 700 W"),
        (
            {"refuses": {"nvmlDeviceGetCurrentClocksThrottleReasons"}},
            "slowdown reasons",
            "Insufficient Permissions",
        ),
        ({"refuses": {"nvmlDeviceGetComputeRunningProcesses"}}, "alone on the GPU", "Insufficient"),
        ({"refuses": {"nvmlDeviceGetClockInfo"}}, "clocks", "Insufficient Permissions"),
    ],
)
def test_what_takes_trust_from_a_gpu_is_limited_and_says_what_to_do(
    tmp_path: Path, gpu: dict[str, Any], name: str, detail: str
) -> None:
    finding = found(Nvml(gpu), tmp_path)[name]
    assert finding.status == "limited"
    assert finding.detail.startswith(detail)
    assert finding.remedy


def test_without_nvml_the_reason_stands_and_the_rest_is_said(tmp_path: Path) -> None:
    seen = found(Nvml(broken="Insufficient Permissions"), tmp_path)
    assert seen["NVML"].status == "limited"
    assert "Insufficient Permissions" in seen["NVML"].detail
    assert "device lock" in seen


@pytest.mark.parametrize(
    ("library", "environ", "detail"),
    [
        (Nvml({}), {"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES='' hides the 1"),
        (Nvml(), {}, "the driver is there, and no device"),
        (Nvml(broken="NVML Shared Library Not Found"), {}, "NVML: NVML Shared Library Not Found"),
    ],
)
def test_why_there_is_no_gpu(
    tmp_path: Path, library: Nvml, environ: dict[str, str], detail: str
) -> None:
    finding = found(library, tmp_path, "cpu", **environ)["CUDA device"]
    assert finding.status == "no"
    assert finding.detail.startswith(detail)


def test_a_compiler_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    finding = found(Nvml({}), tmp_path, PATH=str(tmp_path / "empty"))["C++ compiler"]
    assert (finding.status, finding.detail) == ("no", "no C++ compiler on PATH")
    assert "install" in finding.remedy


def test_an_assembler_that_the_environment_names_is_found(tmp_path: Path) -> None:
    (ptxas := tmp_path / "ptxas").touch(mode=0o755)
    assert found(Nvml({}), tmp_path, TRITON_PTXAS_PATH=str(ptxas))["ptxas"].status == "yes"


def test_a_lock_that_cannot_be_had_is_no(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIRBENCH_LOCK_DIR", str(tmp_path))
    with DeviceLock("doctor-cuda"):
        assert found(Nvml({}), tmp_path)["device lock"].status == "no"
    assert found(Nvml({}), tmp_path)["device lock"].status == "yes"


@pytest.mark.parametrize("there", [True, False])
def test_whether_cases_to_come_are_compiled_meanwhile_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    cores = Division(measuring=(0, 1, 2), building=(3,)) if there else None
    monkeypatch.setattr("tirbench.execute.surroundings.division", lambda: cores)
    finding = found(Nvml({}), tmp_path)["building ahead"]
    assert (finding.status, finding.optional) == ("yes" if there else "no", True)
    assert ("on 1 of 4 processors" if there else "too few processors") in finding.detail
