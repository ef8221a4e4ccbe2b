"""What the parser's complaint means for who wrote the file, and what to write instead.

The parser says where it gave up; what is to be changed often stands before that: a comma at the end of the
line above, a quote, the first of two keys of one name. It gives up at the first fault; the others are found
by leaving out the line of each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tirbench import diagnostics
from tirbench.diagnostics import MAX_SHOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from tirbench.diagnostics import Problems

MAX_AGAIN: Final = 50_000
"""Characters of a text that is parsed again without the lines of its faults; workloads are far shorter."""

_PLACE: Final = re.compile(r" \((?:at line (\d+), column (\d+)|at end of document)\)$")
_DIGITS: Final = re.compile(r"[0-9_]{4000,}")
_PARTS: Final = re.compile(r"\(('[^)]*),?\)")
_WORD: Final = re.compile(r"[A-Za-z_][\w.+-]*")
_ENTRY: Final = re.compile(r"""["'{]|[\w.+-]+(?![\w.+-]|[ \t]*=)""")
"""What stands on a line of its own in a list, and is no key."""
_NOTHING: Final = frozenset({"none", "null", "nil", "undefined"})
_UNCLOSED: Final = {"Unclosed array": "]", "Unclosed inline table": "}"}
_ENDLESS: Final = frozenset(
    {
        "Illegal character '\\n'",
        "Found invalid character '\\n'",
        "Unterminated string",
        'Expected "\'"',
        "Expected \"'''\"",
    }
)
_TEXTS: Final = re.compile(r"""\"(?:[^"\\]|\\.)*\"?|'[^']*'?|\#.*""")
_TWICE: Final = ("Cannot overwrite", "Cannot declare", "Duplicate inline table key")


@dataclass(frozen=True, slots=True)
class _Fault:
    """One syntax error: offset and length of what is underlined, and the line to go on without."""

    at: int
    message: str
    hint: str = ""
    length: int = 1
    left_out: int | None = None


def note_syntax(
    text: str,
    error: Exception,
    problems: Problems,
    failure_of: Callable[[str], Exception | None],
) -> None:
    """Note the syntax errors of a text where something is to be changed.

    Args:
        text: of the file.
        error: of the parser.
        problems: where they are noted.
        failure_of: what the parser says of another text.
    """
    failure: Exception | None = error
    for _ in range(MAX_SHOWN):
        if failure is None:
            return
        fault = _fault(text, failure)
        line, column = diagnostics.line_and_column(text, fault.at)
        problems.add_at(
            "TB003",
            f"not TOML: {fault.message}",
            line=line,
            column=column,
            length=fault.length,
            hint=fault.hint,
        )
        shorter = _without(text, fault.left_out) if len(text) <= MAX_AGAIN else None
        if shorter is None:
            return
        text, failure = shorter, failure_of(shorter)


def _without(text: str, line: int | None) -> str | None:
    """The text with a line made blank; `None` where the others would not mean the same without it."""
    if line is None:
        return None
    start = _offset(text, line, 1)
    content = text[start:].partition("\n")[0]
    bare = _TEXTS.sub("", content)
    whole = bare.count("[") == bare.count("]") and bare.count("{") == bare.count("}")
    several = '"""' in content or "'''" in content
    if not whole or several or not content.strip() or content.lstrip().startswith("["):
        return None
    return text[:start] + " " * len(content) + text[start + len(content) :]


def _fault(text: str, error: Exception) -> _Fault:
    """What is to be changed for the parser to get over its complaint."""
    if isinstance(error, RecursionError | MemoryError):
        return _Fault(0, "nested too deeply")
    digits = _DIGITS.search(text)
    match = _PLACE.search(str(error))
    if digits is not None and match is None:  # Python's own limit, without a place
        return _Fault(digits.start(), "a number with too many digits")
    said = _PLACE.sub("", str(error))
    line = int(match[1]) if match and match[1] else None
    at = len(text.rstrip()) if match is None or line is None else _offset(text, line, int(match[2]))
    found = None
    if said.startswith(_TWICE):
        found = _twice(text, line)
    elif said in _ENDLESS:
        found = _endless(text)
    elif said in _UNCLOSED:
        place = _end_before(text, at)
        here = "\n" not in text[place:at] or _ENTRY.match(text, at) is not None
        message = f"a comma or the closing {_UNCLOSED[said]} is missing"
        return _Fault(place, message, left_out=line if here else None)
    elif said == "Invalid value":
        return _no_value(text, at, line)
    if found is not None:
        return found
    plain = _PARTS.sub(_dotted, said)
    hint = _instead(plain, text[at : at + 1])
    message = f"{plain[:1].lower()}{plain[1:]}"
    return _Fault(at, message, hint, left_out=line)


def _twice(text: str, line: int | None) -> _Fault | None:
    """A key or table that is there already."""
    twice = diagnostics.written_twice(text)
    if twice is None:
        return None
    names = ".".join(part for part in twice.path if isinstance(part, str))
    return _Fault(
        _offset(text, twice.line, twice.column),
        f"'{names}' is written twice, first in line {twice.first_line}",
        "remove one of them, or rename it",
        twice.length,
        left_out=line if line == twice.line else None,
    )


def _endless(text: str) -> _Fault | None:
    """A text that never ends, where it begins."""
    start = diagnostics.lost_at(text)
    content = text[start:].partition("\n")[0]
    if content[:1] not in ("'", '"'):
        return None
    line, _ = diagnostics.line_and_column(text, start)
    return _Fault(
        start,
        "text that never ends",
        "close it with the quote that it begins with",
        len(content),
        left_out=line,
    )


def _no_value(text: str, at: int, line: int | None) -> _Fault:
    """Something that is no value: mostly text without quotes."""
    match = _WORD.match(text, at)
    word = match[0] if match else ""
    if not word:
        rest = text[at:].partition("\n")[0].strip()
        message = "a value is missing" if not rest or rest[0] in "#,]}" else "invalid value"
        return _Fault(at, message, left_out=line)
    lowered = word.lower()
    if lowered in ("true", "false", "inf", "nan"):
        hint = f"write {lowered}"
    elif lowered in _NOTHING:
        hint = "what has no value is left out"
    else:
        hint = f'text is quoted: "{word[:40]}"'
    return _Fault(at, f"'{word[:40]}' is no value", hint, len(word), left_out=line)


def _instead(message: str, found: str) -> str:
    """What to write instead of the character that the parser did not expect."""
    if found == ":" and "'='" in message:
        return "write = for :"
    if found in (";", ",") and found and message.startswith("Expected newline"):
        return f"remove the {found}"
    return ""


def _offset(text: str, line: int, column: int) -> int:
    """The offset of a place, counted from 1."""
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
    return start + column - 1


def _end_before(text: str, at: int) -> int:
    """The end of what stands before an offset: neither space nor a comment."""
    while True:
        while at and text[at - 1].isspace():  # no slices: there may be a hundred thousand comments
            at -= 1
        start = text.rfind("\n", 0, at) + 1
        comment = _comment(text[start:at])
        if comment is None:
            return at
        at = start + comment


def _comment(line: str) -> int | None:
    """Where a comment begins in a line; strings of one line may hold its sign."""
    quote = ""
    escaped = False
    for index, character in enumerate(line):
        if escaped:
            escaped = False
        elif quote:
            escaped = quote == '"' and character == "\\"
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "#":
            return index
    return None


def _dotted(parts: re.Match[str]) -> str:
    """`('a', 'b')` of the parser as `[a.b]`."""
    return f"[{parts[1].rstrip(',').replace(chr(39), '').replace(', ', '.')}]"
