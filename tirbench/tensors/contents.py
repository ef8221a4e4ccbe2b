"""Filling the tensors of a case: in the order in which they need one another."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tirbench.tensors import draw
from tirbench.tensors.errors import TensorError
from tirbench.tensors.fill import Source
from tirbench.tensors.spec import Computed, Tensor, base_of, collapsed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from tirbench.tensors.init import Init


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that writes contents: the initialiser of one tensor, or a function for several."""

    makes: tuple[str, ...]
    reads: tuple[str, ...]
    action: Tensor | Computed


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What the contents of a case depend on beside its tensors; the placement is not among it.

    Args:
        seed: the workload's seed.
        rank: of this process; tensors that are not replicated differ between ranks.
        folder: relative paths of `file()` begin here.
        chunk: elements drawn at once, `None` for what suits the device; contents do not depend on it.
    """

    seed: int
    rank: int = 0
    folder: Path = Path()
    chunk: int | None = None


def plan(specs: Mapping[str, Tensor], computed: Sequence[Computed]) -> tuple[Step, ...]:
    """All steps that fill these tensors, each behind those whose results it reads.

    A tensor is filled when every step that writes its memory is done, be it through a view.

    Raises:
        TensorError: a parameter or a returned value names no tensor, a tensor is filled twice, or
            tensors need one another; the message names them.
    """
    steps = [
        Step(makes=(spec.name,), reads=_reads(spec.init), action=spec)
        for spec in specs.values()
        if spec.init is not None
    ]
    steps += [Step(makes=one.returns, reads=_parameters(one.args), action=one) for one in computed]
    made: set[str] = set()
    for step in steps:
        for name in (*step.makes, *step.reads):
            if name not in specs:
                raise TensorError(f"{' and '.join(step.makes)}: there is no tensor {name}")
        for name in step.makes:
            if name in made:
                raise TensorError(
                    f"{name}: is filled twice; it has an init or is computed, not both"
                )
            made.add(name)
    return _ordered(specs, steps)


def needed(specs: Mapping[str, Tensor], steps: Sequence[Step], name: str) -> tuple[Step, ...]:
    """Those of the ordered steps that `name`, and what they read, depend on."""
    bases = {base_of(specs, name)}
    chosen: list[Step] = []
    for step in reversed(steps):
        if bases & {base_of(specs, made) for made in step.makes}:
            chosen.append(step)
            bases |= {base_of(specs, read) for read in step.reads}
            bases |= {base_of(specs, made) for made in step.makes}
    return tuple(reversed(chosen))


def run(steps: Iterable[Step], tensors: Mapping[str, torch.Tensor], how: Draw) -> None:
    """Carry out ordered steps on the given tensors."""
    for step in steps:
        if isinstance(step.action, Computed):
            _compute(step.action, tensors, how)
        else:
            _initialise(step.action, tensors, how)


def filled_by(trace: TracebackType | None) -> Tensor | Computed | None:
    """What was filling tensors when an error was raised: a tensor's init or a function for several."""
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code is _initialise.__code__:
            spec: Tensor = frame.f_locals["spec"]
            return spec
        if frame.f_code is _compute.__code__:
            one: Computed = frame.f_locals["one"]
            return one
        trace = trace.tb_next
    return None


def _initialise(spec: Tensor, tensors: Mapping[str, torch.Tensor], how: Draw) -> None:
    """Let the tensor's initialiser write it."""
    if spec.init is None:
        return
    source = Source(
        name=spec.name,
        key=draw.key(how.seed, spec.name, None if spec.replicated else how.rank),
        folder=how.folder,
        chunk=how.chunk,
    )
    parameters = {
        name: _value(parameter, tensors) for name, parameter in spec.init.parameters.items()
    }
    spec.init.fill(collapsed(tensors[spec.name]), source, **parameters)


def _compute(one: Computed, tensors: Mapping[str, torch.Tensor], how: Draw) -> None:
    """Call the function and copy what it returns, its shape and dtype asserted."""
    function = getattr(one.function, "__name__", repr(one.function))
    arguments = _value(one.args, tensors)
    device = tensors[one.returns[0]].device
    # A function that draws from torch's generators draws the same for every placement.
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(draw.key(how.seed, one.returns[0], how.rank) >> 1)
        if isinstance(arguments, dict):
            result: Any = one.function(**arguments)
        else:
            result = one.function(*arguments)
    results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    if len(results) != len(one.returns):
        raise TensorError(
            f"{function} returned {len(results)} value(s) for {', '.join(one.returns)}"
        )
    for name, value in zip(one.returns, results, strict=True):
        target = tensors[name]
        if not isinstance(value, torch.Tensor):
            raise TensorError(f"{name}: {function} returned a {type(value).__name__}, not a tensor")
        if value.shape != target.shape or value.dtype != target.dtype:
            raise TensorError(
                f"{name}: {function} returned {_described(value)}, wanted {_described(target)}"
            )
        if collapsed(target).shape != target.shape:
            raise TensorError(f"{name}: {function} cannot fill a view that repeats elements")
        target.copy_(value)


def _ordered(specs: Mapping[str, Tensor], steps: list[Step]) -> tuple[Step, ...]:
    """Stable topological order: of the steps that can run, the first as written comes next."""
    writers: dict[str, list[Step]] = {}
    for step in steps:
        for made in step.makes:
            writers.setdefault(base_of(specs, made), []).append(step)

    def before(step: Step) -> list[Step]:
        """The steps that `step` waits for."""
        waits = [one for read in step.reads for one in writers.get(base_of(specs, read), [])]
        for made in step.makes:  # what writes a view comes behind what fills the whole
            base = base_of(specs, made)
            waits += [one for one in writers[base] if made != base and base in one.makes]
        return waits

    todo, done = list(steps), list[Step]()
    while todo:
        ready = next((step for step in todo if all(one in done for one in before(step))), None)
        if ready is None:
            raise TensorError(f"tensors need one another: {_cycle(todo, before)}")
        todo.remove(ready)
        done.append(ready)
    return tuple(done)


def _cycle(todo: list[Step], before: Callable[[Step], list[Step]]) -> str:
    """The names along one cycle among steps that all wait: `a needs b needs a`."""
    path = [todo[0]]
    while True:
        following = next(one for one in before(path[-1]) if one in todo)
        if following in path:
            cycle = [*path[path.index(following) :], following]
            return " needs ".join(" and ".join(step.makes) for step in cycle)
        path.append(following)


def _reads(init: Init) -> tuple[str, ...]:
    """The tensors that an initialiser's parameters read."""
    callables = [one for one in init.parameters.values() if callable(one)]
    return tuple(name for one in callables for name in _parameters(one))


def _parameters(function: Callable[..., object]) -> tuple[str, ...]:
    """Names of the parameters without a default: these are tensors."""
    return tuple(
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is inspect.Parameter.empty
    )


def _value(parameter: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """A parameter's value; one tensor with one element is the number in it."""
    if not callable(parameter):
        return parameter
    found = parameter(*(tensors[name] for name in _parameters(parameter)))
    return found.item() if isinstance(found, torch.Tensor) and found.dim() == 0 else found


def _described(tensor: torch.Tensor) -> str:
    return f"{list(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"
