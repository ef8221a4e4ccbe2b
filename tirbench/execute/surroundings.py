"""What of a machine can be judged without computing on it: NVML, compilers, packages, folders, load.

The answers are findings of `tirbench doctor`; whether a device computes and a timer times is tried in a
worker (`tirbench.harness.probes`). Nothing here imports torch or triton.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tirbench.errors import MeasurementError
from tirbench.execute import nvml
from tirbench.execute.cores import LEAST, division
from tirbench.execute.lock import FOLDER_VARIABLE, DeviceLock
from tirbench.execute.nvml import NvmlMissing
from tirbench.model import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BUSY_LOAD: Final = 0.5
"""Load of the last minute per core from which times on a CPU are somebody else's too."""

LEAST_FREE_BYTES: Final = 1 << 30


def look(
    device: Literal["cuda", "cpu"],
    root: Path,
    environ: Mapping[str, str] | None = None,
    module: Any = None,
) -> Iterator[Finding]:
    """Everything that can be said before a worker is started.

    Args:
        device: what will be measured on.
        root: the project, where runs are kept.
        environ: the environment; our own where left out.
        module: a stand-in for `pynvml`.
    """
    environ = os.environ if environ is None else environ
    if device == "cuda":
        yield from _gpu(environ, module)
        yield _ptxas(environ)
        yield _ahead()
    else:
        yield _no_gpu(environ, module)
        yield _load()
    yield _compiler(environ)
    yield from _packages()
    yield _locks(device)
    yield _space(root)


