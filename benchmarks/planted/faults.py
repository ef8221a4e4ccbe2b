"""A kernel that doubles, and faults that kernels under development have."""

import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, offsets < n)
    tl.store(y_ptr + offsets, x * 2, offsets < n)


@triton.jit
def write_far_away(y_ptr):
    tl.store(y_ptr + (1 << 44), 1.0)


def planted(x, y, fault):
    """Double `x` into `y`, unless a fault is asked for.

    Args:
        x: (n,) float32.
        y: (n,) float32.
        fault: what goes wrong.
    """
    match fault:
        case "illegal_address":
            write_far_away[(1,)](y)
        case "device_assert":
            y.index_fill_(0, torch.tensor([y.numel()], device=y.device), 0.0)
            y[torch.tensor([y.numel()], device=y.device)] = 0.0
        case "endless":
            for _ in range(1 << 10):
                torch.cuda._sleep(1 << 40)  # noqa: SLF001 - minutes of a busy multiprocessor
        case "out_of_memory":
            torch.empty(1 << 50, dtype=torch.uint8, device=y.device)
        case _:
            torch.mul(x, 2, out=y)


def doubled(x):
    return x * 2
