"""The tensors of a case: where they lie, what is in them, and what no kernel may write.

`Tensors.allocate` lays all tensors of a case out in one `Arena` at places drawn from the placement
seed, fills them from the workload's seed, and guards what lies around and between them.
"""

from tirbench.tensors.allocation import Tensors
from tirbench.tensors.arena import Arena, home
from tirbench.tensors.checksum import checksum
from tirbench.tensors.contents import filled_by
from tirbench.tensors.errors import OutOfMemory, TensorError
from tirbench.tensors.init import (
    Init,
    arange,
    cu_seqlens,
    file,
    full,
    lengths,
    normal,
    ones,
    page_table,
    permutation,
    randint,
    uniform,
    values,
    zeros,
)
from tirbench.tensors.memory import required_bytes
from tirbench.tensors.poison import poison_allocator
from tirbench.tensors.spec import Computed, Tensor

__all__ = [
    "Arena",
    "Computed",
    "Init",
    "OutOfMemory",
    "Tensor",
    "TensorError",
    "Tensors",
    "arange",
    "checksum",
    "cu_seqlens",
    "file",
    "filled_by",
    "full",
    "home",
    "lengths",
    "normal",
    "ones",
    "page_table",
    "permutation",
    "poison_allocator",
    "randint",
    "required_bytes",
    "uniform",
    "values",
    "zeros",
]
