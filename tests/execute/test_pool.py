from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from tirbench.errors import MeasurementError
from tirbench.execute.pool import Server, Workers, server_environment
from tirbench.execute.wire import Channel
from tirbench.model import Job, Plan


def test_on_a_cpu_triton_interprets_and_no_gpu_is_visible() -> None:
    environment = server_environment("cpu", {"CUDA_VISIBLE_DEVICES": "0", "HOME": "/h"})
    assert environment == {"CUDA_VISIBLE_DEVICES": "", "HOME": "/h", "TRITON_INTERPRET": "1"}


def test_on_a_gpu_triton_compiles_and_devices_are_numbered_as_nvml_does() -> None:
    environment = server_environment("cuda", {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "3"})
    assert environment == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "3",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }


def test_a_module_that_does_not_import_is_left_to_the_worker(tmp_path: Path) -> None:
    with Workers(tmp_path, preload=("no_such_module", "json")) as workers:
        server = workers.warm("cpu")
        worker = server.fork(20)
        worker.kill()
        assert worker.exit_status == -9
        assert server.imported_s is not None
    assert "No module named 'no_such_module'" in (tmp_path / "server-cpu.log").read_text()


def test_a_server_that_never_comes_up_is_not_started_for_every_job(tmp_path: Path) -> None:
    (tmp_path / "ends_the_process.py").write_text("raise SystemExit('no libcuda here')")
    sys.path.insert(0, str(tmp_path))
    try:
        with Workers(tmp_path, preload=("ends_the_process",)) as workers:
            job = Job(workload="w", harness="w.py", plan=Plan(device="cpu"), cases=())
            with pytest.raises(MeasurementError, match="forked from ended:\nno libcuda here"):
                workers.start(job)
            first = workers._servers["cpu"]
            with pytest.raises(MeasurementError):
                workers.start(job)
            assert workers._servers["cpu"] is first
    finally:
        sys.path.remove(str(tmp_path))


def test_what_a_job_imports_is_imported_once_and_before_its_workers_are_forked(
    tmp_path: Path,
) -> None:
    (tmp_path / "takes_long.py").write_text("print('imported', flush=True)")
    sys.path.insert(0, str(tmp_path))
    try:
        with Workers(tmp_path, preload=()) as workers:
            plan = Plan(device="cpu")
            imports = ("takes_long", "no_such_module")
            for names in ((), imports, imports, ()):
                job = Job(workload="w", harness="w.py", plan=plan, cases=(), imports=names)
                workers.start(job).kill()
    finally:
        sys.path.remove(str(tmp_path))
    said = (tmp_path / "server-cpu.log").read_text()
    assert said.count("imported") == 1
    assert said.count("No module named 'no_such_module'") == 1


def test_closing_a_server_leaves_no_process(tmp_path: Path) -> None:
    server = Server(log=tmp_path / "log", environment={}, preload=())
    worker = server.fork(20)
    server.close()
    assert server._process.returncode == 0
    assert worker.exit_status == -9


def test_messages_arrive_whole_and_in_order_with_their_descriptors() -> None:
    one, two = (Channel(end) for end in socket.socketpair())
    one.send({"n": 1}, fds=(0,))
    one.send({"n": 2, "long": "x" * 50_000})
    assert [message["n"] for message in two.receive()] == [1, 2]
    assert len(two.fds) == 1
    os.close(two.fds.pop())
    assert two.receive() == []
    assert not two.closed
    one.close()
    assert two.receive() == []
    assert two.closed
    two.close()


def test_what_is_no_message_is_dropped() -> None:
    end, other = socket.socketpair()
    channel = Channel(other)
    end.sendall(b'\xff\n[1]\nnot json\n{"event":"stage"}\n{"half')
    assert channel.receive() == [{"event": "stage"}]
    end.sendall(b'":1}\n')
    assert channel.receive() == [{"half": 1}]
    end.close()
    channel.close()
