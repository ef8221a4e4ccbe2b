from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tirbench.check import Rule, compare, zeros_pass
from tirbench.check.measure import CHUNK_CPU

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPE = (64, 32, 512)


class Limit(TorchDispatchMode):  # type: ignore[misc]  # torch is not typed here
    """A device on which nothing larger than a few pieces can be allocated."""

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            made = result.untyped_storage()
            given = [one.untyped_storage() for one in args if isinstance(one, torch.Tensor)]
            if made.nbytes() > 8 * CHUNK_CPU and all(
                made.data_ptr() != one.data_ptr() for one in given
            ):
                raise torch.OutOfMemoryError(f"{func} made {made.nbytes()} bytes")
        return result


@pytest.mark.parametrize(
    ("rule", "region"),
    [
        (Rule("y"), None),
        (Rule("y", exact=True, relative_l2=0.1, cosine=0.5, not_worse_than="r"), None),
        (Rule("y", rows="r"), torch.arange(0, 64, 2)),
        (Rule("y", lengths="r"), torch.full((64, 32), 500)),
        (Rule("y", mask="r"), torch.ones(64, dtype=torch.bool)),
    ],
)
@pytest.mark.parametrize("wrong", [False, True])
def test_comparing_makes_no_copy_of_a_whole_output(
    rule: Rule, region: torch.Tensor | None, wrong: bool
) -> None:
    want = torch.randn(SHAPE, dtype=torch.float64)
    got = want.half()
    reference = got.clone()
    if wrong:
        got.fill_(torch.nan)
    with Limit():
        found = compare(
            got, want, rule, region_tensor=region, initial=reference, reference=reference
        )
        assert not zeros_pass(want, rule, dtype=torch.float16, region_tensor=region)
    assert found.passed != wrong


def test_the_limit_of_these_tests_notices_a_copy() -> None:
    want = torch.randn(SHAPE, dtype=torch.float64)
    with Limit(), pytest.raises(torch.OutOfMemoryError):
        want.half()
