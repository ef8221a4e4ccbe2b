"""`exec --changed BASE`: what it hands on to be measured, and what it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from click.testing import CliRunner, Result

from tirbench import execute, store
from tirbench.commands import exec as exec_
from tirbench.commands import measuring
from tirbench.model import Machine
from tirbench.plan import rows_of
from tirbench.reading import Reading

from .conftest import MACHINE, MakeRun, Repository

Pin: TypeAlias = "Callable[[store.KeptRun], None]"


class _Measured(Exception):
    """Carries what would have been measured."""

    def __init__(self, reading: Reading) -> None:
        super().__init__()
        self.rows = {
            row.key for one in reading.chosen for case in one.cases for row in rows_of(case)
        }


@pytest.fixture
def pinned(repository: Repository, make_run: MakeRun, pin: Pin) -> Repository:
    """Pinned, with `theirs` as what every ratio is to, and one kernel edited since."""
    repository.edit(
        "workloads/scale.toml",
        '[kernels.theirs]\ntarget = "kernels/theirs.py:other"\nargs = ["x", "y"]\n',
        '[references.theirs]\nkind = "call"\ntarget = "kernels/theirs.py:other"\nargs = ["x", "y"]\n',
    )
    text = (repository.root / "workloads/scale.toml").read_text()
    repository.write("workloads/scale.toml", text + '\n[gate]\nreference = "theirs"\n')
    repository.commit("a reference")
    pin(make_run())
    repository.commit("Its baselines")
    repository.edit("workloads/kernels/ops.py", "torch.mul(x, 2, out=y)", "torch.mul(2, x, out=y)")
    return repository


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Result, set[str]]]:
    """Runs the command on the machine of the pins, up to where it would measure."""

    def on(
        repository: Repository, *arguments: str, machine: Machine = MACHINE
    ) -> tuple[Result, set[str]]:
        def run(reading: Reading, *_: Any) -> None:
            raise _Measured(reading)

        monkeypatch.chdir(repository.root)
        monkeypatch.setattr(measuring, "run", run)
        monkeypatch.setattr(execute, "has_cuda", lambda: True)
        monkeypatch.setattr(execute, "describe", lambda _: machine)
        found = CliRunner().invoke(exec_.command, arguments, standalone_mode=False)
        assert found.exception is None or isinstance(found.exception, _Measured), found.exception
        return found, getattr(found.exception, "rows", set())

    return on


Invoke: TypeAlias = "Callable[..., tuple[Result, set[str]]]"
OURS = {f"scale/n{n}/ours" for n in (64, 128, 256)}


def test_just_the_rows_that_differ_are_measured(pinned: Repository, invoke: Invoke) -> None:
    found, rows = invoke(pinned, "--changed", "main")
    assert rows == OURS
    assert "0 of 1 kernel unchanged; measure 3 rows, about " in found.stderr


def test_a_case_that_is_named_narrows_them(pinned: Repository, invoke: Invoke) -> None:
    _, rows = invoke(pinned, "workloads/scale.toml::n64", "--changed", "main")
    assert rows == {"scale/n64/ours"}


def test_nothing_to_measure_is_said_and_fine(
    pinned: Repository, make_run: MakeRun, pin: Pin, invoke: Invoke
) -> None:
    pin(make_run())
    found, rows = invoke(pinned, "--changed", "main")
    assert (found.return_value, rows) == (0, set())
    assert found.stderr == "1 of 1 kernel unchanged; nothing to measure\n"


def test_a_pinning_run_takes_the_references_of_the_ratios_along(
    pinned: Repository, invoke: Invoke
) -> None:
    found, rows = invoke(pinned, "--changed", "main", "--pin", "--allow-dirty")
    assert rows == OURS | {f"scale/n{n}/theirs" for n in (64, 128, 256)}
    assert "3 more: the references that the ratios of these are to" in found.stderr


def test_hardware_that_nothing_is_pinned_on_measures_them_too(
    pinned: Repository, invoke: Invoke
) -> None:
    other = Machine(hardware="nvidia-b200", device="NVIDIA B200", kind="cuda")
    assert invoke(pinned, "--changed", "main", machine=other)[1] == OURS


def test_two_ways_to_choose_rows_are_one_too_many(
    pinned: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pinned.root)
    arguments = ["--changed", "main", "--last-failed"]
    found = CliRunner().invoke(exec_.command, arguments, standalone_mode=False)
    assert "choose rows in two ways" in str(found.exception)
