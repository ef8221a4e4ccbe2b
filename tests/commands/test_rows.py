"""`history`, `placement`, `why`: one row at length."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import click
import pytest
from click.testing import CliRunner, Result

from tirbench import store
from tirbench.commands import history, placement, why
from tirbench.model import CodeFacts, Outcome, Timed

from .conftest import MACHINE, MakeRun, Repository

Pin: TypeAlias = "Callable[[store.KeptRun], None]"


@pytest.fixture
def invoke(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(repository.root)
    monkeypatch.setenv("COLUMNS", "250")

    def start(command: click.Command, *arguments: str) -> Result:
        return CliRunner().invoke(command, arguments, standalone_mode=False)

    return start


def test_history_names_every_commit_that_changed_a_row_and_no_other(
    repository: Repository, make_run: MakeRun, pin: Pin, invoke: Callable[..., Result]
) -> None:
    pin(make_run())
    early = str(invoke(history.command, "scale/n64").exception)
    assert early.endswith("scale.toml, which git does not have yet: commit it")
    first = repository.commit("All of them")
    pin(make_run({"n64/theirs": 8.0}))
    repository.commit("Another row")
    pin(make_run({"n64/ours": 8.0, "n64/theirs": 8.0}))
    last = repository.commit("A better kernel")
    repository.git("rm", "--quiet", "-r", "workloads/baselines")
    gone = repository.commit("No baselines")
    found = invoke(history.command, "scale/n64/ours", "--format", "json")
    pinnings = json.loads(found.stdout)["pinnings"]
    assert [one["commit"]["id"] for one in pinnings] == [gone, last, first]
    assert [one["row"] and one["row"]["midmean_us"] for one in pinnings] == [None, 8.0, 10.0]
    text = invoke(history.command, "scale/n64").stdout
    assert text.count("scale/n64/theirs") == 3
    assert "A better kernel" in text
    assert str(invoke(history.command, "scale/n1").exception).startswith("scale/n1: pinned nowhere")
    assert "write workload/case" in str(invoke(history.command, "scale").exception)


def test_placement_tells_the_spread_of_addresses_from_that_of_repetition(
    repository: Repository, make_run: MakeRun, invoke: Callable[..., Result]
) -> None:
    kept = make_run()
    row = next(row for row in kept.rows if row.key == "scale/n64/ours")
    with store.resume_run(repository.root, kept) as writer:
        for seed, us in enumerate((10.0, 10.2, 9.8)):
            for number, factor in enumerate((1.001, 0.999)):
                writer.samples(row, seed, number, [us * factor] * 8)
    found = json.loads(invoke(placement.command, "scale/n64", "--format", "json").stdout)["rows"]
    (one,) = found
    assert one["key"] == "scale/n64/ours"
    assert one["over_placements"] == pytest.approx(0.02, rel=1e-3)
    assert one["repeated"] == pytest.approx(0.001, rel=0.01)
    text = invoke(placement.command, "scale/n64").stdout
    assert "2.00 % over placements, 0.10 % when one is measured again" in text
    assert "   1  10.20  +2.00 %  10.21 10.19" in text
    assert "has no samples of scale/n128" in str(invoke(placement.command, "scale/n128").exception)


def ladder(found: Result) -> dict[str, Any]:
    document = json.loads(found.stdout)
    return {"command": document["command"], **{r["cause"]: r["light"] for r in document["rungs"]}}


def test_why_holds_pin_and_run_against_each_other_and_ends_in_one_command(
    repository: Repository, make_run: MakeRun, pin: Pin, invoke: Callable[..., Result]
) -> None:
    pin(make_run())
    commit = repository.commit("Baselines")
    row = "scale/n64/ours"

    make_run({"n64/ours": 10.5})
    found = ladder(invoke(why.command, row, "--format", "json"))
    assert found["code"] == found["source"] == found["environment"] == found["unit"] == "same"
    assert found["command"].endswith("&& tirbench placement scale/n64")
    text = invoke(why.command, row).stdout
    assert text.startswith("scale/n64/ours: 10.5 µs, pinned 10 µs: +5.00 % (band ")
    assert "next: tirbench exec workloads/scale.toml::n64" in text

    every = [f"{case}/{one}" for case in ("n64", "n128", "n256") for one in ("ours", "theirs")]
    make_run(dict.fromkeys(every, 10.2))
    found = ladder(invoke(why.command, row, "--format", "json"))
    assert (found["environment"], found["command"]) == ("differs", "tirbench doctor")

    def recoded(outcome: Outcome) -> Outcome:
        facts = CodeFacts(digest="sass:1", registers=255)
        return replace(outcome, code=facts) if isinstance(outcome, Timed) else outcome

    make_run({"n64/ours": 10.5}, machine=replace(MACHINE, unit="other"), change=recoded)
    found = ladder(invoke(why.command, row, "--format", "json"))
    assert (found["code"], found["unit"], found["resources"]) == ("differs", "differs", "unknown")
    assert found["command"] == f"tirbench ab {commit[:10]} workloads/scale.toml::n64"

    repository.edit("workloads/scale.toml", 'init = "normal"', 'init = "uniform"')
    make_run()
    found = ladder(invoke(why.command, row, "--format", "json"))
    assert found["problem"] == "differs"
    assert found["command"] == "tirbench exec workloads/scale.toml::n64 --pin"


def test_why_of_what_has_no_pin_or_no_time_is_a_mistake(
    repository: Repository, make_run: MakeRun, invoke: Callable[..., Result]
) -> None:
    assert repository.root
    make_run()
    for name, message in (
        ("scale/n64/ours", "is not pinned on nvidia-h200"),
        ("scale/n64/none", "has no time of scale/n64/none"),
        ("scale/n64", "write workload/case/implementation"),
    ):
        assert message in str(invoke(why.command, name).exception)