def _no_gpu(environ: Mapping[str, str], module: Any) -> Finding:
    """Why there is no GPU: what is in the way, the nearest first."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    torch = _version("torch") or ""
    remedy = "measure on a machine with one; here, kernels are verified in the interpreter"
    try:
        with nvml.session(module) as library:
            count = nvml.read(library, "nvmlDeviceGetCount")
    except NvmlMissing as error:
        return Finding(name="CUDA device", status="no", detail=str(error), remedy=remedy)
    if count and visible is not None:
        detail = f"CUDA_VISIBLE_DEVICES={visible!r} hides the {count} that are there"
        remedy = "unset CUDA_VISIBLE_DEVICES, or name one"
    elif count and torch.endswith("+cpu"):
        detail, remedy = f"torch {torch} is built for the CPU", "install a build of torch for CUDA"
    elif count:
        detail, remedy = f"{count} are there and not asked for", "leave out --device cpu"
    else:
        detail = "the driver is there, and no device"
    return Finding(name="CUDA device", status="no", detail=detail, remedy=remedy)


def _gpu(environ: Mapping[str, str], module: Any) -> Iterator[Finding]:
    """What NVML says of the first GPU."""
    try:
        with nvml.session(module) as library:
            gpus = nvml.visible(library, environ)
            if gpus:
                yield Finding(name="NVML", status="yes", detail=f"{len(gpus)} GPU(s) visible")
                yield from _gpu_state(library, gpus[0])
                return
        reason = "it shows no GPU"
    except NvmlMissing as error:
        reason = str(error)
    yield Finding(
        name="NVML",
        status="limited",
        detail=reason,
        remedy="rows will say nothing of clocks, heat, or other users; in a container, start it with the "
        "NVIDIA runtime and NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    )


def _gpu_state(library: Any, gpu: nvml.Gpu) -> Iterator[Finding]:
    """Clocks, power, division and company of a GPU."""

    def ask(function: str, *args: Any) -> Any:
        return nvml.read(library, function, gpu.handle, *args)

    yield _clocks(ask, library)
    yield _power(ask)
    yield _mig(ask, gpu)
    yield _company(ask)
    try:
        ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        yield Finding(name="slowdown reasons", status="yes", detail="readable")
    except NvmlMissing as error:
        yield Finding(
            name="slowdown reasons",
            status="limited",
            detail=str(error),
            remedy="a row that was throttled will not say so; ask for NVML's permission",
        )


def _clocks(ask: Any, library: Any) -> Finding:
    kind = library.NVML_CLOCK_SM
    try:
        highest = ask("nvmlDeviceGetMaxClockInfo", kind)
        now = ask("nvmlDeviceGetClockInfo", kind)
    except NvmlMissing as error:
        return Finding(
            name="clocks",
            status="limited",
            detail=str(error),
            remedy="times hold, but rows cannot say at which clock",
        )
    return Finding(
        name="clocks",
        status="limited",
        detail=f"SM at {now} of {highest} MHz; NVML does not tell whether they are locked",
        remedy="short bursts after rest keep them steady; to lock them: "
        f"sudo nvidia-smi -lgc {highest} (undo: -rgc)",
    )


def _power(ask: Any) -> Finding:
    try:
        limit, usual = (
            ask(name) / 1000
            for name in (
                "nvmlDeviceGetEnforcedPowerLimit",
                "nvmlDeviceGetPowerManagementDefaultLimit",
            )
        )
    except NvmlMissing as error:
        return Finding(
            name="power limit",
            status="limited",
            detail=str(error),
            remedy="compare only runs of this machine",
        )
    if limit < usual:
        return Finding(
            name="power limit",
            status="limited",
            detail=f"{limit:g} W, the product's own is {usual:g} W",
            remedy=f"long matrix products are slower here than elsewhere; sudo nvidia-smi -pl {usual:g}",
        )
    return Finding(name="power limit", status="yes", detail=f"{limit:g} W")


def _mig(ask: Any, gpu: nvml.Gpu) -> Finding:
    try:
        divided = gpu.uuid.startswith("MIG-") or bool(ask("nvmlDeviceGetMigMode")[0])
    except NvmlMissing:
        return Finding(name="whole GPU", status="yes", detail="it cannot be divided")
    if not divided:
        return Finding(name="whole GPU", status="yes", detail="MIG is off")
    return Finding(
        name="whole GPU",
        status="limited",
        detail="MIG is on: other instances share its power, clocks and heat",
        remedy="pin numbers on a whole GPU: sudo nvidia-smi -mig 0",
    )


def _company(ask: Any) -> Finding:
    try:
        others = len(ask("nvmlDeviceGetComputeRunningProcesses"))
    except NvmlMissing as error:
        return Finding(
            name="alone on the GPU",
            status="limited",
            detail=str(error),
            remedy="make sure that nobody else computes on it; rows will not say so",
        )
    if others:
        return Finding(
            name="alone on the GPU",
            status="limited",
            detail=f"{others} other process(es) have a context on it",
            remedy="end them (nvidia-smi lists them): a case is measured again while they compute",
        )
    return Finding(name="alone on the GPU", status="yes", detail="no other process")


def _ptxas(environ: Mapping[str, str]) -> Finding:
    """The assembler that Triton calls: its own, or another that the environment names."""
    spec = find_spec("triton")
    places = [Path(p) for p in (environ.get("TRITON_PTXAS_PATH"),) if p]
    if spec is not None and spec.origin is not None:
        places.append(Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "ptxas")
    found = [path for path in places if os.access(path, os.X_OK)]
    if found:
        whose = "Triton's own" if "triton" in found[0].parts else "of TRITON_PTXAS_PATH"
        return Finding(name="ptxas", status="yes", detail=whose)
    what = "Triton's copy is gone or not executable" if spec else "triton is not installed"
    return Finding(
        name="ptxas",
        status="no",
        detail=what,
        remedy="pip install --force-reinstall triton, or set TRITON_PTXAS_PATH",
    )


def _ahead() -> Finding:
    """Whether there are cores to compile on while others measure."""
    name = "building ahead"
    found = division()
    if found is None:
        return Finding(
            name=name,
            status="no",
            detail="too few processors to share: a kernel is compiled when its case comes",
            remedy=f"give the run {LEAST} processors or more; numbers do not change",
            optional=True,
        )
    every = len(found.building) + len(found.measuring)
    detail = (
        f"on {len(found.building)} of {every} processors, the others are the measuring worker's"
    )
    return Finding(name=name, status="yes", detail=detail, optional=True)


def _compiler(environ: Mapping[str, str]) -> Finding:
    """What Triton compiles its launchers with, and torch.compile its CPU code."""
    names = [environ.get("CXX"), environ.get("CC"), "g++", "clang++", "gcc", "clang"]
    path = environ.get("PATH")
    found = [name for name in names if name and shutil.which(name, path=path)]
    header = Path(sysconfig.get_path("include"), "Python.h").is_file()
    if found and header:
        return Finding(name="C++ compiler", status="yes", detail=found[0])
    if found:
        detail, install = f"{found[0]}, but Python's headers are missing", "python3-dev"
    else:
        detail, install = "no C++ compiler on PATH", "g++"
    return Finding(
        name="C++ compiler",
        status="no",
        detail=detail,
        remedy=f"apt-get install {install}: Triton's launchers and torch.compile need it",
    )


def _packages() -> Iterator[Finding]:
    """What only some workloads need."""
    for name, package, extra, what in (
        ("TIRx", "apache-tvm-tirx", "tirx", "kernels of kind tirx"),
        ("liger", "liger-kernel", "liger", "references of liger-kernel"),
    ):
        found = _version(package)
        if found is not None:
            yield Finding(name=name, status="yes", detail=f"{package} {found}", optional=True)
        else:
            yield Finding(
                name=name,
                status="no",
                detail=f"{package} is not installed: {what} are skipped",
                remedy=f"pip install 'tirbench[{extra}]'",
                optional=True,
            )


def _load() -> Finding:
    try:
        per_core = os.getloadavg()[0] / (os.cpu_count() or 1)
    except OSError:
        return Finding(
            name="idle CPU", status="limited", detail="the system does not tell its load"
        )
    if per_core < BUSY_LOAD:
        return Finding(name="idle CPU", status="yes", detail=f"load {per_core:.0%} of the cores")
    return Finding(
        name="idle CPU",
        status="limited",
        detail=f"load {per_core:.0%} of the cores in the last minute",
        remedy="times by wall are then somebody else's too: wait, or use another machine",
    )


def _locks(device: str) -> Finding:
    name = "device lock"
    try:
        with DeviceLock(f"doctor-{device}", timeout_s=0):
            return Finding(name=name, status="yes", detail="shared by all users of this host")
    except MeasurementError as error:
        return Finding(
            name=name,
            status="no",
            detail=str(error),
            remedy=f"name a folder that all users of the device can write in {FOLDER_VARIABLE}",
        )


def _space(root: Path) -> Finding:
    name = "room for runs"
    free = shutil.disk_usage(root).free
    if not os.access(root, os.W_OK):
        return Finding(
            name=name,
            status="no",
            detail="the project's folder cannot be written",
            remedy="runs are kept in .tirbench/ of the project: make it writable",
        )
    if free < LEAST_FREE_BYTES:
        return Finding(
            name=name,
            status="limited",
            detail=f"{free / 2**20:.0f} MiB free",
            remedy="free some space: a run ends, and keeps what it has, when the disk is full",
        )
    return Finding(name=name, status="yes", detail=f"{free / 2**30:.0f} GiB free")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
