from __future__ import annotations

from pathlib import Path

from tirbench.execute import logs


def test_the_log_of_a_case_stays_in_its_folder(tmp_path: Path) -> None:
    path = logs.log_path(tmp_path, "w", "../../etc/x")
    assert path.parent == tmp_path / "w"
    assert logs.log_path(tmp_path, "..", "a=1,b").parent.parent == tmp_path


def test_the_tail_begins_where_the_last_stage_began(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("old\n--- build a\ncompiling\n--- verify a\none\ntwo\n\n")
    assert logs.tail(path) == "one\ntwo"


HUNG = """\
--- verify triton
Fatal Python error: Aborted

Current thread 0x00007f (most recent call first):
  File "<python>/triton/runtime/interpreter.py", line 861 in <lambda>
  File "./kernels/scale.py", line 32 in scale_kernel
  File "./.tirbench/runs/1/harness/scale.py", line 32 in launch
  File "./tirbench/harness/verify.py", line 120 in verify
  File "<python>/site-packages/tirbench/execute/worker.py", line 53 in main
  File "<string>", line 1 in <module>

Extension modules: numpy._core._multiarray_umath, torch._C (total: 2)
"""


def test_the_tail_of_a_kernel_that_hung_ends_at_the_kernel(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(HUNG, encoding="utf-8")
    assert logs.tail(path).splitlines()[-2:] == [
        '  File "./kernels/scale.py", line 32 in scale_kernel',
        '  File "./.tirbench/runs/1/harness/scale.py", line 32 in launch',
    ]


def test_a_trace_of_the_runner_alone_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "log"
    frame = '  File "./tirbench/execute/worker.py", line 53 in main'
    path.write_text(f"Thread 0x1 (most recent call first):\n{frame}\n", encoding="utf-8")
    assert logs.tail(path).splitlines()[-1] == frame


def test_the_tail_is_short(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("--- time a\n" + "\n".join(map(str, range(100_000))))
    assert logs.tail(path).splitlines() == [str(n) for n in range(99_970, 100_000)]


def test_a_missing_log_is_empty(tmp_path: Path) -> None:
    assert logs.tail(tmp_path / "log") == ""
    assert not logs.bound(tmp_path / "log")


def test_a_long_log_keeps_both_ends_and_goes_on_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("ab", buffering=0) as writer:
        writer.write(b"head" + b"x" * 1000 + b"tail")
        assert logs.bound(path, max_bytes=100, kept_bytes=4)
        writer.write(b" more")
    assert path.read_text() == "head\n... 1000 bytes left out ...\ntail more"
