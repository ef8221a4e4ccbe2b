"""Split-K: every configuration of the tuner fits Hopper, and the check sees a mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SHARED_BYTES_OF_A_PROGRAM = 227 * 1024  # compute capability 9.0, CUDA programming guide
MISTAKES = {
    "the workload as it is": [],
    "a share is stored instead of added": [
        (
            'tl.atomic_add(acc_tile, accumulator, mask=inside, sem="relaxed")',
            "tl.store(acc_tile, accumulator, mask=inside)",
        )
    ],
    "every program takes the first share": [("tl.program_id(1) * BLOCK_K", "0 * BLOCK_K")],
    "the last block of k is not masked": [
        ('args["K"] % (args["BLOCK_K"] * args["SPLIT_K"]) == 0', "True")
    ],
    "the last element is not cast": [("inside = at < count", "inside = at < count - 1")],
}


def test_the_tuner_zeroes_the_sums_before_every_configuration(
    kernel_file: Callable[[str], Any],
) -> None:
    tuner = kernel_file("matmul_split_k").matmul_split_k_kernel
    assert tuner.reset_to_zero == ["acc_ptr"]
    assert len(tuner.configs) > 1


def test_the_check_accepts_the_kernels_and_no_mistake_in_them(
    verdicts: Callable[..., Any],
) -> None:
    found = verdicts("matmul_split_k", MISTAKES)
    assert found.pop("the workload as it is") is None
    assert not [mistake for mistake, reason in found.items() if reason is None]


def test_every_configuration_fits_hopper_without_spilling(
    hopper_facts: Callable[[str], dict[str, dict[str, int]]],
) -> None:
    facts = hopper_facts("matmul_split_k")
    products = {name: launch for name, launch in facts.items() if "split_k" in name}
    assert len(products) == 2 * 2 * 6  # cases, kernels, configurations
    # wgmma takes at least 64 rows; a tile of 16 uses the instruction that came before it.
    assert all(launch["wgmma"] or launch["mma"] for launch in products.values())
    for launch in facts.values():
        assert launch["loads_128"]
        assert not launch["local_bytes"]
        assert launch["shared_bytes"] <= SHARED_BYTES_OF_A_PROGRAM
