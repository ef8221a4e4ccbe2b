"""One thing wrong with a file, and the collection of all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from tirbench.diagnostics.codes import CODES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tirbench.diagnostics.positions import Position
    from tirbench.model import Path

MAX_SHOWN: Final = 20
_WINDOW: Final = 96

At: TypeAlias = "Literal['key', 'value']"
Severity: TypeAlias = "Literal['error', 'warning']"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One problem of one file, at its place.

    `file` is how outputs name the file; `path` is the place in the document (empty: the file as a
    whole); `line` and `column` count from 1; `length` characters are underlined; `text` is the source
    line. A file with an error is not a workload; one with a warning is. `str()` is the form for people.
    """

    severity: Severity = "error"
    code: str
    file: str
    path: Path = ()
    message: str
    hint: str = ""
    line: int = 1
    column: int = 1
    length: int = 1
    text: str = field(default="", repr=False)

    @property
    def place(self) -> str:
        """`file:line:column`, as editors and terminals link it."""
        return f"{self.file}:{self.line}:{self.column}"

    def __str__(self) -> str:
        """Place, code and message; the source line with a caret below the fault; the hint."""
        message, hint = visible(self.message), visible(self.hint)
        lines = [f"{visible(self.place)}: {self.severity}[{self.code}]: {message}"]
        if self.text.strip():
            line, caret = _excerpt(self.text, self.column, self.length)
            number = str(self.line)
            margin = " " * len(number)
            lines += [f"{margin} |", f"{number} | {line}", f"{margin} | {caret}"]
        if hint:
            lines.append(f"help: {hint}")
        return "\n".join(lines)


@dataclass(slots=True)
class Problems:
    """The problems of one file, collected in any order; each is placed only when they are asked for.

    A problem that is found twice in one place, for example in two cases, is kept once.
    """

    file: str
    text: str = field(default="", repr=False)
    _found: dict[tuple[str, Path, str], tuple[str, At, tuple[int, int] | None]] = field(
        default_factory=dict
    )
    _placed: list[Diagnostic] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._found or self._placed)

    def add(
        self,
        code: str,
        path: Path,
        message: str,
        *,
        hint: str = "",
        at: At = "value",
        span: tuple[int, int] | None = None,
    ) -> None:
        """Add a problem of the thing at `path`.

        Args:
            code: one of `CODES`.
            path: the place in the document.
            message: what is wrong.
            hint: what to do about it.
            at: whether the caret goes below the key or the value.
            span: offset and length of the fault inside a string value, in characters.
        """
        if code not in CODES:
            raise KeyError(code)
        self._found.setdefault((code, path, message), (hint, at, span))

    def add_at(
        self,
        code: str,
        message: str,
        *,
        line: int,
        column: int,
        length: int = 1,
        hint: str = "",
        severity: Severity = "error",
    ) -> None:
        """Add a problem of a place in the text, where there is no document yet."""
        self._placed.append(
            Diagnostic(
                severity=severity,
                code=code,
                file=self.file,
                message=message,
                hint=hint,
                line=line,
                column=column,
                length=length,
                text=_line(self.text, line),
            )
        )

    def has(self, path: Path) -> bool:
        """Whether something at or below `path` is already known to be wrong."""
        return any(known[: len(path)] == path for _, known, _ in self._found)

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All of them by position; of more than twenty the rest is one line that counts them."""
        placed = [*self._placed]
        for (code, path, message), (hint, at, span) in self._found.items():
            placed.append(self._place(code, path, message, hint, at, span))
        placed.sort(key=lambda d: (d.line, d.column, d.code, d.message))
        if len(placed) <= MAX_SHOWN:
            return tuple(placed)
        first = placed[MAX_SHOWN]
        rest = len(placed) - MAX_SHOWN
        more = Diagnostic(
            code="TB099",
            file=self.file,
            message=f"{rest} more problem{'s' * (rest > 1)} from here on",
            line=first.line,
            column=first.column,
        )
        return (*placed[:MAX_SHOWN], more)

    def _place(
        self,
        code: str,
        path: Path,
        message: str,
        hint: str,
        at: At,
        span: tuple[int, int] | None,
    ) -> Diagnostic:
        """The diagnostic of a found problem."""
        from tirbench.diagnostics.positions import (
            locate,
        )  # nothing to place in a file that is right

        where = locate(self.text, path)
        text = _line(self.text, where.line)
        if at == "key":
            column, length = where.key_column, where.key_length
        else:
            column, length = _within(text, where, span)
        return Diagnostic(
            code=code,
            file=self.file,
            path=path,
            message=message,
            hint=hint,
            line=where.line,
            column=column,
            length=length,
            text=text if path else "",
        )


def shown(diagnostics: Iterable[Diagnostic]) -> str:
    """Diagnostics in their text form, a blank line between two."""
    return "\n\n".join(str(diagnostic) for diagnostic in diagnostics)


def visible(text: str) -> str:
    """A text in which nothing is hidden and nothing drives a terminal: names and values may hold anything."""
    return "".join(c if c.isprintable() else f"\\u{{{ord(c):x}}}" for c in text)


def closest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `word` was most likely meant to be, if any is near."""
    from difflib import get_close_matches  # 5 ms to import, so only for an error

    lowered: dict[str, list[str]] = {}
    for name in sorted({str(candidate) for candidate in candidates}):
        lowered.setdefault(name.lower(), []).append(name)
    close = get_close_matches(word.lower(), lowered, 1, 0.6)
    if not close:
        return None
    alike = lowered[close[0]]  # apart in case alone: `row` was `rows` before it was `ROWS`
    return next(iter(get_close_matches(word, alike, 1, 0)), alike[0])


