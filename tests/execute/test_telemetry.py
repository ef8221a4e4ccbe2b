from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from tirbench.execute.nvml import used
from tirbench.execute.processes import scheduled_ns
from tirbench.execute.telemetry import (
    CpuWatch,
    Disturbance,
    GpuReader,
    NoWatch,
    Sample,
    Sampler,
    disturbance_of,
    facts_of,
    notes_of,
    watch_device,
)
from tirbench.model import Job, Plan

from .nvml_stand_in import Nvml

CUDA_JOB = Job(workload="w", harness=str(Path("w.py")), plan=Plan(device="cuda"), cases=())
POWER_CAP, HARDWARE, THERMAL = 0x4, 0x8, 0x20


def reader_of(library: Nvml, own: frozenset[int] = frozenset({100, 101})) -> GpuReader:
    gpu = used(library, {})
    assert gpu is not None
    return GpuReader(library, gpu, lambda: own)


def test_a_sample_holds_clocks_power_and_temperature() -> None:
    sample = reader_of(Nvml({})).sample()
    assert (sample.sm_mhz, sample.memory_mhz) == (1755, 3201)
    assert (sample.power_w, sample.temperature_c) == (350.0, 41)
    assert (sample.slowdowns, sample.foreign) == (frozenset(), 0)


def test_of_an_instance_processes_are_its_own_and_clocks_those_of_the_whole() -> None:
    library = Nvml({"mig": ["MIG-a"], "pids": [7], "reasons": THERMAL})
    library.parts["MIG-a"]["refuses"] = {
        "nvmlDeviceGetClockInfo", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature",
        "nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetProcessUtilization",
    }  # fmt: skip
    reader = reader_of(library)
    library.parts["MIG-a"]["pids"] = [100, 8]
    sample = reader.sample()
    assert (sample.sm_mhz, sample.power_w, sample.foreign) == (1755, 350.0, 1)
    assert sample.slowdowns == {"thermal slowdown"}


def test_thermal_and_hardware_slowdown_are_noted_and_a_power_cap_is_not() -> None:
    assert reader_of(Nvml({"reasons": POWER_CAP})).sample().slowdowns == frozenset()
    sample = reader_of(Nvml({"reasons": POWER_CAP | HARDWARE | THERMAL})).sample()
    assert notes_of((Sample(), sample)) == (
        "hardware slowdown while timed",
        "thermal slowdown while timed",
    )


def test_our_own_processes_are_not_foreign() -> None:
    library = Nvml({})
    reader = reader_of(library)
    library.gpus[0]["pids"] = [100, 101]
    assert reader.sample().foreign == 0
    library.gpus[0]["pids"] = [100, 101, 7]
    assert notes_of((reader.sample(),)) == ("foreign process on the GPU (1)",)


def test_who_computes_beside_us_spoils_the_times_and_who_idles_does_not() -> None:
    library = Nvml({})
    reader = reader_of(library)
    library.gpus[0] |= {"pids": [100, 7, 8], "busy": [(100, 90), (7, 0), (8, 30), (9, 50)]}
    sample = reader.sample()
    assert (sample.foreign, sample.busy) == (2, 1)
    assert disturbance_of((sample,)) == Disturbance(
        cause="interfered", words="a foreign process computed on the GPU (1)"
    )
    library.gpus[0]["busy"] = [(100, 90), (7, 0)]
    assert disturbance_of((reader.sample(),)) is None


def test_a_slowdown_of_a_moment_is_noted_and_a_longer_one_spoils_the_times() -> None:
    slow = Sample(slowdowns=frozenset({"thermal slowdown"}))
    assert disturbance_of((slow,) + (Sample(),) * 20) is None
    assert disturbance_of((slow,) + (Sample(),) * 9) == Disturbance(
        cause="throttled", words="thermal slowdown while timed"
    )
    assert disturbance_of(()) is None


def test_in_a_container_only_what_was_there_before_is_foreign() -> None:
    library = Nvml({"pids": [9]})
    reader = reader_of(library)
    library.gpus[0]["pids"] = [9, 5000]  # 5000 is our worker by its number on the host
    assert reader.sample().foreign == 1
    library.gpus[0]["pids"] = [5000]
    assert reader.sample().foreign == 0


def test_what_a_gpu_does_not_tell_is_left_out() -> None:
    refuses = {"nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetPowerUsage"}
    sample = reader_of(Nvml({"refuses": refuses})).sample()
    assert (sample.power_w, sample.foreign) == (None, None)
    facts = facts_of((sample,))
    assert facts["foreign"] is None
    assert "power_w" not in facts
    assert facts["sm_mhz"] == [1755, 1755, 1755]


def test_samples_are_taken_between_begin_and_pause_only() -> None:
    taken = threading.Event()

    def sample() -> Sample:
        taken.set()
        return Sample(sm_mhz=1000)

    sampler = Sampler(sample, period_s=0.001)
    try:
        assert not taken.wait(0.05)
        sampler.begin()
        assert taken.wait(5)
        sampler.pause()
        time.sleep(0.05)
        seen = sampler.facts()["samples"]
        time.sleep(0.05)
        assert sampler.facts()["samples"] == seen
    finally:
        sampler.close()
    assert not sampler._thread.is_alive()


def test_a_new_case_begins_without_the_samples_of_the_last() -> None:
    sampler = Sampler(lambda: Sample(slowdowns=frozenset({"thermal slowdown"})), period_s=60)
    sampler.begin()
    while not sampler.notes():
        time.sleep(0.001)
    sampler.pause()
    sampler.begin()
    assert sampler.notes() == ()
    sampler.close()


def test_the_watch_over_a_gpu_ends_its_use_of_nvml() -> None:
    library = Nvml({})
    watch = watch_device(CUDA_JOB, 1, library)
    assert library.opened == 1
    watch.close()
    assert library.opened == 0


def test_without_nvml_nothing_is_watched() -> None:
    assert isinstance(watch_device(CUDA_JOB, 1, Nvml(broken="no")), NoWatch)


def test_a_worker_that_had_to_wait_for_a_cpu_says_so() -> None:
    counted = [(1_000, 5_000), (1_800, 5_200), (1_800, 5_200)]
    watch = CpuWatch(lambda: counted.pop(0))
    watch.begin()
    assert watch.notes() == ("waited 20% of its time for a CPU",)
    assert watch.facts() == {"cpu_wait": 0.2}


def test_a_worker_that_had_its_cpu_says_nothing() -> None:
    counted = [(0, 0), (1_000_000, 1_000), (0, 0), (0, 0), (0, 0)]
    watch = CpuWatch(lambda: counted.pop(0))
    watch.begin()
    assert watch.notes() == ()
    watch.begin()
    assert watch.notes() == ()  # the kernel does not tell
    assert watch.facts() == {}


def test_the_scheduler_counts_this_process() -> None:
    end = time.process_time() + 0.02
    while time.process_time() < end:
        pass
    ran_ns, waited_ns = scheduled_ns(os.getpid())
    assert ran_ns > 0
    assert waited_ns >= 0
