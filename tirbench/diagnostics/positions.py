"""Where each key and value of a TOML document stands in its text.

The parser of the standard library gives no positions, so this scanner walks the text again, but only
when there is something to point at: an error, or the source map of a harness. It relies on the parser
for validity; of an invalid document it returns the positions up to where it got lost.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tirbench.model import Path

_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_SPACE: Final = re.compile(r"[ \t]*")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:[^\s,\]}#]*|[^\s,\]}#]+")
_STRINGS: Final = (
    ('"""', re.compile(r'"""(?:[^\\]|\\.)*?"""(?:"{1,2}(?!"))?', re.DOTALL)),
    ("'''", re.compile(r"'''.*?'''(?:'{1,2}(?!'))?", re.DOTALL)),
    ('"', re.compile(r'"(?:[^"\\\n]|\\.)*"')),
    ("'", re.compile(r"'[^'\n]*'")),
)
_ESCAPES: Final = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|e|.)", re.DOTALL)
_SIMPLE: Final = {
    f"\\{letter}": meant for letter, meant in zip('btnfr"\\', '\b\t\n\f\r"\\', strict=True)
}
_SHORT_TIME: Final = re.compile(r"(?:^|[T ])\d\d:\d\d(?!:)")
_MAX_DEPTH: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place in a text: line and column count from 1, lengths are in characters of that line.

    `column` and `length` are of the value (of a table: its header), `key_column` and `key_length` of the
    key that names it; an element of an array has no key and repeats its value's place.
    """

    line: int
    column: int
    length: int
    key_column: int
    key_length: int


@dataclass(frozen=True, slots=True)
class Newer:
    """Something that TOML 1.1 allows and TOML 1.0, the dialect of workloads, does not."""

    offset: int
    length: int
    message: str
    hint: str


@lru_cache(maxsize=8)
def locations(text: str) -> dict[Path, Position]:
    """The place of every key, table and array element of a TOML document, by path.

    The dict is shared between calls with one text; do not change it.
    """
    return _scan(text).found


def locate(text: str, path: Path) -> Position:
    """The place of `path`, or of the nearest enclosing thing that is in the text.

    What a default or a table of another file put there has no place of its own; the answer is then its
    table, and at last the first line.
    """
    found = locations(text) if path else {}
    for length in range(len(path), 0, -1):
        position = found.get(path[:length])
        if position is not None:
            return position
    return Position(line=1, column=1, length=1, key_column=1, key_length=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Twice:
    """A key or table that a document has twice: where the second stands, and the line of the first."""

    path: Path
    line: int
    column: int
    length: int
    first_line: int


def lost_at(text: str) -> int:
    """Where a document stops being TOML: at the quote of a text that never ends; its end if it is right."""
    return _scan(text).at


def written_twice(text: str) -> Twice | None:
    """The first key or table of a document that was there already."""
    return _scan(text).twice


def newer_syntax(text: str) -> tuple[Newer, ...]:
    """What in a document only TOML 1.1 would accept."""
    return tuple(_scan(text).newer)


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Line and column, from 1, of a character."""
    start = text.rfind("\n", 0, offset) + 1
    return text.count("\n", 0, offset) + 1, offset - start + 1


def _scan(text: str) -> _Scanner:
    scanner = _Scanner(text)
    with suppress(_LostError):  # the parser says what is wrong; what was found so far stands
        scanner.document()
    return scanner


class _LostError(Exception):
    """The text is not TOML from here on."""


