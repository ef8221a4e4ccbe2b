"""`kind = "call"`: `target(*args)` each time, as written or through `torch.compile`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tirbench.launch.emit import Source, emit, emit_arguments, literal
from tirbench.launch.kind import Kind, Option, Syntax
from tirbench.model import BoundLaunch

if TYPE_CHECKING:
    from collections.abc import Callable


def options(launch: BoundLaunch) -> Mapping[str, Source]:
    """`compile` as a literal; of `grad`, the tensors to differentiate by and the seed."""
    given = dict(launch.options)
    grad: dict[str, Any] = dict(given.get("grad") or ())  # type: ignore[arg-type]
    of = grad.get("of", ())
    names = [item if isinstance(item, str) else emit(item) for item in of]
    seed = grad.get("seed")
    return {
        "compile": literal(given["compile"]) if given.get("compile") is not None else Source(""),
        "of": Source(f"({', '.join(names)},)" if names else ""),
        "seed": Source(seed) if isinstance(seed, str) else emit(seed),
    }


SYNTAX: Final = Syntax(options={"compile": Option(form="text"), "grad": Option(form="grad")})

INDUCTOR: Final = ("torch._dynamo", "torch._inductor.compile_fx", "torch._inductor.async_compile")
"""What torch.compile imports on its first use: 2.6 s in every worker, against 1.7 s once."""

KIND = Kind(
    name="call",
    template="launch/call.py.jinja",
    arguments=lambda launch: emit_arguments(launch.args),
    options=options,
    syntax=SYNTAX,
    imports=lambda launch: INDUCTOR if dict(launch.options).get("compile") is not None else (),
)


def compiled(function: Callable[..., Any], mode: str) -> Callable[..., Any]:
    """`function` through `torch.compile`.

    `dynamic=False`: dynamo would go dynamic at the second shape, and to eager at the ninth, which the
    driver's reset at each case prevents. `fullgraph` makes a graph break an error instead of a slow
    reference.
    """
    import torch

    return torch.compile(function, mode=mode, dynamic=False, fullgraph=True)  # type: ignore[no-any-return]


def backward(
    function: Callable[..., Any], of: tuple[Any, ...], seed: Any
) -> Callable[..., Callable[[], tuple[Any, ...]]]:
    """The backward pass of `function` alone.

    Args:
        function: differentiable; run forward once, when the result is called with its arguments.
        of: tensors among the arguments whose gradients are asked for, in this order. They are replaced
            by leaves that share their memory.
        seed: gradient of the output, of the output's shape; `None` for ones.

    Returns:
        A function of the arguments that returns the launch closure; that returns the gradients.
    """
    import torch

    def bind(*args: Any, **named: Any) -> Callable[[], tuple[Any, ...]]:
        # `.data` and not `.detach()`: all tensors of a case are views of one arena, and with it share
        # the counter by which autograd sees that what it saved was overwritten. Outputs are, each call.
        leaves = {id(tensor): tensor.data.requires_grad_() for tensor in of}

        def leaf(value: Any) -> Any:
            if isinstance(value, list):
                return [leaf(item) for item in value]
            if not isinstance(value, torch.Tensor):
                return value
            return leaves.get(id(value), value.data)

        output = function(*map(leaf, args), **{name: leaf(value) for name, value in named.items()})
        gradient = torch.ones_like(output) if seed is None else seed

        def launch() -> tuple[Any, ...]:
            wrt = tuple(leaves.values())
            found: tuple[Any, ...] = torch.autograd.grad(output, wrt, gradient, retain_graph=True)
            return found

        return launch

    return bind
