"""Whether this machine has what an implementation asks for."""

from __future__ import annotations

import operator
import re
from importlib import metadata
from typing import TYPE_CHECKING, Final

from packaging.requirements import Requirement

if TYPE_CHECKING:
    from tirbench.harness.declarations import Requires
    from tirbench.harness.device import Device

COMPARE: Final = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}


def unmet(requires: Requires, device: Device) -> str | None:
    """The sentence that says what to use or install; `None` where everything is there."""
    if requires.device is not None and requires.device != device.kind:
        what = "CUDA device" if requires.device == "cuda" else "CPU"
        return f"needs a {what}: run with --device {requires.device}"
    if requires.capability is not None and device.kind == "cuda":
        for sign, number in re.findall(r"([<>=!]=?)\s*([\d.]+)", requires.capability):
            if not COMPARE[sign](device.capability, float(number)):
                return f"needs compute capability {requires.capability}; this device has {device.capability}"
    if requires.memory is not None and device.memory_bytes < requires.memory:
        needed, there = requires.memory / 2**30, device.memory_bytes / 2**30
        return f"needs {needed:.1f} GiB of memory; this device has {there:.1f}"
    missing = [text for text in requires.packages if not _installed(Requirement(text))]
    return (
        f"needs {', '.join(missing)}: pip install {' '.join(map(repr, missing))}"
        if missing
        else None
    )


def _installed(requirement: Requirement) -> bool:
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return False
    return requirement.specifier.contains(version, prereleases=True)
