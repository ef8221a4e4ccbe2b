"""Run the Triton kernels of the suite in Triton's interpreter and print each one's error as JSON.

A program of its own, and not a test: `triton.language` decides when it is imported whether its own
functions are interpreted, so the environment variable must be set before, in a fresh process.
Shapes are chosen to hurt: odd row counts, columns and sequences that no block divides.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch

from tests.workloads.kernel_files import load

Launch = tuple[Callable[[], object], dict[str, torch.Tensor], dict[str, torch.Tensor]]


def main() -> None:
    """Print `{"name shape": error as a share of the limit}`, the limit being LANGUAGE's default."""
    warnings.simplefilter("error")
    torch.manual_seed(0)
    runs = (
        vector_add,
        rmsnorm,
        fused_add_rmsnorm,
        softmax,
        layernorm,
        silu_and_mul,
        rope,
        cross_entropy,
        matmul,
        attention,
    )
    errors = {}
    for run in runs:
        for label, (launch, got, want) in run():
            launch()
            for name, tensor in got.items():
                errors[f"{label}: {name}"] = share_of_limit(tensor, want[name])
    json.dump(errors, sys.stdout)


def share_of_limit(got: torch.Tensor, want: torch.Tensor) -> float:
    """Largest error over rtol · (|want| + rms(want)); NaN counts as infinite."""
    rtol = {torch.float32: 1e-5, torch.float16: 1e-3}[got.dtype]
    limit = rtol * (want.abs() + want.square().mean().sqrt())
    share = ((got.double() - want).abs() / limit).max()
    return float("inf") if share.isnan() else float(share)


def half(*shape: int, mean: float = 0.0) -> torch.Tensor:
    """Normal float16: bfloat16 is garbage in the interpreter."""
    return (torch.randn(*shape) + mean).half()


