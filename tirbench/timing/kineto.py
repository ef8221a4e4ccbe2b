"""Kineto sessions and the events they leave.

Only this module imports `torch.profiler`, and only when a session is opened.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from tirbench.errors import AttributionError, ImpossibleTime
from tirbench.timing import profilers
from tirbench.timing.activity import GpuEvent, Kind, require_interval, span_ns, summarize
from tirbench.timing.plan import CallFailed, Record

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


class KinetoSession(Protocol):
    """An open session that annotates what is launched inside scopes."""

    def scope(self, name: str) -> AbstractContextManager[object]:
        """A scope: its name appears on every stream that got work inside."""

    def finish(self) -> list[GpuEvent]:
        """End the session; everything that happened on GPUs. Called exactly once."""


class TorchKineto:
    """A session of torch.profiler."""

    def __init__(self) -> None:
        """Start profiling CPU and GPU.

        Raises:
            TimerUnavailable: torch.profiler cannot start.
        """
        from torch import profiler

        activities = [profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]
        self._scope = profiler.record_function
        self._names: set[str] = set()
        self._profile = profiler.profile(activities=activities)
        try:
            self._profile.__enter__()
        except Exception as error:
            raise profilers.refused("kineto", error) from error
        profilers.note("kineto")

    def scope(self, name: str) -> AbstractContextManager[object]:
        """A user annotation."""
        self._names.add(name)
        scope: AbstractContextManager[object] = self._scope(name)
        return scope

    def finish(self) -> list[GpuEvent]:
        """Stop, and take the raw events: integer nanoseconds, before torch rounds them to floats of µs."""
        self._profile.__exit__(None, None, None)
        raw = self._profile.profiler.kineto_results.events()
        inner = nested(raw, self._names)
        return [found for event in raw if (found := to_gpu_event(event, inner)) is not None]


def nested(raw: Iterable[Any], scopes: Collection[str]) -> dict[int, str]:
    """The scope that every other annotation of the host began in, by its correlation id.

    Work is annotated with the innermost annotation that was open when it was launched, and what is launched
    may open its own: each collective of NCCL does ("nccl:all_reduce"), and so its kernel was in no scope. An
    all-reduce of 4 MiB over two H200 read 3.8 µs (torch 2.11), the time of the copy before it.
    """
    host = [
        event for event in raw if event.device_type().name == "CPU" and event.is_user_annotation()
    ]
    opened = sorted(
        (event.start_ns(), event.start_ns() + event.duration_ns(), event.name())
        for event in host
        if event.name() in scopes
    )
    starts = [start for start, _, _ in opened]
    found = {}
    for event in host:
        index = bisect_right(starts, event.start_ns()) - 1
        if index >= 0 and event.name() not in scopes and event.start_ns() < opened[index][1]:
            found[event.correlation_id()] = opened[index][2]
    return found


def to_gpu_event(event: Any, inner: Mapping[int, str] = MappingProxyType({})) -> GpuEvent | None:
    """A raw event of torch as ours; None where it is not on a GPU.

    Args:
        event: of Kineto.
        inner: as `nested` finds it: such an annotation counts as that of its scope.
    """
    if event.device_type().name != "CUDA":
        return None
    kind = kind_of(event)
    scope = inner.get(event.correlation_id()) if kind == "annotation" else None
    return GpuEvent(
        kind=kind,
        name=event.name() if scope is None else scope,
        start_ns=event.start_ns(),
        end_ns=event.start_ns() + event.duration_ns(),
        stream=(event.device_index(), event.device_resource_id()),
    )


def kind_of(event: Any) -> Kind:
    """What the interval is; without `activity_type` (none in torch 2.11) names must tell."""
    name = event.name()
    activity = event.activity_type() if hasattr(event, "activity_type") else ""
    if activity == "gpu_user_annotation" or event.is_user_annotation():
        return "annotation"
    if activity == "gpu_memcpy" or name.startswith("Memcpy"):
        return "memcpy"
    if activity == "gpu_memset" or name.startswith("Memset"):
        return "memset"
    return "kernel"


def span_record(
    name: str, annotations: Sequence[GpuEvent], work: Sequence[GpuEvent], *, kept: bool = True
) -> Record:
    """The record of one launch from its annotations and the activities below them.

    Raises:
        CallFailed: around an ImpossibleTime, where an interval cannot be.
    """
    try:
        for annotation in annotations:
            require_interval(annotation)
        time_us = span_ns(annotations) / 1e3
        return Record(name=name, time_us=time_us, kept=kept, activity=summarize(work))
    except ImpossibleTime as error:
        raise CallFailed(name, error) from error


def attribute_events(
    events: Sequence[GpuEvent], scopes: Sequence[str], owners: Sequence[str]
) -> list[tuple[list[GpuEvent], list[GpuEvent]]]:
    """For every scope in order: its annotations, and the activities that they cover.

    An annotation spans, on one stream, exactly what was launched inside its scope; a scope with others inside
    has several on one stream, whose intervals may overlap.

    Raises:
        CallFailed: around an AttributionError, where a scope has no annotation or one without work.
    """
    annotations: dict[str, list[GpuEvent]] = defaultdict(list)
    wanted = frozenset(scopes)
    for event in events:
        if event.kind == "annotation" or event.name in wanted:
            annotations[event.name].append(event)
    work = _Streams(event for event in events if event.kind != "annotation")
    missing = [
        owner for scope, owner in zip(scopes, owners, strict=True) if scope not in annotations
    ]
    if missing:
        raise CallFailed(
            missing[0], AttributionError(_explain(missing[0], missing, owners, events))
        )
    found = []
    for scope, owner in zip(scopes, owners, strict=True):
        every = (event for one in annotations[scope] for event in work.within(one))
        covered = [event for event in dict.fromkeys(every) if event.name not in wanted]
        if not covered:
            raise CallFailed(
                owner,
                AttributionError(
                    f"{owner!r}: Kineto annotated a launch but recorded none of its work"
                ),
            )
        found.append((annotations[scope], covered))
    return found


class _Streams:
    """Activities by stream, sorted by start, for looking up an interval."""

    def __init__(self, events: Iterable[GpuEvent]) -> None:
        self._events: dict[tuple[int, int], list[GpuEvent]] = defaultdict(list)
        for event in sorted(events, key=lambda event: (event.start_ns, event.end_ns)):
            self._events[event.stream].append(event)
        self._starts = {
            stream: [event.start_ns for event in line] for stream, line in self._events.items()
        }

    def within(self, annotation: GpuEvent) -> list[GpuEvent]:
        """What starts and ends within the annotation, on its stream."""
        starts = self._starts.get(annotation.stream, [])
        first = bisect_left(starts, annotation.start_ns)
        last = bisect_right(starts, annotation.end_ns)
        return [
            event
            for event in self._events[annotation.stream][first:last]
            if event.end_ns <= annotation.end_ns
        ]


def _explain(
    name: str, missing: Sequence[str], owners: Sequence[str], events: Sequence[GpuEvent]
) -> str:
    """Why launches have no span: nothing was recorded, or these were lost."""
    launches = owners.count(name)
    head = f"{name!r}: Kineto recorded {launches - missing.count(name)} of {launches} launches."
    seen = sorted({event.label for event in events if event.kind != "annotation"})
    if not seen:
        return (
            f"{head} It recorded nothing on the GPU at all, not even the kernel at its start: the "
            "profiler is dead."
            f"{profilers.other_family('kineto')} {profilers.ANOTHER_PROCESS}"
        )
    shown = ", ".join(repr(label) for label in seen[:5])
    return f"{head} The activities it saw are {shown}" + (", …" if len(seen) > 5 else "")
