"""The tensors of one case, laid out, filled, guarded and brought back to their initial contents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from tirbench.pieces import pieces
from tirbench.tensors import contents, guard, memory, roles, spec
from tirbench.tensors.arena import Arena
from tirbench.tensors.checksum import checksum
from tirbench.tensors.errors import OutOfMemory, TensorError
from tirbench.tensors.fill import CHUNK_GPU
from tirbench.tensors.poison import poison

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tirbench.tensors.spec import Computed, Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recipe:
    """What a case's tensors are, before and apart from any memory: it can fill others like them."""

    specs: Mapping[str, Tensor]
    computed: tuple[Computed, ...]
    storages: Mapping[str, spec.Storage]
    steps: tuple[contents.Step, ...]
    draw: contents.Draw
    device: torch.device

    def redrawn(self, name: str) -> torch.Tensor:
        """The initial contents of `name` once more, in memory of its own."""
        steps = contents.needed(self.specs, self.steps, name)
        wanted = {name} | {one for step in steps for one in (*step.makes, *step.reads)}
        bases = {spec.base_of(self.specs, one) for one in wanted}
        tensors = spec.views(self.specs, {base: self.private(base) for base in bases})
        for base in bases:
            poison(tensors[base])  # bytes that nothing fills are alike every time
        contents.run(steps, tensors, self.draw)
        return tensors[name]

    def private(self, base: str) -> torch.Tensor:
        """Memory outside the arena with the strides of a base tensor."""
        owned = self.storages[base]
        return owned.over(torch.empty(owned.nbytes, dtype=torch.uint8, device=self.device))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor lies, as it was laid out: `out=` of torch resizes what does not fit."""

    storage: torch.UntypedStorage
    offset: int
    shape: torch.Size
    strides: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Place:
        return cls(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())

    def take_back(self, tensor: torch.Tensor) -> bool:
        """Put a tensor back to its shape and memory; whether it had another one before."""
        if (tensor.shape, tensor.stride()) == (self.shape, self.strides):
            return False
        with torch.no_grad():
            tensor.set_(self.storage, self.offset, self.shape, self.strides)
        return True


class Tensors:
    """All tensors of a case by name. Made by `allocate`; valid until the arena is laid out anew."""

    def __init__(
        self,
        recipe: _Recipe,
        tensors: dict[str, torch.Tensor],
        guards: Mapping[str, guard.Guard],
        nbytes: int,
    ) -> None:
        self._recipe = recipe
        self._tensors = tensors
        self._guards = guards
        self.nbytes = nbytes
        specs, computed = recipe.specs, recipe.computed
        self.restored: tuple[str, ...] = roles.restored(specs, computed)
        self._unwritten = roles.poisoned(specs, computed)
        self._fill()
        self._pristine = {
            name: _copy(tensors[name], recipe.private(name))
            for name in roles.kept(specs, computed, self.restored)
        }
        self._constants = {
            name: roles.constant(specs, computed, name)
            for name in self.restored
            if name not in self._pristine
        }
        self._checksums = {
            name: checksum(spec.collapsed(tensors[name])) for name in roles.read_only(specs)
        }
        for name in [one for one in tensors if specs[spec.base_of(specs, one)].temporary]:
            del tensors[name]
        self._places = {name: _Place.of(tensor) for name, tensor in tensors.items()}

    @classmethod
    def allocate(  # noqa: PLR0913  (one keyword for each thing that contents or places depend on)
        cls,
        specs: Iterable[Tensor],
        computed: Sequence[Computed] = (),
        *,
        device: torch.device | str,
        seed: int,
        placement: int,
        rank: int = 0,
        arena: Arena | None = None,
        folder: Path | str = ".",
        chunk: int | None = None,
        free_bytes: Callable[[torch.device], int] = memory.free_bytes,
    ) -> Tensors:
        """Lay out, guard and fill the tensors of a case.

        Contents depend on seed, names and rank, never on placement, device memory or `chunk`.
        Tensors without initial contents are poisoned.

        Args:
            specs: the tensors; their order has no effect.
            computed: functions that fill those without an initialiser.
            device: where they lie.
            seed: the workload's seed.
            placement: the placement seed k = 0 … K - 1.
            rank: of this process.
            arena: memory to lay them out in, used again for every placement and case; absent: a new
                one. Tensors laid out in it before become invalid.
            folder: relative paths of `file()` begin here.
            chunk: elements filled at once; `None`: what suits the device.
            free_bytes: how much memory of a device is free, in bytes.

        Raises:
            TensorError: the specifications contradict one another.
            OutOfMemory: the tensors do not fit.
        """
        where = torch.device(device)
        recipe = _recipe(
            tuple(specs),
            tuple(computed),
            contents.Draw(seed=seed, rank=rank, folder=Path(folder), chunk=chunk),
            where,
        )
        home = Arena(where) if arena is None else arena
        needed = memory.required_bytes(recipe.specs.values(), recipe.computed)
        memory.require(needed, free_bytes(where) + home.nbytes, where)
        try:
            return _placed(cls, recipe, home, placement)
        except torch.OutOfMemoryError as error:
            raise OutOfMemory(
                f"the tensors need {memory.gib(needed)} on {where}; {error}"
            ) from error

    def __getitem__(self, name: str) -> torch.Tensor:
        """The tensor of that name, in the arena.

        Raises:
            TensorError: there is none, or it was temporary and is freed.
        """
        if name in self._tensors:
            return self._tensors[name]
        if name in self._recipe.specs:
            raise TensorError(f"{name}: was temporary and is freed; only init functions may use it")
        raise TensorError(f"there is no tensor {name}")

    def __iter__(self) -> Iterator[str]:
        """Names in definition order."""
        return iter(self._tensors)

    @property
    def names(self) -> tuple[str, ...]:
        """Names in definition order."""
        return tuple(self._tensors)

    @property
    def device(self) -> torch.device:
        """Where the tensors lie."""
        return self._recipe.device

    def restore(self) -> None:
        """Give the tensors named by `restored` their initial contents back.

        Nothing is allocated and the host does not wait, so a CUDA graph can capture it.
        """
        for name, pristine in self._pristine.items():
            spec.collapsed(self._tensors[name]).copy_(spec.collapsed(pristine))
        for name, constant in self._constants.items():
            target = spec.collapsed(self._tensors[name])
            if constant:
                target.fill_(constant)
            else:
                target.zero_()

    def poison(self, names: Iterable[str] | None = None) -> None:
        """Overwrite tensors so that elements never written are seen.

        Args:
            names: the tensors; absent: all that kernels write and that are neither filled nor restored.
        """
        for name in self._unwritten if names is None else names:
            poison(self[name])

    def has_initial(self, name: str) -> bool:
        """Whether a tensor has initial contents: it, or the tensor it is a view of, is filled.

        Raises:
            TensorError: there is no such tensor.
        """
        specs = self._recipe.specs
        if name not in specs:
            raise TensorError(f"there is no tensor {name}")
        return spec.base_of(specs, name) in roles.filled(specs, self._recipe.computed)

    def initial(self, name: str, dtype: torch.dtype | None = None) -> torch.Tensor:
        """A private copy of a tensor's initial contents, whatever kernels did to it since.

        Args:
            name: the tensor.
            dtype: floating-point tensors are cast to it; absent: as they are.

        Raises:
            TensorError: it has no initial contents, or they cannot be had again.
        """
        if not self.has_initial(name):
            raise TensorError(f"{name}: has no initial contents")
        found = self._initial(name)
        held = spec.collapsed(found)
        wanted = held.dtype if dtype is None or not held.dtype.is_floating_point else dtype
        copy = torch.empty(held.shape, dtype=wanted, device=held.device).copy_(held)
        return copy.expand(found.shape)

    def violations(self) -> list[str]:
        """Sentences about memory that was written though no kernel may, each reported once.

        What was found is repaired: guards are painted, inputs filled again, tensors have the shape again
        that they were declared with. The next implementation is not blamed for it and works on the right
        inputs.
        """
        found = []
        for name, tensor in self._tensors.items():
            place, shape = self._places[name], list(tensor.shape)
            if place.take_back(tensor):
                found.append(f"{name} was resized from {list(place.shape)} to {shape}")
        if changed := guard.changed(self._guards):
            found += changed
            guard.paint(self._guards)
        for name in self._overwritten(list(self._checksums)):
            right = self._recipe.redrawn(name)
            held = spec.collapsed(self._tensors[name])
            found.append(_overwritten_sentence(name, held, spec.collapsed(right)))
            held.copy_(spec.collapsed(right))
            if not torch.equal(checksum(held), self._checksums[name]):
                raise TensorError(
                    f"{name}: a kernel wrote this input, and its init function does not compute "
                    "the same contents again"
                )
        return found

    def _fill(self) -> None:
        """Write guards, poison where nothing else is written, and initial contents."""
        whole = {made for step in self._recipe.steps for made in step.makes}
        for name in self._recipe.storages:
            if name not in whole:
                poison(self._tensors[name])
        guard.paint(self._guards)
        contents.run(self._recipe.steps, self._tensors, self._recipe.draw)

    def _initial(self, name: str) -> torch.Tensor:
        """Initial contents of `name` from wherever they are still to be had, not to be written."""
        specs = self._recipe.specs
        base = spec.base_of(specs, name)
        if base in self._pristine:
            return spec.views(specs, {base: self._pristine[base]})[name]
        if base in self._checksums and not self._overwritten([base]):
            return self._tensors[name]
        return self._recipe.redrawn(name)

    def _overwritten(self, names: Sequence[str]) -> list[str]:
        """Those of these inputs that changed since they were filled."""
        if not names:
            return []
        now = torch.stack([checksum(spec.collapsed(self._tensors[name])) for name in names])
        then = torch.stack([self._checksums[name] for name in names])
        return [name for name, same in zip(names, (now == then).tolist(), strict=True) if not same]


def _recipe(
    given: tuple[Tensor, ...],
    computed: tuple[Computed, ...],
    draw: contents.Draw,
    device: torch.device,
) -> _Recipe:
    """Check the specifications and put their steps in order.

    Raises:
        TensorError: an input has no contents, or the specifications contradict one another.
    """
    specs = spec.by_name(given)
    steps = contents.plan(specs, computed)
    filled = roles.filled(specs, computed)
    for name in specs:
        base = spec.base_of(specs, name)
        if base not in filled and specs[name].role in {"in", "inout"} and specs[name].view is None:
            raise TensorError(f"{name}: has neither an init nor a function that computes it")
    return _Recipe(
        specs=specs,
        computed=computed,
        storages={name: spec.storage(one) for name, one in specs.items() if one.view is None},
        steps=steps,
        draw=draw,
        device=device,
    )


def _placed(cls: type[Tensors], recipe: _Recipe, arena: Arena, placement: int) -> Tensors:
    """Lay the tensors out in the arena and fill them."""
    bases: dict[str, torch.Tensor] = {}
    guards: dict[str, guard.Guard] = {}
    for kind in ("device", "symmetric"):
        sizes = {
            name: owned.nbytes
            for name, owned in recipe.storages.items()
            if recipe.specs[name].memory == kind and not recipe.specs[name].temporary
        }
        if sizes:
            block, places = arena.lay_out(sizes, placement, memory=kind)
            for name, offset in places.offsets.items():
                owned = recipe.storages[name]
                place = block[offset : offset + owned.nbytes]
                # The other ranks find a symmetric tensor by its storage, which is that of the block.
                bases[name] = owned.over(place if kind == "symmetric" else _unrelated(place))
                guards[name] = guard.guard(name, owned, block, offset)
    for name, one in recipe.specs.items():
        if one.temporary and one.view is None:
            bases[name] = recipe.private(name)
    tensors = spec.views(recipe.specs, bases)
    return cls(recipe, tensors, guards, arena.nbytes)


def _unrelated(memory: torch.Tensor) -> torch.Tensor:
    """The same memory as a tensor with a storage of its own.

    Slices of one storage look like aliases of each other: torch.compile (2.11) refuses to mutate two of
    different dtypes, and would otherwise compile code for inputs that overlap.
    """
    return torch.from_dlpack(memory) if memory.numel() else memory


def _copy(tensor: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
    """`into` with the elements of `tensor`."""
    spec.collapsed(into).copy_(spec.collapsed(tensor))
    return into


def _overwritten_sentence(name: str, now: torch.Tensor, right: torch.Tensor) -> str:
    """How much of an input changed, and where the first change is."""
    count, first = 0, 0
    for index, start, _ in pieces(now.shape, CHUNK_GPU):
        wrong = (spec.bits(now[index]) != spec.bits(right[index])).reshape(-1).nonzero()
        if len(wrong) and not count:
            first = start + int(wrong[0])
        count += len(wrong)
    place = [int(i) for i in torch.unravel_index(torch.tensor(first), now.shape)]
    return (
        f"{name}: written though it is an input: {count} of {now.numel()} elements changed, "
        f"the first at {place}, byte +{first * now.element_size()} in row-major order"
    )
