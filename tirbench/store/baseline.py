"""Baseline files: the accepted numbers of one workload on one class of hardware, for people to review.

`workloads/baselines/<hardware>/<workload>.toml`, a table a row, sorted, a blank line between rows, four
significant digits, LF. No total, date, commit or counter: nothing that two branches would both touch. In
a table the numbers stand first and what seldom changes stands last, so that git sees unchanged lines
between the changes of neighbouring rows and merges them.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import sys
from dataclasses import fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

from tirbench.errors import TirbenchError
from tirbench.model import Baseline, Compilation, Machine, PinnedRow, Workload
from tirbench.store.files import write

if TYPE_CHECKING:
    from pathlib import Path

    from tirbench.codec import Json

KEYS: Final = (
    "midmean_us",
    "band",
    "session_sd",
    "anchor_us",
    "ratio",
    "ratio_band",
    "reason",
    "code",
    "source",
    "resources",
    "configuration",
    "env",
    "unit",
    "seal",
    "protocol",
    "problem",
)
"""Keys of a row, in the order in which they are written."""

NUMBERS: Final = ("midmean_us", "band", "session_sd", "anchor_us", "ratio", "ratio_band")
"""Those of them that are rounded."""

DEVICE_FACTS: Final = (
    "capability",
    "sm_count",
    "l2_bytes",
    "smem_bytes",
    "sm_clock_max",
    "memory_clock_max",
    "power_limit_default",
)
"""Facts of `Machine.facts` that are the same for every unit of a product."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")
_CONFLICT = re.compile(r"^(<{7}|\|{7}|={7}|>{7})(?=[ \r\n]|\Z)", re.MULTILINE)


class BaselineError(TirbenchError):
    """A baseline file cannot be used; the message names the file, the place and the remedy."""


def baseline_path(workload: Workload, hardware: str) -> str:
    """Where the baseline of a workload lies, relative to the project's root."""
    folder = workload.source.folder
    return f"{folder}/baselines/{hardware}/{workload.name}.toml".lstrip("/")


def read_baseline(root: Path, path: str) -> Baseline | None:
    """Read a baseline file; `None` where there is none yet.

    Rows whose seal is broken are read like others: `is_sealed` tells.

    Args:
        root: the project's folder.
        path: of the file, relative to it; its last two parts are hardware and workload.

    Raises:
        BaselineError: conflict markers, no TOML, or not of the schema; all faults at once.
    """
    file = root / path
    if not file.is_file():
        return None
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BaselineError(
            f"{path}: not UTF-8 text: {error.reason} at byte {error.start}"
        ) from error
    return parse_baseline(text, path)


def parse_baseline(text: str, path: str) -> Baseline:
    """The baseline that a text says, as `read_baseline`; `path` names it and its workload.

    Raises:
        BaselineError: as `read_baseline`.
    """
    _refuse_conflicts(text, path)
    try:
        data = _toml().loads(text)
    except (ValueError, RecursionError, MemoryError) as error:
        raise BaselineError(f"{path}: {error}") from error
    _refuse_invalid(data, path)
    rows = [
        _row(case, implementation, values)
        for case, implementations in data.items()
        for implementation, values in implementations.items()
    ]
    *_, hardware, name = path.split("/")
    return Baseline(
        workload=name.removesuffix(".toml"),
        hardware=hardware,
        rows=tuple(sorted(rows, key=row_key)),
    )


def write_baseline(root: Path, path: str, baseline: Baseline) -> bool:
    """Write a baseline file; returns whether it has changed. One without rows is not begun."""
    if not baseline.rows and not (root / path).is_file():
        return False
    return write(root / path, render_baseline(baseline))


def render_baseline(baseline: Baseline) -> str:
    """The text of a baseline file."""
    head = (
        f"# Accepted times of {baseline.workload} on {baseline.hardware}; `tirbench pin` writes them.\n"
        "# Numbers are not for editing: each row is sealed, and a row that was edited must be pinned "
        "again.\n"
    )
    rows = sorted(baseline.rows, key=row_key)
    return head + "".join("\n" + _render_row(row) for row in rows)


def row_key(row: PinnedRow) -> tuple[str, str]:
    """What rows are sorted and found by."""
    return row.case, row.implementation


def rounded(number: float) -> float:
    """A number to four significant digits, as baselines hold it."""
    return float(f"{number:.4g}")


def sealed(row: PinnedRow) -> PinnedRow:
    """The row with its numbers rounded and the seal that belongs to its content."""
    numbers = {
        name: rounded(value) for name in NUMBERS if (value := getattr(row, name)) is not None
    }
    row = replace(row, **cast("dict[str, Any]", numbers))
    return replace(row, seal=_seal(row))