class _Scanner:
    """One walk over a document."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.found: dict[Path, Position] = {}
        self.newer: list[Newer] = []
        self.given: dict[Path, int] = {}
        """Offsets of keys and tables that may stand once."""
        self.twice: Twice | None = None
        self.broken: set[int] = set()
        """Where inline tables over several lines begin."""
        self.tables: dict[Path, int] = {}
        """Arrays of tables by path, with the number of their elements so far."""
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def document(self) -> None:
        """All headers and key-value pairs."""
        table: Path = ()
        while self.blank():
            if self.text.startswith("[", self.at):
                table = self.header()
            else:
                self.pair(table)

    def header(self) -> Path:
        """`[a.b]` or `[[a.b]]`; the answer is the path of the table that follows."""
        start = self.at
        double = self.text.startswith("[[", start)
        self.at += 2 if double else 1
        parts = [name for name, _, _ in self.key()]
        self.expect("]]" if double else "]")
        path: Path = ()
        for index, part in enumerate(parts):
            path = (*path, part)
            if double and index == len(parts) - 1:
                self.tables[path] = self.tables.get(path, 0) + 1
            if path in self.tables:
                self.found.setdefault(path, self.position(start, self.at, start, self.at))
                path = (*path, self.tables[path] - 1)
            self.found.setdefault(path, self.position(start, self.at, start, self.at))
        self.found[path] = self.position(start, self.at, start, self.at)
        self.once(path, start, self.at)
        return path

    def pair(self, table: Path) -> None:
        """`key = value`, where the key may be dotted."""
        parts = self.key()
        self.expect("=")
        self.space()
        start = self.at
        path = table
        for name, key_start, key_end in parts[:-1]:
            path = (*path, name)
            self.found.setdefault(path, self.position(key_start, key_end, key_start, key_end))
        name, key_start, key_end = parts[-1]
        path = (*path, name)
        self.once(path, key_start, key_end)
        self.value(path)
        self.found[path] = self.position(start, self.at, key_start, key_end)

    def once(self, path: Path, start: int, end: int) -> None:
        """Record a key or table where it is given, and the first that was given before."""
        first = self.given.setdefault(path, start)
        if first != start and self.twice is None:
            place = self.position(start, end, start, end)
            self.twice = Twice(
                path=path,
                line=place.line,
                column=place.column,
                length=place.length,
                first_line=bisect_right(self.starts, first),
            )

    def key(self) -> list[tuple[str, int, int]]:
        """The parts of a dotted key with their offsets."""
        parts = []
        while True:
            self.space()
            start = self.at
            quoted = self.text.startswith(("'", '"'), start)
            name = self.string() if quoted else self.take(_BARE)
            parts.append((name, start, self.at))
            self.space()
            if not self.text.startswith(".", self.at):
                return parts
            self.at += 1

    def value(self, path: Path) -> None:
        """One value; its elements are recorded below `path`."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise _LostError
        if self.text.startswith("[", self.at):
            self.array(path)
        elif self.text.startswith("{", self.at):
            self.inline_table(path)
        elif self.text.startswith(("'", '"'), self.at):
            self.string()
        else:
            start = self.at
            scalar = self.take(_SCALAR)
            if _SHORT_TIME.search(scalar):
                self.note(start, "a time without seconds", "write hh:mm:ss")
        self.depth -= 1

    def array(self, path: Path) -> None:
        """`[…]`; newlines, comments and a trailing comma are TOML 1.0 here."""
        self.at += 1
        index = 0
        while True:
            self.blank()
            if self.text.startswith("]", self.at):
                break
            start = self.at
            element: Path = (*path, index)
            self.value(element)
            self.found[element] = self.position(start, self.at, start, self.at)
            index += 1
            self.blank()
            if not self.text.startswith(",", self.at):
                break
            self.at += 1
        self.expect("]")

    def inline_table(self, path: Path) -> None:
        """`{…}`, on one line and without a trailing comma in TOML 1.0."""
        opening = self.at
        self.at += 1
        comma = None
        while True:
            self.gap(opening)
            if self.text.startswith("}", self.at):
                break
            self.pair(path)
            self.gap(opening)
            comma = None
            if not self.text.startswith(",", self.at):
                break
            comma = self.at
            self.at += 1
        if comma is not None:
            self.note(comma, "a trailing comma in an inline table", "remove the comma")
        self.expect("}")

    def gap(self, opening: int) -> None:
        """Space inside an inline table; a line break is noted once for each table."""
        start = self.at
        self.blank()
        if "\n" in self.text[start : self.at] and opening not in self.broken:
            self.broken.add(opening)
            hint = "keep it on one line, or write a [table] of its own"
            self.note(opening, "an inline table over several lines", hint)

    def string(self) -> str:
        """A string of any of the four kinds; the answer is its raw text without quotes."""
        for quote, pattern in _STRINGS:
            if self.text.startswith(quote, self.at):
                start = self.at
                raw = self.take(pattern)[len(quote) : -len(quote)]
                if quote[0] == '"' and "\\" in raw:
                    return self.unescaped(raw, start + len(quote))
                return raw
        raise _LostError  # pragma: no cover - callers look at the quote first

    def unescaped(self, raw: str, start: int) -> str:
        """`raw` with the escapes that keys may hold undone; escapes of TOML 1.1 are noted."""
        for match in _ESCAPES.finditer(raw):
            if match[0][1] in "ex":
                hint = "write \\u001B" if match[0][1] == "e" else "write \\u00HH"
                self.note(start + match.start(), f"the escape {match[0]}", hint)
        return re.sub(
            r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|.)",
            lambda m: (
                chr(int(m[1] or m[2], 16) % 0x110000) if m[1] or m[2] else _SIMPLE.get(m[0], m[0])
            ),
            raw,
            flags=re.DOTALL,
        )

    def blank(self) -> bool:
        """Skip space, newlines and comments; whether text is left."""
        match = _BLANK.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.at < len(self.text)

    def space(self) -> None:
        """Skip spaces and tabs."""
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def take(self, pattern: re.Pattern[str]) -> str:
        """The text that matches here.

        Raises:
            _LostError: nothing does.
        """
        match = pattern.match(self.text, self.at)
        if match is None:
            raise _LostError
        self.at = match.end()
        return match[0]

    def expect(self, token: str) -> None:
        """Skip `token`.

        Raises:
            _LostError: something else stands here.
        """
        self.space()
        if not self.text.startswith(token, self.at):
            raise _LostError
        self.at += len(token)

    def note(self, offset: int, message: str, hint: str) -> None:
        """Record syntax of TOML 1.1."""
        self.newer.append(Newer(offset, 1, message, hint))

    def position(self, start: int, end: int, key_start: int, key_end: int) -> Position:
        """The position of a value and of its key."""
        line = bisect_right(self.starts, start)
        first = self.starts[line - 1]
        line_end = self.text.find("\n", start)
        end = end if line_end < 0 else min(end, line_end)
        return Position(
            line=line,
            column=start - first + 1,
            length=max(1, end - start),
            key_column=key_start - first + 1,
            key_length=max(1, key_end - key_start),
        )
