"""NVML as far as tirbench asks it, over GPUs that are plain dictionaries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    pass


class Nvml:
    NVMLError = NVMLError
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, *gpus: dict[str, Any], broken: str | None = None) -> None:
        self.gpus = [self.gpu(index, **gpu) for index, gpu in enumerate(gpus)]
        self.parts = {
            uuid: self.gpu(0, uuid=uuid, name="NVIDIA H200 MIG 1g.18gb", memory=18 << 30, whole=gpu)
            for gpu in self.gpus
            for uuid in gpu["mig"]
        }
        self.broken = broken
        self.opened = 0

    def gpu(self, index: int, **changed: Any) -> dict[str, Any]:
        return {
            "uuid": f"GPU-{index}{index}{index}{index}-aaaa",
            "name": "NVIDIA H200",
            "memory": 150_754_820_096,
            "pids": [],
            "busy": [],
            "mig": [],
            "reasons": 0,
            "power": 350_000,
            "limit": 700_000,
            "refuses": set(),
        } | changed

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's own name
        if self.broken:
            raise NVMLError(self.broken)
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802 - NVML's own name
        self.opened -= 1

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlSystemGetDriverVersion": lambda: b"580.159",
            "nvmlSystemGetCudaDriverVersion_v2": lambda: 13000,
            "nvmlDeviceGetCount": lambda: len(self.gpus),
            "nvmlDeviceGetHandleByIndex": lambda index: self.gpus[index],
            "nvmlDeviceGetHandleByUUID": self.by_uuid,
            "nvmlDeviceGetUUID": lambda gpu: gpu["uuid"],
            "nvmlDeviceGetName": lambda gpu: gpu["name"].encode(),
            "nvmlDeviceGetMemoryInfo": lambda gpu: SimpleNamespace(total=gpu["memory"]),
            "nvmlDeviceGetMaxClockInfo": lambda _, kind: {1: 1980, 2: 3201}[kind],
            "nvmlDeviceGetClockInfo": lambda _, kind: {1: 1755, 2: 3201}[kind],
            "nvmlDeviceGetApplicationsClock": lambda *_: 1980,
            "nvmlDeviceGetEnforcedPowerLimit": lambda gpu: gpu["limit"],
            "nvmlDeviceGetPowerManagementDefaultLimit": lambda _: 700_000,
            "nvmlDeviceGetPowerUsage": lambda gpu: gpu["power"],
            "nvmlDeviceGetTemperature": lambda *_: 41,
            "nvmlDeviceGetPersistenceMode": lambda _: 1,
            "nvmlDeviceGetEccMode": lambda _: [1, 1],
            "nvmlDeviceGetMigMode": lambda gpu: [int(bool(gpu["mig"]))] * 2,
            "nvmlDeviceGetMaxMigDeviceCount": lambda _: 7,
            "nvmlDeviceGetMigDeviceHandleByIndex": self.instance,
            "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": self.whole,
            "nvmlDeviceGetProcessUtilization": lambda gpu, _: [
                SimpleNamespace(pid=pid, smUtil=used, timeStamp=1) for pid, used in gpu["busy"]
            ],
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: gpu["reasons"],
            "nvmlDeviceGetComputeRunningProcesses": lambda gpu: [
                SimpleNamespace(pid=pid) for pid in gpu["pids"]
            ],
        }
        if name not in answers:
            raise AttributeError(name)

        def ask(*args: Any) -> Any:
            if args and isinstance(args[0], dict) and name in args[0]["refuses"]:
                raise NVMLError("Insufficient Permissions")
            return answers[name](*args)

        return ask

    def instance(self, gpu: dict[str, Any], slot: int) -> dict[str, Any]:
        if slot >= len(gpu["mig"]):
            raise NVMLError("Not Found")
        return self.parts[gpu["mig"][slot]]

    def by_uuid(self, uuid: str) -> dict[str, Any]:
        if uuid == "MIG-1":  # of a GPU that is not shown
            return self.gpu(0, uuid="MIG-1", name="NVIDIA H200 MIG 1g.18gb", memory=18 << 30)
        if uuid not in self.parts:
            raise NVMLError("Not Found")
        return self.parts[uuid]

    def whole(self, part: dict[str, Any]) -> dict[str, Any]:
        if "whole" not in part:
            raise NVMLError("Not Found")
        found: dict[str, Any] = part["whole"]
        return found
