"""What the tensors of a case are: as the harness writes them down, nothing allocated yet."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Final, Literal

import torch

from tirbench.tensors.errors import TensorError
from tirbench.tensors.gaps import contiguous_strides, extent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tirbench.tensors.init import Init

INTEGERS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a case.

    Args:
        name: its name in the workload; it seeds contents and placement.
        shape: sizes of the dimensions; a view without one has the shape of its base.
        dtype: element type; a view without one has that of its base.
        role: what kernels may do: read (`in`), write (`out`), both (`inout`), or use as scratch.
        strides: in elements, not negative; absent: row-major without gaps.
        offset: elements (of this dtype) between the start of the storage and the first element.
        init: how it is filled; absent where a `Computed` returns it, or where nothing is promised.
        reset: `restore` gives the initial contents back before every call, `none` does not. `None`
            stands for `restore` where kernels write a tensor that has initial contents.
        view: name of the tensor whose memory this one shows, with `permute` alone or with `dtype`,
            `shape`, `strides` and `offset` counted from the first element of that tensor.
        permute: order of the base's dimensions.
        memory: `symmetric` can be reached by the other ranks.
        replicated: all ranks draw the same contents.
        temporary: used by `Computed` functions only: lies outside the arena and is freed after them.
    """

    name: str
    _: KW_ONLY
    shape: tuple[int, ...] | None = None
    dtype: torch.dtype | None = None
    role: Literal["in", "out", "inout", "scratch"] = "in"
    strides: tuple[int, ...] | None = None
    offset: int = 0
    init: Init | None = None
    reset: Literal["restore", "none"] | None = None
    view: str | None = None
    permute: tuple[int, ...] | None = None
    memory: Literal["device", "symmetric"] = "device"
    replicated: bool = False
    temporary: bool = False


@dataclass(frozen=True, slots=True)
class Computed:
    """An `[[init]]`: a function computes tensors from tensors that are filled already.

    Args:
        returns: names of the tensors that the returned value, or values, are copied into.
        function: called once; what it returns must have the shapes and dtypes of `returns`.
        args: its parameters are names of tensors; it returns the positional arguments of `function`
            as a tuple, or the named ones as a dict.
    """

    returns: tuple[str, ...]
    function: Callable[..., object]
    args: Callable[..., tuple[object, ...] | dict[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The memory of one base tensor: what a layout needs to know, in elements of `dtype`."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def numel(self) -> int:
        """Elements from the start of the storage to behind the last one."""
        return extent(self.shape, self.strides, self.offset)

    @property
    def nbytes(self) -> int:
        """The same in bytes."""
        return self.numel * int(self.dtype.itemsize)

    def over(self, memory: torch.Tensor) -> torch.Tensor:
        """The tensor that this storage is when it begins at the first of `memory`'s bytes."""
        flat = memory[: self.nbytes].view(self.dtype)
        return flat.as_strided(self.shape, self.strides, flat.storage_offset() + self.offset)


def storage(spec: Tensor) -> Storage:
    """The memory that a base tensor needs.

    Raises:
        TensorError: shape or dtype is missing, or shape, strides and offset contradict one another.
    """
    if spec.shape is None or spec.dtype is None:
        raise TensorError(f"{spec.name}: only a view may leave out shape or dtype")
    if spec.permute is not None:
        raise TensorError(f"{spec.name}: only a view can be permuted")
    strides = contiguous_strides(spec.shape) if spec.strides is None else spec.strides
    if len(strides) != len(spec.shape):
        raise TensorError(
            f"{spec.name}: {len(spec.shape)} dimension(s) and {len(strides)} stride(s)"
        )
    if min((*spec.shape, *strides, spec.offset), default=0) < 0:
        raise TensorError(f"{spec.name}: a size, a stride or the offset is negative")
    return Storage(
        dtype=spec.dtype, shape=tuple(spec.shape), strides=tuple(strides), offset=spec.offset
    )


def base_of(specs: Mapping[str, Tensor], name: str) -> str:
    """The tensor whose memory `name` shows: itself unless it is a view.

    Raises:
        TensorError: a view shows an unknown tensor, or itself.
    """
    seen = [name]
    while (view := specs[seen[-1]].view) is not None:
        if view not in specs:
            raise TensorError(f"{seen[-1]}: is a view of {view}, which does not exist")
        if view in seen:
            raise TensorError(f"views show one another: {' of '.join([*seen, view])}")
        seen.append(view)
    return seen[-1]


def by_name(specs: Iterable[Tensor]) -> dict[str, Tensor]:
    """The tensors by name.

    Raises:
        TensorError: two have the same name.
    """
    found: dict[str, Tensor] = {}
    for spec in specs:
        if spec.name in found:
            raise TensorError(f"{spec.name}: two tensors have this name")
        found[spec.name] = spec
    return found


def views(
    specs: Mapping[str, Tensor], bases: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """All tensors by name, in definition order: the bases as given, the views made from them.

    Views of a base that is not given are left out.
    """
    made = dict(bases)

    def make(name: str) -> torch.Tensor:
        spec = specs[name]
        if name not in made and spec.view is not None:
            made[name] = _view(spec, make(spec.view))
        return made[name]

    return {name: make(name) for name in specs if base_of(specs, name) in bases}


def collapsed(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with every repeated dimension (stride 0) cut to one element, so that it can be written."""
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The elements as integers of the same width: what can be compared whatever the dtype."""
    return tensor.view(INTEGERS[tensor.dtype.itemsize])


def _view(spec: Tensor, parent: torch.Tensor) -> torch.Tensor:
    """The view of `parent` that `spec` describes."""
    if spec.permute is not None:
        if sorted(spec.permute) != list(range(parent.dim())):
            raise TensorError(
                f"{spec.name}: permute {list(spec.permute)} is no order of the "
                f"{parent.dim()} dimension(s) of {spec.view}"
            )
        return parent.permute(spec.permute)
    dtype = parent.dtype if spec.dtype is None else spec.dtype
    if spec.shape is None and spec.strides is None and not spec.offset:
        return parent.view(dtype)
    shape = tuple(parent.shape) if spec.shape is None else spec.shape
    wanted = storage(
        Tensor(spec.name, shape=shape, dtype=dtype, strides=spec.strides, offset=spec.offset)
    )
    memory = parent.as_strided((extent(parent.shape, parent.stride()),), (1,)).view(torch.uint8)
    if wanted.nbytes > memory.numel():
        raise TensorError(
            f"{spec.name}: reaches to byte {wanted.nbytes} of {spec.view}, which has {memory.numel()}"
        )
    if (memory.storage_offset() * memory.itemsize) % dtype.itemsize:
        raise TensorError(
            f"{spec.name}: {spec.view} does not begin at a multiple of {dtype.itemsize} bytes"
        )
    return wanted.over(memory)