def blank(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    """NaN, which a kernel that skips an element leaves behind."""
    return torch.full(shape, float("nan"), dtype=dtype)


def up(value: int, unit: int) -> int:
    """`value` over `unit`, rounded up."""
    return -(-value // unit)


def vector_add() -> Iterator[tuple[str, Launch]]:
    """A size of whole blocks, and one that ends within a block."""
    module = load("vector_add")
    for n in (2048, 5001):
        x, y = torch.randn(n), torch.randn(n)
        z = blank(n, dtype=torch.float32)

        def launch(x: Any = x, y: Any = y, z: Any = z, n: int = n) -> None:
            module.vector_add_kernel[(up(n, 1024),)](x, y, z, n, BLOCK=1024)

        yield f"vector_add {n}", (launch, {"z": z}, {"z": x.double() + y.double()})


def rmsnorm() -> Iterator[tuple[str, Launch]]:
    """One row per program, and four, the last program owning one."""
    module = load("rmsnorm")
    for rows, hidden, per_program in ((3, 512, 1), (5, 200, 4)):
        x, w, y = half(rows, hidden), half(hidden), blank(rows, hidden)

        def launch(x: Any = x, w: Any = w, y: Any = y, per_program: int = per_program) -> None:
            grid = (up(x.shape[0], per_program),)
            module.rmsnorm_kernel[grid](
                x, w, y, *x.shape, 1e-6, ROWS=per_program, BLOCK=1 << (x.shape[1] - 1).bit_length()
            )

        want = module.rmsnorm_torch(x.double(), w.double(), 1e-6)
        yield f"rmsnorm {rows}x{hidden}", (launch, {"y": y}, {"y": want})


def fused_add_rmsnorm() -> Iterator[tuple[str, Launch]]:
    """Both tensors change in place, so the oracle runs first."""
    module = load("fused_add_rmsnorm")
    for rows, hidden in ((2, 256), (3, 200)):
        x, r, w = half(rows, hidden), half(rows, hidden), half(hidden)
        new_x, new_r = module.fused_add_rmsnorm_torch(x.double(), r.double(), w.double(), 1e-6)

        def launch(x: Any = x, r: Any = r, w: Any = w) -> None:
            module.fused_add_rmsnorm_kernel[(x.shape[0],)](x, r, w, x.shape[1], 1e-6, BLOCK=256)

        yield (
            f"fused_add_rmsnorm {rows}x{hidden}",
            (launch, {"x": x, "r": r}, {"x": new_x, "r": new_r}),
        )


def softmax() -> Iterator[tuple[str, Launch]]:
    """Both kernels; also with scores so large that exp without the maximum would overflow."""
    module = load("softmax")
    for rows, cols, mean in ((2, 256, 0.0), (5, 200, 0.0), (3, 100, 1000.0)):
        x, y, online = half(rows, cols, mean=mean), blank(rows, cols), blank(rows, cols)
        want = {"y": torch.softmax(x.double(), -1)}

        def launch(x: Any = x, y: Any = y) -> None:
            module.softmax_kernel[(up(x.shape[0], 4),)](x, y, *x.shape, ROWS=4, BLOCK=256)

        def launch_online(x: Any = x, y: Any = online) -> None:
            module.softmax_online_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=64)

        yield f"softmax {rows}x{cols} {mean}", (launch, {"y": y}, want)
        yield f"softmax_online {rows}x{cols} {mean}", (launch_online, {"y": online}, want)


def layernorm() -> Iterator[tuple[str, Launch]]:
    """Also far off centre, where mean(x²) - mean(x)² would cancel."""
    module = load("layernorm")
    for rows, hidden, mean in ((3, 256, 0.0), (5, 200, 50.0)):
        x, w, b = half(rows, hidden, mean=mean), half(hidden), half(hidden)
        y = blank(rows, hidden)

        def launch(x: Any = x, w: Any = w, b: Any = b, y: Any = y) -> None:
            grid = (up(x.shape[0], 2),)
            module.layernorm_kernel[grid](x, w, b, y, *x.shape, 1e-5, ROWS=2, BLOCK=256)

        want = module.layernorm_torch(x.double(), w.double(), b.double(), 1e-5)
        yield f"layernorm {rows}x{hidden} {mean}", (launch, {"y": y}, {"y": want})


def silu_and_mul() -> Iterator[tuple[str, Launch]]:
    """Several blocks per row, the last one masked."""
    module = load("silu_and_mul")
    for rows, width in ((2, 256), (5, 200)):
        x, y = half(rows, 2 * width), blank(rows, width)

        def launch(x: Any = x, y: Any = y, rows: int = rows, width: int = width) -> None:
            module.silu_and_mul_kernel[(rows * up(width, 128),)](x, y, width, BLOCK=128)

        want = module.silu_and_mul_torch(x.double())
        yield f"silu_and_mul {rows}x{width}", (launch, {"y": y}, {"y": want})


def rope() -> Iterator[tuple[str, Launch]]:
    """Both tensors change in place, so the oracle runs first; the heads fill no block."""
    module = load("rope")
    table = module.make_cos_sin(64, 32, 1e4)
    for tokens, heads, kv_heads in ((3, 4, 4), (5, 6, 3)):
        q, k = half(tokens, heads, 32), half(tokens, kv_heads, 32)
        positions = torch.randint(64, (tokens,))
        new_q, new_k = module.rope_torch(q.double(), k.double(), positions, table.double())

        def launch(q: Any = q, k: Any = k, positions: Any = positions) -> None:
            module.rope_kernel[(q.shape[0],)](
                q, k, positions, table, q.shape[1], k.shape[1], HEADS=8, KV_HEADS=4, DIM=32
            )

        label = f"rope {tokens}x{heads}+{kv_heads}"
        yield label, (launch, {"q": q, "k": k}, {"q": new_q, "k": new_k})


def cross_entropy() -> Iterator[tuple[str, Launch]]:
    """Also with logits so large that exp without the maximum would overflow."""
    module = load("cross_entropy")
    for rows, vocab, mean in ((2, 256, 0.0), (3, 300, 0.0), (2, 100, 1000.0)):
        logits, target = half(rows, vocab, mean=mean), torch.randint(vocab, (rows,))
        loss = blank(rows, dtype=torch.float32)

        def launch(logits: Any = logits, target: Any = target, loss: Any = loss) -> None:
            grid = (logits.shape[0],)
            module.cross_entropy_kernel[grid](logits, target, loss, logits.shape[1], BLOCK=128)

        want = module.cross_entropy_torch(logits.double(), target)
        yield f"cross_entropy {rows}x{vocab} {mean}", (launch, {"loss": loss}, {"loss": want})


def matmul() -> Iterator[tuple[str, Launch]]:
    """Both kernels; whole tiles, and tiles cut off in m, n and k with a short last group."""
    module = load("matmul")
    for m, n, k in ((128, 64, 64), (200, 136, 72)):
        a, b = half(m, k), half(k, n)
        want = {"c": a.double() @ b.double()}
        c = blank(m, n)

        def launch(a: Any = a, b: Any = b, c: Any = c) -> None:
            (m, k), n = a.shape, b.shape[1]
            module.matmul_kernel[(up(m, 64) * up(n, 64),)](
                a, b, c, m, n, k, k, n, n,
                BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, GROUP_M=3, EVEN_K=k % 32 == 0,
            )  # fmt: skip

        yield f"matmul {m}x{n}x{k}", (launch, {"c": c}, want)
        c = blank(m, n)
        build = module.build_matmul_tma(a, b, c, 64, 64, 32, 3, 4, 3, sm_count=3)
        yield f"matmul_tma {m}x{n}x{k}", (build, {"c": c}, want)


def attention() -> Iterator[tuple[str, Launch]]:
    """Grouped and equal heads, two batches; sequences that end within a block.

    The weights are rounded to float16 before they meet v; with queries of standard deviation 1/4
    they are small enough for the default tolerance.
    """
    module = load("flash_attention")
    for batch, heads, kv_heads, seq, dim in ((1, 2, 2, 128, 32), (2, 4, 2, 90, 64)):
        q = (half(batch, heads, seq, dim) / 4).half()
        k, v = half(batch, kv_heads, seq, dim), half(batch, kv_heads, seq, dim, mean=1.0)
        o, lse = blank(*q.shape), blank(batch, heads, seq, dtype=torch.float32)

        def launch(q: Any = q, k: Any = k, v: Any = v, o: Any = o, lse: Any = lse) -> None:
            batch, heads, seq, dim = q.shape
            module.attention_kernel[(up(seq, 64), batch * heads)](
                q, k, v, o, lse, heads, k.shape[1], seq, dim**-0.5,
                DIM=dim, BLOCK_M=64, BLOCK_N=32,
            )  # fmt: skip

        wide = (q.double(), k.double(), v.double())
        want_o, want_lse = module.attention_oracle(*wide, dim**-0.5)
        label = f"attention {batch}x{heads}/{kv_heads}x{seq}x{dim}"
        yield label, (launch, {"o": o, "lse": lse}, {"o": want_o, "lse": want_lse})


if __name__ == "__main__":
    main()
