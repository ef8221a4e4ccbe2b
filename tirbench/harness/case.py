"""One case of a harness on one placement: its tensors, builders, oracle and rules, as declared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tirbench.check import Rule
from tirbench.errors import UsageError
from tirbench.harness.declarations import Oracle, Requires, Work
from tirbench.harness.device import Device
from tirbench.launch import call, cuda, tirx, triton
from tirbench.launch.nvrtc import CudaSource, name_expression
from tirbench.launch.targets import load_target
from tirbench.tensors import Arena, Computed, Tensor, Tensors

if TYPE_CHECKING:
    from tirbench.model import CodeFacts, ImplementationRole

Launch = Callable[[], Any]
Builder = Callable[[], Launch]


@dataclass(slots=True)
class Declared:
    """One implementation as the harness declares it; the last five are learnt when it is built.

    `executables` are those of TIRx, `tuned` its Triton kernels with a tuner, `facts` what else can say
    which machine code is launched.
    """

    name: str
    role: ImplementationRole
    builder: Builder
    returns: tuple[str, ...]
    outputs: tuple[str, ...] | None
    requires: Requires
    unchecked: str | None
    looser: float = 1.0
    launches_triton: bool = False
    compiled_by_torch: bool = False
    executables: list[Any] = field(default_factory=list)
    tuned: list[Any] = field(default_factory=list)
    facts: list[Callable[[], CodeFacts | None]] = field(default_factory=list)


@dataclass(slots=True)
class Shared:
    """What the placements of one case share: memory, and what is compiled once.

    Compiled functions take other addresses without being compiled again. `chosen` are configurations of
    tuned kernels, by implementation, that an earlier run settled on.
    """

    arena: Arena
    compiled: dict[tuple[Callable[..., Any], str], Callable[..., Any]] = field(default_factory=dict)
    executables: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    tuned: dict[tuple[str, str], Any] = field(default_factory=dict)
    chosen: Mapping[str, str] = field(default_factory=dict)


class Case:
    """What the function of a case fills in: called once for each placement seed."""

    def __init__(
        self, *, name: str, folder: Path, device: Device, seed: int, placement: int, shared: Shared
    ) -> None:
        """Begin a case.

        Args:
            name: id of the case.
            folder: where the workload lies; file targets are relative to it.
            device: where its tensors live.
            seed: seed of the workload: of the tensors' contents.
            placement: placement seed k: of the tensors' addresses.
            shared: what the placements of the case have in common.
        """
        self.name = name
        self.device = device
        self.implementations: dict[str, Declared] = {}
        self.rules: tuple[Rule, ...] = ()
        self.declared_oracle: Oracle | None = None
        self.unchecked_reason: str | None = None
        self.declared_work = Work()
        self.declared_prepare: Builder | None = None
        self.symmetric = ""
        self.contexts = ExitStack()
        self._folder = folder
        self._seed = seed
        self._placement = placement
        self._shared = shared
        self._memory: Tensors | None = None
        self._building: Declared | None = None

    # --- What a harness declares

    def tensors(
        self, *specs: Tensor, computed: tuple[Computed, ...] = ()
    ) -> tuple[torch.Tensor, ...]:
        """Lay out and fill the tensors of the case; returns those that are not temporary, in order."""
        self.symmetric = ", ".join(
            f"{spec.name} {tuple(spec.shape or ())}" for spec in specs if spec.memory == "symmetric"
        )
        self._memory = Tensors.allocate(
            specs,
            computed,
            device=self.device.torch,
            seed=self._seed,
            placement=self._placement,
            rank=self.device.rank,
            arena=self._shared.arena,
            folder=self._folder,
        )
        return tuple(self._memory[spec.name] for spec in specs if not spec.temporary)

    def kernel(
        self,
        name: str,
        *,
        returns: tuple[str, ...] = (),
        requires: Requires | None = None,
        unchecked: str | None = None,
    ) -> Callable[[Builder], Builder]:
        """Declare a kernel of ours: the decorated function builds its launch closure."""
        return self._implementation(name, "kernel", returns, None, requires, unchecked)

    def reference(
        self,
        name: str,
        *,
        returns: tuple[str, ...] = (),
        outputs: tuple[str, ...] | None = None,
        requires: Requires | None = None,
        unchecked: str | None = None,
        looser: float = 1.0,
    ) -> Callable[[Builder], Builder]:
        """Declare a reference.

        Args:
            name: of the reference.
            returns: the tensors that what it returns is bound to.
            outputs: those it computes, where they are not all that is checked.
            requires: what the machine must have.
            unchecked: why its results are not compared.
            looser: what the tolerances of its outputs are multiplied by.
        """
        return self._implementation(
            name, "reference", returns, outputs, requires, unchecked, looser
        )

    def _implementation(
        self,
        name: str,
        role: ImplementationRole,
        returns: tuple[str, ...],
        outputs: tuple[str, ...] | None,
        requires: Requires | None,
        unchecked: str | None,
        looser: float = 1.0,
    ) -> Callable[[Builder], Builder]:
        def declare(builder: Builder) -> Builder:
            self.implementations[name] = Declared(
                name, role, builder, returns, outputs, requires or Requires(), unchecked, looser
            )
            return builder

        return declare

    def prepare(self, builder: Builder) -> Builder:
        """Declare what runs on each rank before every launch, untimed: the decorated function builds it."""
        self.declared_prepare = builder
        return builder

    def oracle(
        self, *, returns: tuple[str, ...], dtype: torch.dtype | None = None
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Declare what is right: the parameters of the decorated function name the tensors it reads."""

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            self.declared_oracle = Oracle(function, returns, dtype)
            return function

        return declare

    def check(self, *rules: Rule) -> None:
        """Declare how each output is compared."""
        self.rules = rules

    def unchecked(self, reason: str) -> None:
        """Declare that nothing is checked, and why."""
        self.unchecked_reason = reason

    def work(
        self,
        *,
        flops: float | Callable[[], Any] | None = None,
        bytes: float | Callable[[], Any] | None = None,  # noqa: A002 - the key of the language
        roof: str | None = None,
    ) -> None:
        """Declare the least work of the case."""
        self.declared_work = Work(flops, bytes, roof)

    # --- What builders use

    def load(self, target: str) -> Any:
        """The function that `target` names, beside the workload or in an installed package."""
        return load_target(self._folder, target)

    def triton(self, target: str) -> Any:
        """A Triton kernel, as it is launched on this machine; one that is tuned is tuned for this case."""
        building = self._building
        key = (building.name if building else "", target)
        if key not in self._shared.tuned:
            kernel = self.load(target)
            known = self._shared.chosen.get(key[0], "").split(triton.NEXT_KERNEL)
            index = len(building.tuned) if building else 0
            choice = known[index] if index < len(known) else None
            self._shared.tuned[key] = triton.prepared(kernel, choice)
        kernel = self._shared.tuned[key]
        if building is not None:
            building.launches_triton = True
            if triton.has_tuner(kernel) and all(kernel is not other for other in building.tuned):
                building.tuned.append(kernel)
        return kernel

    def cuda(
        self,
        target: str,
        *,
        template: tuple[Any, ...] = (),
        flags: tuple[str, ...] = (),
        include: tuple[str, ...] = (),
    ) -> cuda.CudaKernel:
        """A kernel of a `.cu` file, compiled for this device; `bind` makes the launch of it.

        Args:
            target: `kernels/rmsnorm.cu:rmsnorm`.
            template: its template arguments; a dtype stands for its C type.
            flags: of NVRTC.
            include: folders beside the workload that `#include` looks in.

        Raises:
            UsageError: this case runs on the CPU.
            CompileError: the file does not compile.
        """
        if self.device.arch is None:
            raise UsageError(f"{target} is a cuda kernel, which needs a CUDA device")
        file, _, name = target.rpartition(":")
        source = CudaSource(
            folder=self._folder,
            file=file,
            expression=name_expression(name, template),
            flags=flags,
            include=include,
        )
        return cuda.prepared(source, self.device.arch, self.device.torch.index, self.note_code)

    def note_code(self, facts: Callable[[], CodeFacts | None]) -> None:
        """Have the implementation that is being built say what machine code it launches.

        Args:
            facts: asked once, when the implementation has been verified.
        """
        if self._building is not None:
            self._building.facts.append(facts)

    def compile(self, function: Callable[..., Any], *, mode: str) -> Callable[..., Any]:
        """`function` through torch.compile; a function of a file is compiled once for all placements.

        A closure is another one at each placement, since it holds other tensors. Torch keys what it
        compiled by their common code and guards on shapes, so that this is no second compilation.
        """
        if self._building is not None:
            self._building.compiled_by_torch = True
        key = (function, mode)
        if key not in self._shared.compiled:
            self._shared.compiled[key] = call.compiled(function, mode)
        return self._shared.compiled[key]

    def backward(
        self,
        function: Callable[..., Any],
        *,
        of: tuple[torch.Tensor, ...],
        seed: torch.Tensor | None,
    ) -> Callable[..., Launch]:
        """The backward pass of `function` alone; called with its arguments, returns the launch."""
        return call.backward(function, of, seed)

    def tirx(self, target: str) -> Callable[..., Launch]:
        """A TIRx function; called with its arguments by name, compiles it and returns the launch."""
        function = self.load(target)

        def bind(**arguments: Any) -> Launch:
            concrete, passed = tirx.specialized(function, arguments, target)
            # Keyed by identity and kept alive beside it: TIRx returns one object for equal constants.
            built = self._shared.executables.get(id(concrete))
            if built is None:
                built = (concrete, *tirx.compiled(concrete, self.device.arch))
                self._shared.executables[id(concrete)] = built
            _, executable, entry = built
            if self._building is not None:
                self._building.executables.append(executable)
            return lambda: entry(*passed)

        return bind

    def enter(self, context: AbstractContextManager[Any]) -> None:
        """Enter a context that stays open while the implementation is verified and timed."""
        self.contexts.enter_context(context)

    # --- What the driver reads

    @property
    def shared(self) -> Shared:
        """What it has in common with its other placements."""
        return self._shared

    @property
    def memory(self) -> Tensors:
        """The tensors of the case.

        Raises:
            UsageError: the harness declared none.
        """
        if self._memory is None:
            raise UsageError(f"case {self.name} declares no tensors")
        return self._memory

    def build(self, declared: Declared) -> Launch:
        """Build one implementation; what it loads on the way is noted on it."""
        self._building = declared
        try:
            launch = declared.builder()
            if callable(launch) and any(map(triton.is_tuned, declared.tuned)):
                if self.device.world_size > 1:
                    raise UsageError(
                        "a tuner launches another number of times on each rank, which then wait for "
                        "each other for ever: give the kernel one configuration"
                    )
                self.tune(launch)
            return launch
        finally:
            self._building = None

    def tune(self, launch: Launch) -> None:
        """Launch once, for the tuners in it to choose before anything is verified or timed.

        A tuner launches every configuration many times, over tensors that it does not put back. On later
        placements the choice is known, and the one launch shows it.
        """
        self.reset()
        launch()
        self.device.synchronize()
        self.memory.restore()

    @cached_property
    def preparation(self) -> Launch | None:
        """What `[ranks]` has run before every launch, built once; `None` where it says nothing."""
        return None if self.declared_prepare is None else self.declared_prepare()

    @property
    def before_launch(self) -> Launch | None:
        """What precedes every launch, untimed; `None` where nothing does."""
        if self.declared_prepare is not None:
            return self.reset
        return self.memory.restore if self.memory.restored else None

    def reset(self) -> None:
        """Do what precedes every launch: tensors get their contents back, then what `[ranks]` says."""
        self.memory.restore()
        if self.preparation is not None:
            self.preparation()

    @cached_property
    def checked(self) -> Mapping[str, Rule]:
        """The rules by tensor, without those that are unchecked."""
        return {rule.tensor: rule for rule in self.rules if rule.unchecked is None}
