"""Machine code of what torch.compile made: launchers as inductor keeps them, with code of a real compiler."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.launch.test_sass import cubin
from tirbench.launch import inductor
from tirbench.launch.sass import text_digest


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def launcher(**more: Any) -> SimpleNamespace:
    config = SimpleNamespace(kwargs={"XBLOCK": 1, "R0_BLOCK": 2048}, num_warps=16, num_stages=1)
    return SimpleNamespace(config=config, shared=64, **more)


def tuner(*launchers: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(launchers=list(launchers))


def test_code_that_the_launcher_keeps_is_digested_with_the_choice_of_the_tuner(
    tmp_path: Path,
) -> None:
    code = cubin(tmp_path, "k", "* 2.0", "a.py")
    kept = tuner(launcher(bin=SimpleNamespace(asm={"cubin": code})))
    facts = inductor.code_facts([kept, kept], "sm_90")
    assert facts is not None
    assert facts.digest == "sass:" + text_digest([code, code])
    one = "R0_BLOCK=2048, XBLOCK=1, num_stages=1, num_warps=16"
    assert facts.configuration == f"{one}; {one}"
    assert facts.shared_bytes == 64
    assert facts.registers is not None
    assert facts.registers > 0
    assert facts.occupancy is not None


def test_code_that_the_launcher_does_not_keep_is_read_from_inductors_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = cubin(tmp_path, "k", "* 2.0", "a.py")
    (tmp_path / "0/HASH").mkdir(parents=True)
    (tmp_path / "0/HASH/triton_red_fused.cubin").write_bytes(code)
    monkeypatch.setattr(
        "torch._inductor.runtime.runtime_utils.triton_cache_dir",
        lambda gpu: str(tmp_path / str(gpu)),
    )
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    facts = inductor.code_facts([tuner(launcher(cache_hash="HASH"))], "sm_90")
    assert facts is not None
    assert facts.digest == "sass:" + text_digest([code])
    assert inductor.code_facts([tuner(launcher(cache_hash="OTHER"))], "sm_90") is None


def test_a_kernel_without_code_leaves_the_whole_call_without_a_digest(tmp_path: Path) -> None:
    kept = tuner(launcher(bin=SimpleNamespace(asm={"cubin": cubin(tmp_path, "k", "+ 1", "a.py")})))
    undecided = tuner(launcher(), launcher())
    assert inductor.code_facts([kept, undecided], "sm_90") is None
    assert inductor.code_facts([], "sm_90") is None


def test_kernels_are_collected_in_order_of_launch_and_only_where_torch_compiled() -> None:
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    original = CachingAutotuner.run
    first, second = (CachingAutotuner.__new__(CachingAutotuner) for _ in range(2))
    with inductor.recorded(compiled_by_torch=True) as found:
        for one in (second, first):
            with pytest.raises(AttributeError):  # neither is a kernel of a device
                one.run(stream=0)
    assert found == [second, first]
    assert CachingAutotuner.run is original
    with inductor.recorded(compiled_by_torch=False) as found:
        assert CachingAutotuner.run is original
    assert found == []
    assert CachingAutotuner.run is original


def test_a_kernel_takes_the_configuration_of_an_earlier_run_where_it_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    def run(self: Any, *args: Any) -> None:
        """As inductor's: several launchers become one before the first launch."""
        if len(self.launchers) > 1:
            self.autotune_to_one_config(*args)

    def tune(self: Any, *_: Any) -> None:
        self.launchers = self.launchers[-1:]  # the fastest of that minute

    def kernel(*blocks: int) -> Any:
        made = CachingAutotuner.__new__(CachingAutotuner)
        made.launchers = [launcher() for _ in blocks]
        for one, block in zip(made.launchers, blocks, strict=True):
            one.config.kwargs["XBLOCK"] = block
        return made

    def text(block: int) -> str:
        return f"R0_BLOCK=2048, XBLOCK={block}, num_stages=1, num_warps=16"

    monkeypatch.setattr(CachingAutotuner, "run", run)
    monkeypatch.setattr(CachingAutotuner, "autotune_to_one_config", tune)
    kernels = [kernel(1, 2, 4), kernel(1, 2), kernel(8), kernel(1, 2), kernel(1, 2)]
    chosen = [text(2), text(64), text(4), text(1)]
    with inductor.recorded(compiled_by_torch=True, chosen=chosen):
        for one in kernels:
            one.run()
    blocks = [[one.config.kwargs["XBLOCK"] for one in kernel.launchers] for kernel in kernels]
    assert blocks == [[2], [2], [8], [1], [2]]  # the second and the last were tuned
    assert CachingAutotuner.autotune_to_one_config is tune
