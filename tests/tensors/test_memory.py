from __future__ import annotations

import weakref

import pytest
import torch

from tirbench import tensors as tb
from tirbench.errors import MeasurementError, TirbenchError
from tirbench.tensors import Arena, OutOfMemory, Tensor, Tensors, required_bytes
from tirbench.tensors.arena import needed_bytes
from tirbench.tensors.memory import free_bytes
from tirbench.tensors.spec import storage

MIB = 1 << 20


def test_the_bytes_of_a_case_are_known_before_anything_is_allocated() -> None:
    big = Tensor("x", shape=(65536, 65536), dtype=torch.float16, init=tb.normal())
    out = Tensor("y", role="out", shape=(65536, 65536), dtype=torch.float16)
    assert 16 << 30 < required_bytes([big, out]) < (16 << 30) + 16 * MIB


def test_initial_contents_that_are_kept_and_temporary_tensors_are_counted() -> None:
    def spec(role: str, **more: object) -> Tensor:
        return Tensor("x", role=role, shape=(8 * MIB,), dtype=torch.uint8, **more)  # type: ignore[arg-type]

    plain = required_bytes([spec("in", init=tb.normal())])
    assert required_bytes([spec("inout", init=tb.normal())]) == plain + 8 * MIB
    assert required_bytes([spec("inout", init=tb.zeros())]) == plain
    assert required_bytes([spec("in", init=tb.zeros(), temporary=True)]) == (
        8 * MIB + needed_bytes({})
    )


def test_a_case_that_does_not_fit_is_refused_with_both_numbers() -> None:
    spec = Tensor("x", shape=(3 << 28,), dtype=torch.float32, init=tb.normal())
    with pytest.raises(OutOfMemory) as caught:
        Tensors.allocate([spec], device="cpu", seed=0, placement=0, free_bytes=lambda _: 1 << 30)
    assert str(caught.value) == "the tensors need 3.00 GiB on cpu, of which 1.00 GiB are free"
    assert isinstance(caught.value, TirbenchError)
    assert isinstance(caught.value, MemoryError)
    assert issubclass(OutOfMemory, MeasurementError)


def test_what_the_arena_holds_counts_as_free() -> None:
    spec = Tensor("x", shape=(16 * MIB,), dtype=torch.uint8, init=tb.zeros())
    arena = Arena("cpu")
    Tensors.allocate([spec], device="cpu", seed=0, placement=0, arena=arena)
    Tensors.allocate([spec], device="cpu", seed=0, placement=1, arena=arena, free_bytes=lambda _: 0)


def test_the_arena_grows_only_when_it_must() -> None:
    taken: list[int] = []

    def allocate(nbytes: int, device: torch.device, memory: str) -> torch.Tensor:
        assert memory == "device"
        taken.append(nbytes)
        return torch.empty(nbytes, dtype=torch.uint8, device=device)

    arena = Arena("cpu", allocate=allocate)
    for sizes in ({"x": 100}, {"x": 9 * MIB}, {"x": MIB}, {"x": 5}):
        arena.lay_out(sizes, 0)
    assert len(taken) == 2
    assert arena.nbytes == taken[-1]
    arena.release()
    assert arena.nbytes == 0


def test_cases_that_fit_the_ground_lie_in_the_same_memory_whatever_came_before() -> None:
    arena = Arena("cpu", ground=8 * MIB)
    seen = []
    for sizes in ({"x": 100}, {"x": 20 * MIB}, {"x": 100}, {"x": MIB}, {"x": 100}):
        block, _ = arena.lay_out(sizes, 0)
        seen.append(block.data_ptr())
    assert len({seen[0], seen[2], seen[4]}) == 1
    assert seen[1] != seen[0]


def test_the_block_of_a_case_larger_than_the_ground_goes_with_it() -> None:
    arena = Arena("cpu", ground=8 * MIB)
    arena.lay_out({"x": 20 * MIB}, 0)
    assert arena.nbytes > 28 * MIB
    arena.lay_out({"x": 100}, 0)
    assert arena.nbytes == 8 * MIB


def test_a_case_that_only_fits_without_the_ground_takes_its_place() -> None:
    room = 25 * MIB
    held: list[weakref.ref[torch.Tensor]] = []

    def allocate(nbytes: int, device: torch.device, _: str) -> torch.Tensor:
        if nbytes + sum(one.numel() for ref in held if (one := ref()) is not None) > room:
            raise torch.OutOfMemoryError("full")
        block = torch.empty(nbytes, dtype=torch.uint8, device=device)
        held.append(weakref.ref(block))
        return block

    arena = Arena("cpu", allocate=allocate, ground=8 * MIB)
    arena.lay_out({"x": 20 * MIB}, 0)
    assert arena.nbytes < 25 * MIB
    with pytest.raises(torch.OutOfMemoryError):
        arena.lay_out({"x": 30 * MIB}, 0)


def test_without_room_for_a_ground_cases_lie_where_they_can() -> None:
    def allocate(nbytes: int, device: torch.device, _: str) -> torch.Tensor:
        if nbytes > 10 * MIB:
            raise torch.OutOfMemoryError("full")
        return torch.empty(nbytes, dtype=torch.uint8, device=device)

    arena = Arena("cpu", allocate=allocate, ground=20 * MIB)
    assert arena.nbytes == 0
    arena.lay_out({"x": 100}, 0)
    assert arena.nbytes == needed_bytes({"x": 100})


def test_symmetric_tensors_lie_at_the_same_offsets_on_every_rank() -> None:
    blocks = {}

    def allocate(nbytes: int, device: torch.device, memory: str) -> torch.Tensor:
        blocks[memory] = torch.empty(nbytes, dtype=torch.uint8, device=device)
        return blocks[memory]

    specs = [
        Tensor("a", shape=(64,), dtype=torch.float32, init=tb.normal()),
        Tensor(
            "ready",
            role="scratch",
            shape=(4,),
            dtype=torch.int64,
            init=tb.zeros(),
            memory="symmetric",
        ),
    ]
    offsets = set()
    storages = set()
    for rank in range(2):
        found = Tensors.allocate(
            specs,
            device="cpu",
            seed=0,
            placement=0,
            rank=rank,
            arena=Arena("cpu", allocate=allocate),
        )
        offsets.add(found["ready"].data_ptr() - blocks["symmetric"].data_ptr())
        storages.add(found["ready"].untyped_storage().data_ptr() == blocks["symmetric"].data_ptr())
    assert len(offsets) == 1
    assert storages == {True}  # by which torch's symmetric memory finds it on the other ranks


def test_a_world_of_one_needs_no_process_group_for_symmetric_memory() -> None:
    spec = Tensor("c", role="out", shape=(4,), dtype=torch.int64, memory="symmetric")
    found = Tensors.allocate([spec], device="cpu", seed=0, placement=0)
    assert found.violations() == []


def test_storages_of_more_than_2_31_elements_are_counted_exactly() -> None:
    spec = Tensor("x", shape=(65536, 65536), strides=(65540, 1), dtype=torch.int8)
    assert storage(spec).nbytes == 65535 * 65540 + 65536


def test_free_memory_of_the_host_is_known() -> None:
    assert free_bytes(torch.device("cpu")) > 64 * MIB
