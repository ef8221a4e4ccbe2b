"""What is set for the whole process is put back before another workload is opened in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tirbench.harness import settings


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = settings.current()
    monkeypatch.setattr(settings, "_first", [])
    yield
    settings.restore(before)


def test_a_second_harness_finds_what_the_first_found() -> None:
    settings.anew()
    was = settings.current()
    torch.set_default_dtype(torch.float64)
    torch.backends.cuda.matmul.allow_tf32 = not torch.backends.cuda.matmul.allow_tf32
    assert settings.current() != was
    settings.anew()
    assert settings.current() == was
