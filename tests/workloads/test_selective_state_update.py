"""selective_state_update: the formula, padding, optional arguments, and states that must not change."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import pytest
import torch

from tests.workloads.kernel_files import load
from tests.workloads.own_process import compiled, interpreted
from tirbench.check import Rule, compare

NAME = "selective_state_update"
FLAGS = {  # has_z, has_d_skip, softplus, update
    "plain": (False, False, False, True),
    "full": (True, True, True, True),
    "read": (True, True, True, False),
}


@pytest.fixture(scope="module")
def kernels() -> Any:
    return load(NAME)


@pytest.fixture(scope="module")
def faults() -> dict[str, str]:
    return interpreted(f"test_{NAME}")


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("tied", [True, False])
def test_the_kernel_agrees_with_the_oracle_and_touches_no_other_state(
    faults: dict[str, str], flags: str, *, tied: bool
) -> None:
    mine = {label: one for label, one in faults.items() if label.startswith(f"{flags} {tied} ")}
    assert len(mine) == 4  # state, the other states, y, y of padding
    assert not any(mine.values()), mine


def test_the_oracle_is_the_formula_element_by_element(kernels: Any) -> None:
    case = {name: widened(one) for name, one in make("full", tied=False).items()}
    state, y = kernels.selective_state_update_oracle(*case.values(), True, True)
    i, h, d = 1, 3, 7
    group, slot = h // 2, int(case["slots"][i])
    x, z = float(case["x"][i, h, d]), float(case["z"][i, h, d])
    step = math.log1p(math.exp(float(case["dt"][i, h, d] + case["dt_bias"][h, d])))
    total = 0.0
    for n in range(case["state"].shape[3]):
        old, a = float(case["state"][slot, h, d, n]), float(case["a"][h, d, n])
        new = old * math.exp(a * step) + x * step * float(case["b"][i, group, n])
        assert float(state[slot, h, d, n]) == pytest.approx(new, rel=1e-12)
        total += new * float(case["c"][i, group, n])
    want = (total + float(case["d_skip"][h, d]) * x) * z / (1 + math.exp(-z))
    assert float(y[i, h, d]) == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("flags", FLAGS)
def test_the_torch_reference_works_in_place_and_agrees_with_the_oracle(
    kernels: Any, flags: str
) -> None:
    case = make(flags, tied=True)
    *_, softplus, update = FLAGS[flags]
    wide = [widened(one) for one in case.values()]
    want_state, want_y = kernels.selective_state_update_oracle(*wide, softplus, update)
    y = torch.full_like(case["x"], float("nan"))
    kernels.build_torch(*case.values(), y, softplus, update)()
    assert compare(case["state"], want_state, Rule("state")).passed
    real = case["slots"] >= 0
    assert compare(y, want_y, Rule("y", mask="real"), region_tensor=real).passed
    assert y[~real].isnan().all()


def test_slots_are_distinct_and_the_batch_ends_in_padding(kernels: Any) -> None:
    slots, real = kernels.make_slots(32, 40)
    assert slots.dtype is torch.int64
    assert real.tolist() == [True] * 28 + [False] * 4
    assert (slots[~real] == -1).all()
    assert len(slots[real].unique()) == 28
    assert 0 <= int(slots[real].min()) <= int(slots[real].max()) < 40


def test_default_cases_load_128_bits_at_a_time_and_do_not_spill() -> None:
    facts = compiled(NAME)
    assert len(facts) == 2
    assert all(one["loads_128"] and not one["local_bytes"] for one in facts.values()), facts


def make(flags: str, *, tied: bool) -> dict[str, Any]:
    """Inputs in the order the functions take them; the slots lie apart, and the channels fill no block."""
    torch.manual_seed(0)
    batch, slots, heads, groups, dim, columns = 4, 6, 4, 2, 40, 16
    has_z, has_d_skip, softplus, _ = FLAGS[flags]
    vector = (heads, 1) if tied else (heads, dim)
    full = (heads, 1, 1) if tied else (heads, dim, columns)
    apart = torch.randn(slots, 2 * heads, dim, columns).half()
    return {
        "state": apart[:, :heads],
        "x": torch.randn(batch, heads, dim).half(),
        "z": torch.randn(batch, heads, dim).half() if has_z else None,
        "dt": torch.rand(batch, *vector).expand(batch, heads, dim),
        "dt_bias": (torch.rand(vector) - 2).expand(heads, dim) if softplus else None,
        "a": (-1 - torch.rand(full)).expand(heads, dim, columns),
        "b": torch.randn(batch, groups, columns).half(),
        "c": torch.randn(batch, groups, columns).half(),
        "d_skip": torch.randn(vector).expand(heads, dim) if has_d_skip else None,
        "slots": torch.tensor([4, 0, -1, 2]),
    }


def widened(one: torch.Tensor | None) -> Any:
    """In float64 as an oracle is given it."""
    return one if one is None or not one.dtype.is_floating_point else one.double()


def main() -> None:
    """Print what is wrong with what the interpreted kernel computes."""
    kernels = load(NAME)
    faults: dict[str, str] = {}
    for flags, (*_, softplus, update) in FLAGS.items():
        for tied in (True, False):
            case = make(flags, tied=tied)
            wide = [widened(one) for one in case.values()]
            want_state, want_y = kernels.selective_state_update_oracle(*wide, softplus, update)
            state, dt, a, slots = case["state"], case["dt"], case["a"], case["slots"]
            before, beside = (
                state.clone(),
                state.as_strided(state.shape, state.stride(), 4 * 40 * 16),
            )
            kept_beside = beside.clone()
            y = torch.full_like(case["x"], float("nan"))
            kernels.selective_state_update_kernel[(2, 4, 4)](
                state, case["x"], case["z"], dt, case["dt_bias"], a, case["b"], case["c"],
                case["d_skip"], slots, y, 4, 2, state.stride(0), *dt.stride(), *a.stride(),
                1 if tied else 40, 0 if tied else 1,
                DIM=40, COLUMNS=16, BLOCK_D=32, TIED=tied, SOFTPLUS=softplus, UPDATE=update,
            )  # fmt: skip
            real = slots >= 0
            rule = Rule("state", rows="slots", rtol=None if update else 0)
            results = {
                "state": compare(state, want_state, rule, region_tensor=slots, initial=before),
                "y": compare(y, want_y, Rule("y", mask="real"), region_tensor=real),
            }
            label = f"{flags} {tied}"
            faults |= {
                f"{label} {name}": "" if one.passed else one.message
                for name, one in results.items()
            }
            same = torch.equal(beside, kept_beside)
            faults[f"{label} beside"] = "" if same else "written between the slots"
            faults[f"{label} padding"] = "" if y[~real].isnan().all() else "y of padding written"
    json.dump(faults, sys.stdout)


if __name__ == "__main__":
    main()
