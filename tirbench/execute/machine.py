"""The facts of the machine: what the numbers of a run were measured on.

Nothing here names a host, a user or a path, and nothing imports torch. What cannot be read is listed
with the reason.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tirbench import __version__
from tirbench.execute import nvml
from tirbench.execute.nvml import NvmlMissing
from tirbench.model import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PACKAGES: Final = ("torch", "triton", "apache-tvm-tirx", "liger-kernel")
"""Distributions whose version is a fact of a run, by their name on the package index."""

UNIT_SALT: Final = b"tirbench unit 1:"
"""So that the digest of a unit cannot be looked up in anybody else's list of UUIDs."""


def has_cuda(environ: Mapping[str, str] | None = None, module: Any = None) -> bool:
    """Whether torch would find a GPU, without importing it.

    `CUDA_VISIBLE_DEVICES` is honoured, and a build of torch for the CPU finds none. Where NVML cannot
    be used, the device files decide.

    Args:
        environ: the environment; the process's own where left out.
        module: a stand-in for `pynvml`.
    """
    environ = os.environ if environ is None else environ
    wanted = environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is not None and (not wanted.strip() or wanted.strip().startswith("-")):
        return False
    if (_version("torch") or "").endswith("+cpu"):
        return False
    try:
        with nvml.session(module) as library:
            return bool(nvml.visible(library, environ))
    except NvmlMissing:
        return any(re.fullmatch(r"nvidia\d+|dxg", path.name) for path in Path("/dev").iterdir())


def lock_name(device: Literal["cuda", "cpu"], module: Any = None) -> str:
    """What a run on this device locks: the UUID of the GPU or MIG instance that it uses, or `cpu`."""
    if device == "cpu":
        return "cpu"
    try:
        with nvml.session(module) as library:
            gpu = nvml.used(library)
            return gpu.uuid if gpu is not None else "gpu"
    except NvmlMissing:
        return "gpu"  # one lock for all of them: too careful, never wrong


def describe(device: Literal["cuda", "cpu"], module: Any = None) -> Machine:
    """Everything about this machine that a number measured on `device` depends on.

    Args:
        device: what the run measures on.
        module: a stand-in for `pynvml`.
    """
    missing: dict[str, str] = {}
    facts = _host_facts()
    versions = {name: number for name in PACKAGES if (number := _version(name))}
    versions["tirbench"] = __version__
    missing.update({name: "not installed" for name in PACKAGES if name not in versions})
    if device == "cpu":
        name, unit, memory = facts["cpu"], unit_of(_machine_id()), _host_memory_bytes()
        hardware = f"cpu-{slug(name)}"
        if unit is None:
            missing["unit"] = "the system has no machine id"
    else:
        name, unit, memory = _describe_gpu(facts, missing, module)
        hardware = slug(name)
    return Machine(
        hardware=hardware,
        device=name,
        kind=device,
        unit=unit,
        memory_bytes=memory,
        versions=tuple(sorted(versions.items())),
        facts=tuple(sorted(facts.items())),
        missing=tuple(sorted(missing.items())),
    )


def slug(name: str) -> str:
    """`nvidia-h200` for `NVIDIA H200`: lower case, and one dash for everything else."""
    name = re.sub(r"\((?:r|tm)\)|\bcpu\b|\bprocessor\b|@.*", " ", name, flags=re.IGNORECASE)
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "unknown"


def cpu_model() -> str:
    """The name that the CPU gives itself; the architecture where it gives none."""
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
        if found := re.search(
            r"^(?:model name|Model|cpu model|cpu)\s*:\s*(\S.*)$", text, re.MULTILINE
        ):
            return " ".join(found[1].split())
    return platform.processor() or platform.machine()


