"""Bind the tensors that a case uses, and hold each against its base, its memory and its initialiser."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Final

from tirbench.expand.binder import tensors_in, whole_numbers
from tirbench.expand.inits import bind_init
from tirbench.expand.order import names_in
from tirbench.expression import (
    CONSTANTS,
    INT_LIMIT,
    Expression,
    Layout,
    is_value,
    site,
    strides_of,
)
from tirbench.model import BoundTensor
from tirbench.values import Bound, Dtype, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tirbench.expand.binder import Binder
    from tirbench.expression import Scope
    from tirbench.model import Path, Tensor, Workload

_UNKNOWN: Final = Layout(dtype=Dtype("uint8"), shape=())
"""Stands for the layout of a tensor that has none; its problem is already noted."""


class Memo:
    """What earlier cases of a workload found out about its tensors.

    A tensor depends on the case only through the names that it and its base read. Cases of a cross
    product mostly share them, and then share the bound tensor.
    """

    def __init__(self, workload: Workload) -> None:
        self.tensors = {tensor.name: tensor for tensor in workload.tensors}
        self.computed = frozenset(name for init in workload.inits for name in init.returns)
        self.layouts: dict[tuple[object, ...], Layout] = {}
        self.bound: dict[tuple[object, ...], BoundTensor] = {}
        self._reads = {name: self._names(tensor) for name, tensor in self.tensors.items()}

    def key(self, name: str, scope: Scope) -> tuple[object, ...] | None:
        """What a tensor depends on in a case; `None` where that is not all values of the case."""
        reads = self._reads[name]
        return None if reads is None else scope.key((name,), reads)

    def _names(self, tensor: Tensor) -> tuple[str, ...] | None:
        """The names that a tensor reads; `None` where the layout of another tensor is among them."""
        reads: set[str] = set()
        seen: set[str] = set()
        while tensor.name not in seen:
            seen.add(tensor.name)
            written = (tensor.dtype, tensor.shape, tensor.strides, tensor.permute, tensor.offset)
            reads.update(name for argument in written for name in names_in(argument))
            for _, argument in tensor.init.parameters if tensor.init else ():
                bare = isinstance(argument, Expression) and argument.text in self.tensors
                reads.update(() if bare else names_in(argument))
            tensor = self.tensors.get(tensor.view or "", tensor)
        known = reads - CONSTANTS.keys()
        return None if known & self.tensors.keys() else tuple(sorted(known))


class Layouts(Mapping[str, Layout]):
    """The layouts of a case's tensors, each computed when an expression first asks for it.

    An optional tensor that a case does not use may have a shape that cannot be; nobody asks.
    """

    def __init__(self, memo: Memo, binder: Binder) -> None:
        self.tensors = memo.tensors
        self.memo = memo
        self.binder = binder
        self._known: dict[str, Layout] = {}
        self._open: set[str] = set()
        self.untyped: set[str] = set()
        """Tensors whose dtype could not be known, which is already noted."""

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __getitem__(self, name: str) -> Layout:
        layout = self._known.get(name)
        if layout is None:
            tensor = self.tensors[name]
            if name in self._open:
                self.note_cycle(tensor)
                return _UNKNOWN
            key = self.memo.key(name, self.binder.scope)
            layout = self.memo.layouts.get(key) if key else None
            if layout is None:
                self._open.add(name)
                layout = self.compute(tensor)
                self._open.discard(name)
                if key and not self.binder.failed:
                    self.memo.layouts[key] = layout
            self._known[name] = layout
        return layout

    def bound(self, name: str) -> BoundTensor:
        """The tensor bound, as it was in an earlier case with the same values if there was one."""
        key = self.memo.key(name, self.binder.scope)
        known = self.memo.bound.get(key) if key else None
        if known is not None:
            return known
        tensor = bind_tensor(self.tensors[name], self, self.memo.computed)
        if key and not self.binder.failed:
            self.memo.bound[key] = tensor
        return tensor

    def note_cycle(self, tensor: Tensor) -> None:
        """Note that a layout depends on itself."""
        message = f"the shape of '{tensor.name}' depends on itself"
        self.binder.note("TB025", self.origin(tensor, "shape"), message)

    def origin(self, tensor: Tensor, key: str) -> Path:
        """Where a shape, strides or a dtype is written: with `like` where it was copied from there."""
        seen = {tensor.name}
        while tensor.like in self.tensors and tensor.like not in seen:
            source = self.tensors[tensor.like]
            if getattr(source, key) != getattr(tensor, key):
                break
            seen.add(source.name)
            tensor = source
        return (*tensor.path, key)

    def compute(self, tensor: Tensor) -> Layout:
        """The layout of one tensor; `_UNKNOWN` parts where something is wrong and noted."""
        binder = self.binder
        base = self[tensor.view] if tensor.view is not None else None
        dtype = self.dtype(tensor, base)
        if base is not None and tensor.permute is not None:
            return self.permuted(tensor, base)
        if tensor.shape is None:
            if base is None or base.dtype.itemsize != dtype.itemsize:
                message = f"'{tensor.name}' has no shape"
                binder.note("TB041", tensor.path, message)
                return Layout(dtype=dtype, shape=())
            return Layout(dtype=dtype, shape=base.shape, strides=self.strides(tensor, base.strides))
        latest = Phase.DEVICE if tensor.role == "scratch" else Phase.CASE
        where = site("a shape", latest)
        path = self.origin(tensor, "shape")
        shape = tuple(
            1 if size is None else size
            for i, argument in enumerate(tensor.shape)
            for size in [binder.integer(argument, (*path, i), where, least=1, what="a size")]
        )
        return Layout(dtype=dtype, shape=shape, strides=self.strides(tensor, None))

    def dtype(self, tensor: Tensor, base: Layout | None) -> Dtype:
        """The element type: as written, or of the base of a view."""
        if tensor.dtype is None:
            return base.dtype if base is not None else _UNKNOWN.dtype
        dtype = self.binder.dtype(tensor.dtype, self.origin(tensor, "dtype"))
        if dtype is None:
            self.untyped.add(tensor.name)
        return dtype or _UNKNOWN.dtype

    def strides(
        self, tensor: Tensor, default: tuple[Bound, ...] | None
    ) -> tuple[Bound, ...] | None:
        """The strides as written, in elements."""
        if tensor.strides is None:
            return default
        latest = Phase.DEVICE if tensor.role == "scratch" else Phase.CASE
        where = site("a stride", latest)
        path = self.origin(tensor, "strides")
        if len(tensor.strides) != len(tensor.shape or tensor.strides):
            rank = len(tensor.shape or ())
            message = f"{len(tensor.strides)} strides for {rank} dimension{'s' * (rank != 1)}"
            self.binder.note("TB042", path, message)
            return default
        return tuple(
            0 if stride is None else stride
            for i, argument in enumerate(tensor.strides)
            for stride in [
                self.binder.integer(argument, (*path, i), where, least=0, what="a stride")
            ]
        )

    def permuted(self, tensor: Tensor, base: Layout) -> Layout:
        """The layout of a view with its dimensions in another order."""
        order = self.order(tensor, len(base.shape))
        strides = strides_of(base)
        return Layout(
            dtype=base.dtype,
            shape=tuple(base.shape[i] for i in order),
            strides=tuple(strides[i] for i in order),
        )

    def order(self, tensor: Tensor, rank: int) -> tuple[int, ...]:
        """The dimensions of the base in the order of the view; as they are where that is wrong."""
        path = (*tensor.path, "permute")
        where = site("a permutation", Phase.CASE)
        bound = self.binder.several(tensor.permute or (), path, where)
        order = tuple(whole_numbers(bound))
        if sorted(order) != list(range(rank)) or len(order) != len(bound):
            listed = ", ".join(map(str, range(rank)))
            message = (
                f"a permutation of the base's {rank} dimensions is needed: {listed} in any order"
            )
            self.binder.note("TB043", path, message)
            return tuple(range(rank))
        return order


def bind_tensor(tensor: Tensor, layouts: Layouts, computed: frozenset[str]) -> BoundTensor:
    """One tensor of the case, checked on its own and against its base.

    Args:
        tensor: as written.
        layouts: of all tensors of the case.
        computed: the tensors that an `[[init]]` returns.
    """
    binder = layouts.binder
    layout = layouts[tensor.name]
    latest = Phase.DEVICE if tensor.role == "scratch" else Phase.CASE
    offset: Bound = 0
    if tensor.offset is not None:
        path = (*tensor.path, "offset")
        where = site("an offset", latest)
        offset = binder.integer(tensor.offset, path, where, least=0, what="an offset")
    init = None if tensor.name in layouts.untyped else bind_init(tensor, layout, binder)
    inited = tensor.init is not None or tensor.name in computed
    restored = tensor.role == "inout" or (tensor.role == "scratch" and inited)
    permute = None
    if tensor.view is not None and tensor.permute is not None:
        permute = layouts.order(tensor, len(layouts[tensor.view].shape))
    bound = BoundTensor(
        name=tensor.name,
        path=tensor.path,
        role=tensor.role,
        dtype=layout.dtype,
        shape=layout.shape,
        strides=layout.strides,
        offset=offset or 0,
        init=init,
        reset=tensor.reset or ("restore" if restored and tensor.view is None else "none"),
        view=tensor.view,
        permute=permute,
        memory=tensor.memory,
        replicated=tensor.replicated,
    )
    _check_memory(bound, layouts)
    return bound


def _check_memory(tensor: BoundTensor, layouts: Layouts) -> None:
    """Hold a tensor's extent against its base, or against what memory can be."""
    binder = layouts.binder
    extent = span_bytes(Layout(dtype=tensor.dtype, shape=tensor.shape, strides=tensor.strides))
    if extent is None or not isinstance(tensor.offset, int):
        return
    end = tensor.offset * tensor.dtype.itemsize + extent
    if end >= INT_LIMIT:
        binder.note("TB042", (*tensor.path, "shape"), "the tensor has 2**63 bytes or more")
    if tensor.view is not None:
        room = span_bytes(layouts[tensor.view])
        if room is not None and end > room:
            message = f"the view ends at byte {end:,} of '{tensor.view}', which has {room:,} bytes"
            binder.note("TB043", tensor.path, message)
    elif tensor.strides is not None and _overlaps(tensor):
        message = "the strides let elements share memory; a view may do that, a tensor may not"
        binder.note("TB042", layouts.origin(layouts.tensors[tensor.name], "strides"), message)


def span_bytes(layout: Layout) -> int | None:
    """Bytes from the first element to the end of the last; `None` where the device decides."""
    if not is_value(layout.shape):
        return None
    if layout.strides is None:
        return prod(whole_numbers(layout.shape)) * layout.dtype.itemsize
    strides = layout.strides
    if not is_value(strides):
        return None
    pairs = zip(whole_numbers(layout.shape), whole_numbers(strides), strict=False)
    return (sum((size - 1) * stride for size, stride in pairs) + 1) * layout.dtype.itemsize


def _overlaps(tensor: BoundTensor) -> bool:
    """Whether two elements share memory, as far as sorting by stride can tell."""
    reach = 0
    pairs = zip(whole_numbers(tensor.strides or ()), whole_numbers(tensor.shape), strict=False)
    for stride, size in sorted(pairs):
        if size > 1:
            if stride <= reach:
                return True
            reach += (size - 1) * stride
    return False


def used_by(tensor: BoundTensor) -> dict[str, None]:
    """The tensors that a tensor itself needs: its base, and what its initialiser reads."""
    needed = tensors_in(*(value for _, value in tensor.init.parameters)) if tensor.init else {}
    if tensor.view is not None:
        needed[tensor.view] = None
    return needed
