"""What is known of one row besides its time: how it was pinned, how it varies, and why it may have moved."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

from tirbench import again, digest, store
from tirbench.averages import midmean
from tirbench.errors import UsageError
from tirbench.gating import Pins, commit_of_pin, gate_run, reports
from tirbench.judge.gate import ENVIRONMENT_ROWS, ENVIRONMENT_SHIFT
from tirbench.model import CodeFacts, Environment, PinnedRow, Run, SessionReport, Timed
from tirbench.store import revisions
from tirbench.store.baseline import parse_baseline

Light: TypeAlias = Literal["same", "differs", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinning:
    """One commit that changed a pinned row; `row` is `None` where it was taken out."""

    commit: revisions.Commit
    hardware: str
    key: str
    row: PinnedRow | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """How one row varies with where its tensors lie.

    Attributes:
        key: of the row.
        rounds_us: by placement seed, the midmean of each round.
        centre_us: mean over placements.
        over_placements: relative standard deviation of the placements' means.
        repeated: relative standard deviation of a placement measured again; `None` with one round.
    """

    key: str
    rounds_us: tuple[tuple[int, tuple[float, ...]], ...]
    centre_us: float
    over_placements: float
    repeated: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One rung of the ladder: a cause, whether it differs between pin and run, and how."""

    cause: str
    light: Light
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The ladder of one row, and the one command that goes on from there."""

    key: str
    change: str
    rungs: tuple[Rung, ...]
    command: str


# --- history --------------------------------------------------------------------------------------


def history(root: Path, name: str) -> tuple[Pinning, ...]:
    """Every commit that changed a pinned row of a case, newest first; git is the database.

    Args:
        root: the project's folder.
        name: `workload/case`, or `workload/case/implementation`.

    Raises:
        UsageError: git knows no baseline with such a row.
    """
    workload, case, implementation = _parts(name)
    found: list[Pinning] = []
    paths = revisions.paths_ever(root, f"*baselines/*/{workload}.toml")
    for path in paths:
        found += _of_file(root, path, case, implementation)
    if not found:
        raise UsageError(_not_in_git(root, name, known=bool(paths)))
    return tuple(found)


def _not_in_git(root: Path, name: str, *, known: bool) -> str:
    """Why git has no pins of a case: nobody has, or they are not committed."""
    for here in sessions(root, name):
        path = f"{here.folder}/{_parts(name)[0]}.toml"
        return f"{name}: pinned in {path}, which git does not have yet: commit it"
    where = "in any baseline that git has" if known else "and no baseline of such a workload"
    return f"{name}: pinned nowhere, {where}"


def _of_file(root: Path, path: str, case: str, implementation: str | None) -> Iterator[Pinning]:
    hardware, _, name = path.rpartition("/")
    workload = name.removesuffix(".toml")
    commits = revisions.log(root, path)
    before: list[dict[str, PinnedRow]] = [
        _rows_at(root, commit.id, path, case, implementation) for commit in commits
    ]
    for index, commit in enumerate(commits):
        now = before[index]
        older = before[index + 1] if index + 1 < len(before) else {}
        for one in sorted({*now, *older}):
            if now.get(one) != older.get(one):
                yield Pinning(
                    commit=commit,
                    hardware=hardware.rpartition("/")[2],
                    key=f"{workload}/{case}/{one}",
                    row=now.get(one),
                )


def _rows_at(
    root: Path, commit: str, path: str, case: str, implementation: str | None
) -> dict[str, PinnedRow]:
    text = revisions.show(root, commit, path)
    try:
        rows = () if text is None else parse_baseline(text, path).rows
    except store.BaselineError:  # a commit may hold conflict markers, or another version's keys
        return {}
    return {
        row.implementation: row
        for row in rows
        if row.case == case and implementation in {None, row.implementation}
    }


def _parts(name: str) -> tuple[str, str, str | None]:
    parts = name.split("/")
    if len(parts) not in {2, 3} or not all(parts):
        raise UsageError(f"{name}: write workload/case or workload/case/implementation")
    return parts[0], parts[1], parts[2] if len(parts) == 3 else None


def sessions(root: Path, name: str | None) -> tuple[SessionReport, ...]:
    """What sessions show of pinned rows, by class of hardware: of those of a case, or of all.

    Args:
        root: the project's folder.
        name: as in `history`; classes without such a row are left out.

    Raises:
        BaselineError: a baseline or a session cannot be read.
    """
    found = reports(root)
    if name is None:
        return found
    chosen = (
        replace(
            one,
            rows=tuple(
                row for row in one.rows if row.key == name or row.key.startswith(f"{name}/")
            ),
        )
        for one in found
    )
    return tuple(one for one in chosen if one.rows)


# --- placement ------------------------------------------------------------------------------------


def placements(kept: store.KeptRun, name: str) -> tuple[Placed, ...]:
    """How the rows of a case varied with placement in a run, from its samples.

    Raises:
        UsageError: the run has no samples of such a row.
    """
    workload, case, implementation = _parts(name)
    wanted = f"{workload}/{case}/"
    rows: dict[str, dict[int, dict[int, float]]] = {}
    for key, placement, round_index, times in kept.samples():
        if key.startswith(wanted) and implementation in {None, key.removeprefix(wanted)}:
            rows.setdefault(key, {}).setdefault(placement, {})[round_index] = midmean(times)
    if not rows:
        raise UsageError(f"run {kept.run.id} has no samples of {name}")
    return tuple(_placed(key, rows[key]) for key in sorted(rows))


def _placed(key: str, measured: dict[int, dict[int, float]]) -> Placed:
    rounds = tuple(
        (placement, tuple(us for _, us in sorted(of_round.items())))
        for placement, of_round in sorted(measured.items())
    )
    means = [statistics.fmean(us) for _, us in rounds]
    centre = statistics.fmean(means)
    variances = [
        statistics.variance(us) / statistics.fmean(us) ** 2 for _, us in rounds if len(us) > 1
    ]
    per_mean = statistics.fmean(len(us) for _, us in rounds)
    return Placed(
        key=key,
        rounds_us=rounds,
        centre_us=centre,
        over_placements=statistics.stdev(means) / centre if len(means) > 1 else 0.0,
        repeated=(statistics.fmean(variances) / per_mean) ** 0.5 if variances else None,
    )


# --- why ------------------------------------------------------------------------------------------

RESOURCES: Final = ("registers", "spills", "shared_bytes")


def why(root: Path, kept: store.KeptRun, name: str) -> Why:
    """The ladder of causes of one row: what differs between its pin and a run, in order of suspicion.

    Raises:
        UsageError: the run has no time of the row, or nothing is pinned on its hardware.
    """
    workload, case, implementation = _parts(name)
    if implementation is None:
        raise UsageError(f"{name}: write workload/case/implementation")
    timed = next((o for o in kept.run.outcomes if o.row.key == name), None)
    if not isinstance(timed, Timed):
        raise UsageError(f"run {kept.run.id} has no time of {name}")
    reading = again.reading_of(root, kept)
    chosen = next(one for one in reading.chosen if one.workload.name == workload)
    pins = Pins.read(root, chosen.workload)
    hardware = kept.run.machine.hardware
    pinned = pins.by_hardware.get(hardware, {}).get((case, implementation))
    if pinned is None:
        raise UsageError(
            f"{name} is not pinned on {hardware}: there is nothing it could differ from"
        )
    environment = gate_run(reading, kept).environment
    rungs = tuple(_rungs(pinned, timed, kept, environment))
    ratio = timed.estimate.midmean_us / pinned.midmean_us
    change = f"{timed.estimate.midmean_us:.4g} µs, pinned {pinned.midmean_us:.4g} µs: {_percent(ratio - 1)}"
    path = chosen.workload.source.path
    return Why(
        key=name,
        change=f"{change} (band {100 * pinned.band:.2g} %)",
        rungs=rungs,
        command=_command(root, path, pinned, {rung.cause: rung.light for rung in rungs}, hardware),
    )


def _rungs(
    pinned: PinnedRow, timed: Timed, kept: store.KeptRun, environment: Environment | None
) -> Iterator[Rung]:
    code = timed.ran
    yield _rung("problem", pinned.problem, timed.problem, "the number means something else")
    yield _rung(
        "protocol", pinned.protocol, timed.protocol, "timer, L2, regime, budgets or placements"
    )
    yield _rung("source", pinned.source, timed.source, "kernel files, grid, arguments or options")
    yield _rung("code", pinned.code, code.digest, "what runs is other code")
    yield _rung(
        "configuration", pinned.configuration or "none", code.configuration or "none", "", show=True
    )
    yield _resources(pinned, code)
    env = digest.environment(kept.run.machine)
    yield _rung("versions", pinned.env, env, "", show=True)
    unit = timed.unit or kept.run.machine.unit or "none"
    yield _rung("unit", pinned.unit, unit, "another unit of the product is off by 1 % or so")
    yield _environment(environment)
    yield _placement(timed, kept.run)


def _rung(cause: str, old: str, new: str, meaning: str, *, show: bool = False) -> Rung:
    if old == new:
        return Rung(cause=cause, light="same", detail=old if show else "")
    detail = f"{old} → {new}" if show or not meaning else f"{old} → {new}: {meaning}"
    return Rung(cause=cause, light="differs", detail=detail)


def _resources(pinned: PinnedRow, code: CodeFacts) -> Rung:
    old = dict(pinned.resources)
    new = {name: number for name in RESOURCES if (number := getattr(code, name)) is not None}
    if not old or not new:
        return Rung(cause="resources", light="unknown", detail="no compiler says them of this row")
    changed = [
        f"{name} {old.get(name, '?')} → {new.get(name, '?')}"
        for name in RESOURCES
        if old.get(name) != new.get(name)
    ]
    light: Light = "differs" if changed else "same"
    return Rung(cause="resources", light=light, detail=", ".join(changed))


def _environment(environment: Environment | None) -> Rung:
    if environment is None or environment.shift is None or environment.rows < ENVIRONMENT_ROWS:
        detail = "fewer than five rows of unchanged code in the run"
        return Rung(cause="environment", light="unknown", detail=detail)
    moved = abs(environment.shift) > ENVIRONMENT_SHIFT
    detail = f"{environment.rows} rows of unchanged code moved by {_percent(environment.shift)}"
    return Rung(cause="environment", light="differs" if moved else "same", detail=detail)


def _placement(timed: Timed, run: Run) -> Rung:
    """Placements are the same in every run: a wide spread only says how much one address matters."""
    times = timed.estimate.placements_us
    if len(times) < 2:
        detail = f"run {run.id} has one placement"
        return Rung(cause="placement", light="unknown", detail=detail)
    spread = statistics.stdev(times) / statistics.fmean(times)
    detail = f"{100 * spread:.2g} % over {len(times)} seeds, {100 * timed.estimate.within_sd:.2g} % repeated"
    return Rung(cause="placement", light="same", detail=detail)


def _command(
    root: Path, path: str, pinned: PinnedRow, lights: dict[str, Light], hardware: str
) -> str:
    """What decides it, given what differs."""
    case = f"{path}::{pinned.case}"
    if "differs" in {lights["problem"], lights["protocol"]}:
        return f"tirbench exec {case} --pin"
    if "differs" in {lights["source"], lights["code"], lights["configuration"]}:
        commit = commit_of_pin(root, path, pinned, hardware)
        return f"tirbench ab {revisions.short(commit) if commit else 'BASE'} {case}"
    if lights["environment"] == "differs":
        return "tirbench doctor"
    return f"tirbench exec {case} && tirbench placement {Path(path).stem}/{pinned.case}"


def _percent(relative: float) -> str:
    return f"{100 * relative:+.2f} %"
