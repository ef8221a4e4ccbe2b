"""NVML when it is there: the one place that knows how to begin with it and which GPUs are meant.

NVML is optional. Without its library, without permission, or in a container that hides it, callers get
`NvmlMissing` with the reason and go on without.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class NvmlMissing(Exception):
    """NVML cannot be used; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU (or MIG instance) that this process may use, in the order of CUDA's numbers.

    `whole` is the handle of the GPU that an instance is a part of: it alone has clocks, power and heat.
    """

    uuid: str
    name: str
    handle: Any
    whole: Any


def load() -> Any:
    """The `pynvml` module.

    Raises:
        NvmlMissing: it is not installed.
    """
    try:
        import pynvml
    except ImportError as error:
        raise NvmlMissing(f"nvidia-ml-py is not installed ({error})") from error
    return pynvml


@contextmanager
def session(module: Any = None) -> Iterator[Any]:
    """NVML, initialised.

    Args:
        module: the `pynvml` module or a stand-in; imported where left out.

    Raises:
        NvmlMissing: it cannot be initialised.
    """
    nvml = load() if module is None else module
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise NvmlMissing(f"NVML: {error}") from error
    try:
        yield nvml
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def read(nvml: Any, function: str, *args: Any) -> Any:
    """Ask NVML for one thing.

    Raises:
        NvmlMissing: this driver, device or container does not tell.
    """
    call: Callable[..., Any] | None = getattr(nvml, function, None)
    if call is None:
        raise NvmlMissing("not known to this version of nvidia-ml-py")
    try:
        value = call(*args)
    except nvml.NVMLError as error:
        raise NvmlMissing(str(error)) from error
    return value.decode() if isinstance(value, bytes) else value


def visible(nvml: Any, environ: Mapping[str, str] | None = None) -> list[Gpu]:
    """The GPUs that CUDA would show, in its order (with `CUDA_DEVICE_ORDER=PCI_BUS_ID`, which we set).

    `CUDA_VISIBLE_DEVICES` holds indices, UUIDs, unique beginnings of UUIDs, or UUIDs of MIG instances;
    as in CUDA, an entry that names nothing ends the list.

    Raises:
        NvmlMissing: NVML does not tell.
    """
    every = [
        read(nvml, "nvmlDeviceGetHandleByIndex", index)
        for index in range(read(nvml, "nvmlDeviceGetCount"))
    ]
    uuids = [read(nvml, "nvmlDeviceGetUUID", handle) for handle in every]
    wanted = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        handles = every
    else:
        handles = []
        for entry in (part.strip() for part in wanted.split(",")):
            handle = _handle(nvml, entry, every, uuids)
            if handle is None:
                break
            handles.append(handle)
    return [_gpu(nvml, handle, _whole(nvml, handle)) for handle in handles]


def used(nvml: Any, environ: Mapping[str, str] | None = None) -> Gpu | None:
    """The GPU that a process computes on that takes the first: of a divided one its first instance."""
    return next(iter(instances(nvml, environ)), None)


def _gpu(nvml: Any, handle: Any, whole: Any) -> Gpu:
    return Gpu(
        uuid=read(nvml, "nvmlDeviceGetUUID", handle),
        name=read(nvml, "nvmlDeviceGetName", handle),
        handle=handle,
        whole=whole,
    )


def _whole(nvml: Any, handle: Any) -> Any:
    """The GPU of an instance; anything else is whole."""
    if not str(read(nvml, "nvmlDeviceGetUUID", handle)).startswith("MIG-"):
        return handle
    with suppress(NvmlMissing):
        return read(nvml, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
    return handle


def _handle(nvml: Any, entry: str, every: list[Any], uuids: list[str]) -> Any | None:
    """What one entry of `CUDA_VISIBLE_DEVICES` names; `None` for nothing."""
    if entry.isdigit():
        return every[int(entry)] if int(entry) < len(every) else None
    if entry.startswith("MIG-"):
        with suppress(NvmlMissing):
            return read(nvml, "nvmlDeviceGetHandleByUUID", entry)
        return None
    matches = [h for h, uuid in zip(every, uuids, strict=True) if entry and uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None


def instances(nvml: Any, environ: Mapping[str, str] | None = None) -> list[Gpu]:
    """Everything of the visible GPUs that one process can have to itself.

    A GPU that is divided (MIG) counts with each of its instances: CUDA shows a process only one of them,
    the one that its `CUDA_VISIBLE_DEVICES` names.

    Raises:
        NvmlMissing: NVML does not tell.
    """
    return [part for gpu in visible(nvml, environ) for part in _parts(nvml, gpu) or [gpu]]


def _parts(nvml: Any, gpu: Gpu) -> list[Gpu]:
    """The MIG instances of a GPU; empty where it is not divided, or is an instance itself."""
    found: list[Gpu] = []
    try:
        if gpu.uuid.startswith("MIG-") or not read(nvml, "nvmlDeviceGetMigMode", gpu.handle)[0]:
            return found
        slots = read(nvml, "nvmlDeviceGetMaxMigDeviceCount", gpu.handle)
    except NvmlMissing:  # a GPU without MIG
        return found
    for slot in range(slots):
        with suppress(NvmlMissing):  # an empty slot
            handle = read(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", gpu.handle, slot)
            found.append(_gpu(nvml, handle, gpu.handle))
    return found