def is_sealed(row: PinnedRow) -> bool:
    """Whether the row reads as `pin` wrote it: no hand edit, no textual merge of two measurements."""
    return row.seal == _seal(row)


def with_resources(row: PinnedRow, one: Compilation | None) -> PinnedRow:
    """The row with what the compiler says of its code, where that is the code that was measured.

    What a device said stays: only what the row lacks is added. A row whose seal is broken stays broken.

    Args:
        row: as it is pinned.
        one: what was compiled of it for its device, `None` where nothing was.
    """
    if one is None or one.code is None or not is_sealed(row):
        return row
    if (one.code.digest, one.source) != (row.code, row.source):
        return row
    resources = {**dict(one.code.resources), **dict(row.resources)}
    if resources == dict(row.resources):
        return row
    return sealed(replace(row, resources=tuple(sorted(resources.items()))))


def device_path(workload: Workload, hardware: str) -> str:
    """Where the facts of a class of hardware lie, relative to the project's root."""
    return baseline_path(workload, hardware).rpartition("/")[0] + "/device.toml"


def write_device(root: Path, path: str, machine: Machine) -> bool:
    """Write the facts of a class of hardware, once: a file that is there is left alone."""
    if (root / path).is_file():
        return False
    lines = ["# Facts of the device that the baselines in this folder were measured on.", ""]
    lines.append(f"product = {_text(machine.device)}")
    if machine.memory_bytes is not None and machine.kind == "cuda":  # a host's is no product's
        lines.append(f"memory_bytes = {machine.memory_bytes}")
    facts = dict(machine.facts)
    for name in DEVICE_FACTS:
        if name in facts:
            value = facts[name]
            lines.append(f"{name} = {value if value.isdecimal() else _text(value)}")
    return write(root / path, "\n".join(lines) + "\n")


# --- Reading --------------------------------------------------------------------------------------


def _toml() -> Any:
    return importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


def _refuse_conflicts(text: str, path: str) -> None:
    """Answer a file in the middle of a merge with what to do, not with a parse error."""
    found = _CONFLICT.search(text)
    if found is None:
        return
    line = text.count("\n", 0, found.start()) + 1
    workload = re.sub(r"baselines/[^/]+/", "", path)
    raise BaselineError(
        f"{path}:{line}: conflict marker of a merge. Both sides measured the same row, and neither\n"
        f"number is that of the merged code. Take one side, then measure and pin again:\n"
        f"    git checkout --ours -- {path}\n"
        f"    tirbench exec {workload} --pin\n"
        f"    git add {path}"
    )


@cache
def _validator() -> Any:
    import importlib.resources

    import jsonschema

    text = importlib.resources.files("tirbench").joinpath("schema/baseline.schema.json")
    return jsonschema.Draft202012Validator(json.loads(text.read_text(encoding="utf-8")))


def _refuse_invalid(data: object, path: str) -> None:
    errors = sorted(_validator().iter_errors(data), key=lambda error: list(map(str, error.path)))
    if errors:
        lines = [
            f"{path}: {'.'.join(map(str, error.absolute_path)) or 'file'}: {error.message}"
            for error in errors
        ]
        raise BaselineError("\n".join(lines))


def _row(case: str, implementation: str, values: dict[str, Any]) -> PinnedRow:
    numbers = {name: float(values[name]) for name in values if name in NUMBERS}
    resources = tuple(sorted(values.get("resources", {}).items()))
    return PinnedRow(
        **cast(
            "dict[str, Any]",
            {
                **values,
                **numbers,
                "case": case,
                "implementation": implementation,
                "resources": resources,
            },
        )
    )


# --- Writing --------------------------------------------------------------------------------------


def _render_row(row: PinnedRow) -> str:
    lines = [f"[{_key(row.case)}.{_key(row.implementation)}]"]
    for name in KEYS:
        value = getattr(row, name)
        if value is None or value == ():
            continue
        lines.append(f"{name} = {_value(value)}")
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return "{ " + ", ".join(f"{_key(name)} = {number}" for name, number in value) + " }"
    return repr(rounded(value)) if isinstance(value, float) else _text(str(value))


def _key(name: str) -> str:
    return name if _BARE_KEY.match(name) else _text(name)


def _text(text: str) -> str:
    """A TOML basic string: JSON's escapes, and one for the character that only TOML refuses."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _seal(row: PinnedRow) -> str:
    """Hash of everything the row says, as it would be read back."""
    content: dict[str, Json] = {
        field.name: _value(value) if isinstance(value, tuple | float) else value
        for field in fields(row)
        if field.name != "seal" and (value := getattr(row, field.name)) not in (None, ())
    }
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
