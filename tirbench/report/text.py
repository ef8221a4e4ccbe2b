"""Numbers and names as people read them, safe for where they are shown."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Final

_CONTROL: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that can move a cursor, reorder text or end a line."""

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>()#+!|~&@])")


def plain(text: str, *, lines: bool = False) -> str:
    """A text whose control characters are visible, so that no name can drive a terminal.

    Args:
        text: any text, a kernel's output among them.
        lines: keep line breaks and tabs.
    """
    kept = "\n\t" if lines else ""
    return "".join(
        char if char in kept or unicodedata.category(char) not in _CONTROL else _visible(char)
        for char in text
    )


def _visible(char: str) -> str:
    return " " if char in "\n\r\t" else f"\\u{{{ord(char):x}}}"


def markdown(text: str) -> str:
    """A text that Markdown shows as it is, in a table cell too: nothing links, formats or pings."""
    return _MARKDOWN.sub(r"\\\1", plain(text))


def significant(number: float, digits: int = 4) -> str:
    """A number to so many significant digits, without an exponent: `3.412`, `187.4`, `1380`, `0.05012`.

    Digits before the point are never dropped: 123456 stays `123456`.
    """
    if not math.isfinite(number) or number == 0:
        return str(number)
    magnitude = math.floor(math.log10(abs(float(f"{number:.{digits - 1}e}"))))
    return f"{number:.{max(0, digits - 1 - magnitude)}f}"


def microseconds(midmean_us: float, half_width_us: float | None) -> str:
    """A time and its interval: `3.412 ±0.02`; two digits of the interval where it begins with a 1.

    `3.412 ±–` where nothing was repeated: that is no interval of zero.
    """
    if half_width_us is None:
        return f"{significant(midmean_us)} ±–"
    first = f"{half_width_us:.1e}"[0]
    width = significant(half_width_us, 2 if first == "1" else 1) if half_width_us > 0 else "0"
    return f"{significant(midmean_us)} ±{width}"


def percent(share: float) -> str:
    """A share as a whole percentage, one decimal below ten: `87 %`, `6.2 %`."""
    return f"{100 * share:.0f} %" if abs(share) >= 0.0995 else f"{100 * share:.1f} %"


def size(count: int) -> str:
    """Bytes in binary units: `512 B`, `32.0 KiB`, `8.00 MiB`."""
    if count < 1024:
        return f"{count} B"
    scaled = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        scaled /= 1024
        if scaled < 1023.5 or unit == "TiB":
            return f"{significant(scaled, 3)} {unit}"
    raise AssertionError("unreachable")


def count(number: int, word: str) -> str:
    """`1 case`, `3 cases`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