def did_you_mean(word: str, candidates: Iterable[str], what: str = "") -> str:
    """The hint for a misspelt word: the closest candidate, or the list of all, or nothing."""
    names = sorted({str(candidate) for candidate in candidates})
    close = closest(word, names)
    if close is not None:
        return f"did you mean '{close}'?"
    if not what or not names:
        return ""
    listed = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    return f"{what}: {listed}"


def without_quotes(value: object) -> str:
    """The hint for a number, or true or false, that stands in quotes; empty for everything else."""
    if not isinstance(value, str):
        return ""
    try:
        float(value)
    except ValueError:
        if value not in ("true", "false"):
            return ""
    return f"without quotes: {value[:40]}"


def _within(text: str, where: Position, span: tuple[int, int] | None) -> tuple[int, int]:
    """Column and length of a part of a string value; the whole where escapes make that uncertain."""
    if span is None:
        return where.column, where.length
    raw = text[where.column - 1 : where.column - 1 + where.length]
    plain = len(raw) > 1 and raw[0] in "\"'" and raw[0] == raw[-1] and "\\" not in raw
    if not plain or raw.startswith(('"""', "'''")) or not 0 <= span[0] < len(raw) - 1:
        return where.column, where.length
    return where.column + 1 + span[0], max(1, min(span[1], len(raw) - 2 - span[0]))


def _line(text: str, line: int) -> str:
    """A line of the text, without its end."""
    lines = text.split("\n", line)
    return lines[line - 1].rstrip("\r") if line <= len(lines) else ""


def _excerpt(text: str, column: int, length: int) -> tuple[str, str]:
    """A window of a source line and the caret line below it.

    Long lines are cut around the fault; what a terminal would act on is replaced; the caret line
    allows for characters two columns wide.
    """
    start = 0
    if len(text) > _WINDOW:
        start = max(0, min(column - 1 - _WINDOW // 3, len(text) - _WINDOW))
    window = text[start : start + _WINDOW]
    before, after = "…" if start else "", "…" if start + _WINDOW < len(text) else ""
    fault = column - 1 - start
    width = max(1, min(length, len(window) - fault))
    clean = "".join(c if c.isprintable() else " " if c == "\t" else "\ufffd" for c in window)
    pad = " " * _columns(before + clean[:fault])
    return f"{before}{clean}{after}", pad + "^" * max(1, _columns(clean[fault : fault + width]))


def _columns(text: str) -> int:
    """How many columns a terminal gives the text."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)
