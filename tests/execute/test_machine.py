from __future__ import annotations

import getpass
import json
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tirbench import codec
from tirbench.execute import machine
from tirbench.execute.machine import describe, has_cuda, lock_name, slug

from .nvml_stand_in import Nvml


@pytest.fixture(autouse=True)
def torch_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(machine, "version", lambda name: f"{len(name)}.0+cu130")


@pytest.mark.parametrize(
    ("name", "hardware"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3"),
        ("NVIDIA H200 MIG 1g.18gb", "nvidia-h200-mig-1g.18gb"),
        ("Intel(R) Xeon(R) Platinum 8480+ CPU @ 2.00GHz", "intel-xeon-platinum-8480"),
        ("AMD EPYC 9654 96-Core Processor", "amd-epyc-9654-96-core"),
        ("../..", "unknown"),
    ],
)
def test_hardware_is_named_as_a_folder_can_be(name: str, hardware: str) -> None:
    assert slug(name) == hardware


def test_a_gpu_is_described_through_nvml() -> None:
    library = Nvml({})
    described = describe("cuda", library)
    assert (described.hardware, described.device) == ("nvidia-h200", "NVIDIA H200")
    assert described.memory_bytes == 150_754_820_096
    facts = dict(described.facts)
    assert facts["driver"] == "580.159"
    assert facts["cuda_driver"] == "13.0"
    assert facts["sm_clock_max"] == "1980 MHz"
    assert facts["power_limit"] == "700 W"
    assert (facts["ecc"], facts["mig"], facts["memory"]) == ("on", "off", "140.4 GiB")
    assert dict(described.versions)["torch"] == "5.0+cu130"
    assert library.opened == 0


def test_a_unit_is_a_digest_that_tells_units_apart_and_does_not_show_the_uuid() -> None:
    first, second = (describe("cuda", Nvml({"uuid": f"GPU-{n}"})) for n in (1, 2))
    assert first.unit != second.unit
    assert first.unit is not None
    assert len(first.unit) == 12
    assert "GPU-1" not in json.dumps(codec.dump(first))


def test_what_nvml_refuses_is_missing_with_the_reason() -> None:
    refuses = {"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetEnforcedPowerLimit"}
    described = describe("cuda", Nvml({"refuses": refuses}))
    assert described.memory_bytes is None
    assert dict(described.missing) == {
        "memory": "Insufficient Permissions",
        "power_limit": "Insufficient Permissions",
    }


def test_without_nvml_the_gpu_is_unknown_and_the_reason_kept() -> None:
    described = describe("cuda", Nvml(broken="Driver Not Loaded"))
    assert described.hardware == "unknown-gpu"
    assert dict(described.missing)["gpu"] == "NVML: Driver Not Loaded"


def test_a_cpu_is_described_without_nvml() -> None:
    described = describe("cpu", Nvml(broken="must not be asked"))
    assert described.hardware.startswith("cpu-")
    assert described.kind == "cpu"
    assert described.memory_bytes
    assert described.memory_bytes > 1 << 28
    assert dict(described.facts)["cpu"] == described.device


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_no_host_user_or_path_is_in_the_facts(device: str) -> None:
    text = json.dumps(codec.dump(describe(device, Nvml({}))))  # type: ignore[arg-type]
    for secret in (platform.node(), str(Path.home()), getpass.getuser()):
        assert not re.search(rf"(?<![\w-]){re.escape(secret)}(?![\w-])", text)


@pytest.mark.parametrize(
    ("wanted", "uuids"),
    [
        (None, ["GPU-0000-aaaa", "GPU-1111-aaaa"]),
        ("1", ["GPU-1111-aaaa"]),
        ("1,0", ["GPU-1111-aaaa", "GPU-0000-aaaa"]),
        ("GPU-11", ["GPU-1111-aaaa"]),
        ("MIG-1", ["MIG-1"]),
        ("0,7,1", ["GPU-0000-aaaa"]),
        ("", []),
        ("-1", []),
        ("GPU-", []),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(
    wanted: str | None, uuids: list[str]
) -> None:
    from tirbench.execute.nvml import visible

    environ = {} if wanted is None else {"CUDA_VISIBLE_DEVICES": wanted}
    assert [gpu.uuid for gpu in visible(Nvml({}, {}), environ)] == uuids
    assert has_cuda(environ, Nvml({}, {})) is bool(uuids)


def test_a_torch_for_the_cpu_has_no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "version", lambda _: "2.13.0+cpu")
    assert not has_cuda({}, Nvml({}))


def test_a_run_locks_the_gpu_that_torch_will_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert lock_name("cuda", Nvml({}, {})) == "GPU-1111-aaaa"
    assert lock_name("cuda", Nvml(broken="none")) == "gpu"
    assert lock_name("cpu") == "cpu"


@pytest.mark.parametrize("wanted", [None, "0", "GPU-0000", "MIG-a"])
def test_every_user_of_one_instance_locks_and_describes_the_same(
    monkeypatch: pytest.MonkeyPatch, wanted: str | None
) -> None:
    """CUDA gives a process the first instance of a divided GPU, however that GPU was named."""
    if wanted is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", wanted)
    library = Nvml({"mig": ["MIG-a", "MIG-b"]})
    assert lock_name("cuda", library) == "MIG-a"
    described = describe("cuda", library)
    assert (described.hardware, described.memory_bytes) == ("nvidia-h200-mig-1g.18gb", 18 << 30)
    facts = dict(described.facts)
    assert (facts["mig"], facts["sm_clock_max"], facts["power_limit"]) == (
        "on",
        "1980 MHz",
        "700 W",
    )


def test_the_runner_imports_neither_torch_nor_triton_nor_numpy() -> None:
    program = (
        "import sys; from tirbench import execute; execute.describe('cpu'); execute.has_cuda(); "
        "print([m for m in ('torch', 'triton', 'numpy') if m in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("text", "cuda"),
    [
        ("cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n", "12.8"),
        ("__version__ = '2.11.0'\ncuda = '13.0'\n", "13.0"),
        ("cuda: Optional[str] = None\n", None),
        ("debug = False\n", None),
    ],
)
def test_the_cuda_that_torch_is_built_for_is_a_fact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, cuda: str | None
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('it was imported')\n")
    (tmp_path / "torch" / "version.py").write_text(text)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert dict(describe("cpu").facts).get("cuda") == cuda
