"""Whether the tensors of a workload make sense together, before any shape is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tirbench.diagnostics import did_you_mean
from tirbench.load.names import names_in, option_names, reached

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tirbench.diagnostics import Problems
    from tirbench.model import Path, Tensor, Workload


def check_tensors(
    workload: Workload, written: dict[str, frozenset[str]], problems: Problems
) -> None:
    """Note what is wrong with the tensors.

    Args:
        workload: as written.
        written: the keys that each tensor states itself.
        problems: where they are noted.
    """
    tensors = {tensor.name: tensor for tensor in workload.tensors}
    computed = _check_inits(workload, tensors, problems)
    for tensor in workload.tensors:
        keys = written[tensor.name]
        _check_links(tensor, tensors, problems)
        if tensor.view is None:
            _check_owned(tensor, problems)
            _check_contents(tensor, workload, computed, problems)
            _check_reset(tensor, computed, problems)
        else:
            _check_view(tensor, keys, tensors, computed, problems)
        if workload.ranks is None:
            for key in ("memory", "replicated"):
                if key in keys and (key != "memory" or tensor.memory == "symmetric"):
                    message = f"'{key}' needs the ranks of a distributed workload"
                    problems.add("TB046", (*tensor.path, key), message, hint="add [ranks]")
    _check_order(workload, tensors, problems)
    _check_used(workload, tensors, problems)


def known_tensor(name: str, path: Path, names: Iterable[str], problems: Problems) -> bool:
    """Whether a tensor of that name exists; noted if not."""
    names = list(names)
    if name in names:
        return True
    hint = did_you_mean(name, names, "the tensors are")
    problems.add("TB021", path, f"no tensor is named '{name}'", hint=hint)
    return False


def _check_inits(
    workload: Workload, tensors: dict[str, Tensor], problems: Problems
) -> dict[str, Path]:
    """Each `[[init]]` returns tensors that have no other contents; the answer says which return what."""
    computed: dict[str, Path] = {}
    for init in workload.inits:
        for index, name in enumerate(init.returns):
            path: Path = (*init.path, "returns")
            if name == "_" or not known_tensor(name, path, tensors, problems):
                continue
            if name in computed:
                problems.add("TB041", path, f"'{name}' is computed by two [[init]] tables")
            elif tensors[name].init is not None:
                message = f"'{name}' has an init of its own as well"
                problems.add("TB041", path, message, hint="a tensor gets its contents in one way")
            elif tensors[name].role == "out":
                message = f"'{name}' is an out tensor: it is poisoned before it is verified"
                problems.add("TB046", path, message, hint="role = 'inout' has contents")
            computed[name] = (*path, index)
    return computed


def _check_links(tensor: Tensor, tensors: dict[str, Tensor], problems: Problems) -> None:
    """`like` and `view` name other tensors, and lead back to none."""
    follow: dict[str, Callable[[Tensor], str | None]] = {
        "like": lambda t: t.like,
        "view": lambda t: t.view,
    }
    for key, target in follow.items():
        name = target(tensor)
        if name is None or not known_tensor(name, (*tensor.path, key), tensors, problems):
            continue
        seen = [tensor.name]
        while name is not None and name in tensors and name not in seen:
            seen.append(name)
            name = target(tensors[name])
        if name == tensor.name:
            chain = " -> ".join([*seen, name])
            problems.add("TB025", (*tensor.path, key), f"'{key}' leads back to itself: {chain}")


def _check_owned(tensor: Tensor, problems: Problems) -> None:
    """A tensor with memory of its own has a shape and a dtype."""
    if tensor.permute is not None:
        message = "only a view has its dimensions permuted"
        problems.add("TB043", (*tensor.path, "permute"), message, hint="give strides, or a view")
    for key in ("shape", "dtype"):
        if getattr(tensor, key) is None and not problems.has((*tensor.path, "like")):
            hint = f"give {key}, or like = another tensor"
            problems.add("TB041", tensor.path, f"'{tensor.name}' has no {key}", hint=hint, at="key")


def _check_contents(
    tensor: Tensor, workload: Workload, computed: dict[str, Path], problems: Problems
) -> None:
    """What is read has contents; what is only written has none."""
    if tensor.role == "out" and tensor.init is not None:
        message = "an out tensor is poisoned before it is verified; it has no init"
        hint = "role = 'inout' has contents that are restored before every call"
        problems.add("TB046", (*tensor.path, "init"), message, hint=hint)
    through_view = any(
        t.name in computed and _leads_to(t, tensor, workload) for t in workload.tensors
    )
    contents = tensor.init is not None or tensor.name in computed or through_view
    if tensor.role in ("in", "inout") and not contents and not problems.has(tensor.path):
        message = f"'{tensor.name}' has no contents"
        hint = "give it an init, or an [[init]] that returns it"
        if tensor.role == "in":
            hint += "; role = 'out' if it is written"
        problems.add("TB041", tensor.path, message, hint=hint, at="key")


def _leads_to(view: Tensor, base: Tensor, workload: Workload) -> bool:
    """Whether a tensor is a view, perhaps of a view, of `base`."""
    tensors = {tensor.name: tensor for tensor in workload.tensors}
    seen: set[str] = set()
    while view.view in tensors and view.name not in seen:
        seen.add(view.name)
        view = tensors[view.view]
        if view.name == base.name:
            return True
    return False


def _check_reset(tensor: Tensor, computed: dict[str, Path], problems: Problems) -> None:
    """`reset` fits the role."""
    path = (*tensor.path, "reset")
    if tensor.reset == "none" and tensor.role == "inout" and tensor.reason is None:
        message = "an inout tensor that is not restored changes from call to call"
        problems.add("TB062", path, message, hint='say why that is right: reason = "…"')
    if tensor.reset == "restore":
        inited = tensor.init is not None or tensor.name in computed
        if tensor.role == "scratch" and not inited:
            problems.add("TB045", path, "there is nothing to restore", hint="give it an init")
        elif tensor.role in ("in", "out"):
            message = f"an {tensor.role} tensor is not restored"
            problems.add("TB045", path, message, hint="only inout and scratch tensors are")
    if tensor.reason is not None and tensor.reset is None:
        message = "a reason without what it is the reason of"
        problems.add("TB045", (*tensor.path, "reason"), message, hint='reset = "none"', at="key")


def _check_view(
    tensor: Tensor,
    keys: frozenset[str],
    tensors: dict[str, Tensor],
    computed: dict[str, Path],
    problems: Problems,
) -> None:
    """A view says how it looks at its base, and nothing that only memory has."""
    base = tensors.get(tensor.view or "")
    for key in ("init", "reset", "reason", "memory", "replicated"):
        if key in keys:
            message = f"a view has no '{key}' of its own: its base owns the memory"
            problems.add("TB043", (*tensor.path, key), message, at="key")
    if tensor.permute is not None:
        for key in ("shape", "strides", "offset", "dtype", "like"):
            if key in keys:
                message = f"'permute' and '{key}' exclude each other"
                problems.add("TB017", (*tensor.path, key), message, at="key")
    elif not keys & {"shape", "strides", "offset", "dtype", "like"}:
        message = "the view says nothing of how it looks at its base"
        problems.add(
            "TB043", tensor.path, message, hint="give permute, or shape and strides", at="key"
        )
    if base is not None and "role" in keys and base.role != tensor.role:
        message = f"the role of a view is that of its base, '{base.role}'"
        problems.add("TB043", (*tensor.path, "role"), message, hint="leave it out")
    if base is not None and base.role == "out" and tensor.name in computed:
        message = f"'{tensor.name}' shows the out tensor '{base.name}'"
        problems.add("TB046", computed[tensor.name][:-1], message)


def _check_order(workload: Workload, tensors: dict[str, Tensor], problems: Problems) -> None:
    """Contents can be made in some order: no tensor is computed from itself."""

    def tensors_read(found: set[str]) -> set[str]:
        return reached(found, workload) & tensors.keys()

    reads: dict[str, set[str]] = {}
    places: dict[str, Path] = {}
    for tensor in workload.tensors:
        parameters = tuple(value for _, value in tensor.init.parameters) if tensor.init else ()
        reads[tensor.name] = tensors_read(names_in(parameters))
        places[tensor.name] = (*tensor.path, "init")
    for init in workload.inits:
        for name in init.returns:
            if name in reads:
                reads[name] |= tensors_read(names_in(init))
                places[name] = init.path
    for name in reads:
        chain = _cycle(name, reads)
        if chain and chain[0] == min(chain):
            message = f"contents that need themselves: {' -> '.join([*chain, chain[0]])}"
            problems.add("TB025", places[name], message)


def _cycle(start: str, reads: dict[str, set[str]]) -> list[str]:
    """A way from a name back to itself, if there is one."""
    waiting = [[start]]
    seen: set[str] = set()
    while waiting:
        chain = waiting.pop()
        for name in sorted(reads.get(chain[-1], ())):
            if name == start:
                return chain
            if name not in seen:
                seen.add(name)
                waiting.append([*chain, name])
    return []


def _check_used(workload: Workload, tensors: dict[str, Tensor], problems: Problems) -> None:
    """Every tensor is used by something that runs."""
    used = _used(workload)
    for tensor in reversed(workload.tensors):
        seen: set[str] = set()
        view: Tensor | None = tensor if tensor.name in used else None
        while view is not None and view.name not in seen:
            seen.add(view.name)
            used.add(view.name)
            view = tensors.get(view.view or "")
    for tensor in workload.tensors:
        if tensor.name not in used and not problems.has(tensor.path):
            message = f"nothing uses '{tensor.name}'"
            hint = "pass it to a kernel, return it from the oracle, or remove it"
            problems.add("TB040", tensor.path, message, hint=hint, at="key")


def _used(workload: Workload) -> set[str]:
    """The names that something which runs reads, takes or returns."""
    check = workload.check
    used = names_in(check.oracle, check.grad_seed, workload.work.flops, workload.work.bytes)
    used |= {*check.grad, *(check.oracle.returns if check.oracle else ())}
    for implementation in (*workload.kernels, *workload.references):
        used |= option_names(implementation) | {*implementation.returns}
        for step in implementation.steps:
            used |= {name for key, value in step.options if key == "grad" for name in value[0][1]}  # type: ignore[index]  # as build made it
    for output in check.outputs:
        regions = (output.tensor, output.rows, output.lengths, output.mask)
        used |= {name for name in regions if name} | names_in(output.through)
    if workload.ranks is not None:
        used |= names_in(workload.ranks.prepare)
    for tensor in workload.tensors:
        used |= names_in(tensor.shape, tensor.strides, tensor.offset)
        if tensor.init is not None:
            used |= names_in(tuple(value for _, value in tensor.init.parameters))
    for init in workload.inits:
        used |= names_in(init)
    return reached(used, workload)