def _host_facts() -> dict[str, str]:
    """CPU, operating system and interpreter."""
    facts = {
        "architecture": platform.machine(),
        "cpu": cpu_model(),
        "cpu_cores": str(os.cpu_count() or 1),
        # The build of a kernel may name its host.
        "os": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    if hasattr(os, "sched_getaffinity"):
        facts["cpu_cores_usable"] = str(len(os.sched_getaffinity(0)))
    if (cuda := _cuda_of_torch()) is not None:
        facts["cuda"] = cuda
    return facts


def _cuda_of_torch() -> str | None:
    """The CUDA that the installed torch is built for; `None` for one for the CPU. Torch is not imported."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    with suppress(OSError):
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
        if found := re.search(r"^cuda(?:: [^=\n]+)? = '([\d.]+)'", text, re.MULTILINE):
            return found[1]
    return None


def _version(name: str) -> str | None:
    """The version of an installed distribution."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _describe_gpu(
    facts: dict[str, str], missing: dict[str, str], module: Any
) -> tuple[str, str | None, int | None]:
    """Add what NVML knows of the GPU that is used; returns its name, unit and memory."""
    try:
        with nvml.session(module) as library:
            gpu = nvml.used(library)
            if gpu is None:
                raise NvmlMissing("no GPU is visible")
            memory: list[int] = []

            def keep_memory() -> str:
                memory.append(int(nvml.read(library, "nvmlDeviceGetMemoryInfo", gpu.handle).total))
                return f"{memory[0] / 2**30:.1f} GiB"

            for name, read in _gpu_facts(library, gpu.whole).items():
                _note(name, read, facts, missing)
            _note("memory", keep_memory, facts, missing)
            return gpu.name, unit_of(gpu.uuid), memory[0] if memory else None
    except NvmlMissing as error:
        missing["gpu"] = str(error)
        return "unknown GPU", None, None


def _note(
    name: str, read: Callable[[], str], facts: dict[str, str], missing: dict[str, str]
) -> None:
    """Put a fact where it belongs: to the facts, or with the reason to what is missing."""
    try:
        facts[name] = read()
    except NvmlMissing as error:
        missing[name] = str(error)


def _gpu_facts(library: Any, handle: Any) -> dict[str, Callable[[], str]]:
    """How each fact of a GPU is read, by the name it is kept under."""

    def ask(function: str, *args: Any) -> Any:
        return nvml.read(library, function, *args)

    def clock(function: str, kind: str) -> Callable[[], str]:
        return lambda: f"{ask(function, handle, getattr(library, f'NVML_CLOCK_{kind}'))} MHz"

    def watts(function: str) -> Callable[[], str]:
        return lambda: f"{ask(function, handle) / 1000:g} W"

    def cuda() -> str:
        number = ask("nvmlSystemGetCudaDriverVersion_v2")
        return f"{number // 1000}.{number % 1000 // 10}"

    def switched(function: str, *, first: bool = False) -> Callable[[], str]:
        def state() -> str:
            value = ask(function, handle)
            return "on" if (value[0] if first else value) else "off"

        return state

    return {
        "driver": lambda: str(ask("nvmlSystemGetDriverVersion")),
        "cuda_driver": cuda,
        "sm_clock_max": clock("nvmlDeviceGetMaxClockInfo", "SM"),
        "memory_clock_max": clock("nvmlDeviceGetMaxClockInfo", "MEM"),
        "sm_clock_application": clock("nvmlDeviceGetApplicationsClock", "SM"),
        "power_limit": watts("nvmlDeviceGetEnforcedPowerLimit"),
        "power_limit_default": watts("nvmlDeviceGetPowerManagementDefaultLimit"),
        "persistence_mode": switched("nvmlDeviceGetPersistenceMode"),
        "ecc": switched("nvmlDeviceGetEccMode", first=True),
        "mig": switched("nvmlDeviceGetMigMode", first=True),
    }


def unit_of(identity: str | None) -> str | None:
    """A short salted digest that tells two units apart and cannot be turned back."""
    if not identity:
        return None
    return hashlib.sha256(UNIT_SALT + identity.encode()).hexdigest()[:12]


def _machine_id() -> str | None:
    """The identity of this installation (machine-id(5)), to be hashed and never shown."""
    with suppress(OSError):
        return Path("/etc/machine-id").read_text().strip() or None
    return None


def _host_memory_bytes() -> int | None:
    """Memory of the host."""
    with suppress(OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None
