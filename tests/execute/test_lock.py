from __future__ import annotations

import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tirbench.errors import MeasurementError
from tirbench.execute.lock import DeviceLock, lock_folder

HOLD = """
import sys
from pathlib import Path
from tirbench.execute.lock import DeviceLock
with DeviceLock("cpu", folder=Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_device_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    with (
        DeviceLock("cpu", folder=tmp_path),
        pytest.raises(MeasurementError, match="cpu was in use by another tirbench for 0 s"),
    ):
        DeviceLock("cpu", folder=tmp_path, timeout_s=0).acquire()
    DeviceLock("cpu", folder=tmp_path, timeout_s=0).acquire()


def test_two_devices_are_held_at_once(tmp_path: Path) -> None:
    with DeviceLock("GPU-0", folder=tmp_path), DeviceLock("GPU-1", folder=tmp_path, timeout_s=0):
        pass


def test_who_waits_is_told_once(tmp_path: Path) -> None:
    told: list[str] = []
    with DeviceLock("cpu", folder=tmp_path), pytest.raises(MeasurementError):
        DeviceLock("cpu", folder=tmp_path, timeout_s=0.1, on_wait=told.append).acquire()
    assert told == ["waiting for cpu: another tirbench measures on it"]


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(MeasurementError):
            DeviceLock("cpu", folder=tmp_path, timeout_s=0).acquire()
        holder.kill()
        holder.wait()
        DeviceLock("cpu", folder=tmp_path, timeout_s=5).acquire()


def test_who_waits_is_served_before_the_holder_is_served_again(tmp_path: Path) -> None:
    first = DeviceLock("cpu", folder=tmp_path)
    first.acquire()
    waits, order = threading.Event(), []

    def wait() -> None:
        with DeviceLock("cpu", folder=tmp_path, on_wait=lambda _: waits.set()):
            order.append("waiting")

    other = threading.Thread(target=wait)
    other.start()
    assert waits.wait(5)
    first.release()
    with DeviceLock("cpu", folder=tmp_path):
        order.append("again")
    other.join()
    assert order == ["waiting", "again"]


def test_every_user_may_use_the_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIRBENCH_LOCK_DIR", str(tmp_path / "locks"))
    with DeviceLock("cpu"):
        assert stat.S_IMODE(lock_folder().stat().st_mode) == 0o777
        assert stat.S_IMODE((tmp_path / "locks" / "cpu.lock").stat().st_mode) == 0o666


def test_a_folder_that_cannot_be_written_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MeasurementError, match="cannot lock cpu"):
        DeviceLock("cpu", folder=tmp_path / "file").acquire()
    monkeypatch.setenv("TIRBENCH_LOCK_DIR", str(tmp_path / "file"))
    with pytest.raises(MeasurementError, match="cannot make the folder of the device locks"):
        DeviceLock("cpu").acquire()
