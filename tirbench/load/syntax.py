"""What the parser's complaint means for who wrote the file, and what to write instead.

The parser says where it gave up; what is to be changed often stands before that: a comma at the end of the
line above, a quote, the first of two keys of one name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tirbench import diagnostics

if TYPE_CHECKING:
    from tirbench.diagnostics import Problems

_PLACE: Final = re.compile(r" \((?:at line (\d+), column (\d+)|at end of document)\)$")
_DIGITS: Final = re.compile(r"[0-9_]{4000,}")
_PARTS: Final = re.compile(r"\(('[^)]*),?\)")
_WORD: Final = re.compile(r"[A-Za-z_][\w.+-]*")
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
_TWICE: Final = ("Cannot overwrite", "Cannot declare", "Duplicate inline table key")


def note_syntax(text: str, error: Exception, problems: Problems) -> None:
    """Note a syntax error where something is to be changed.

    Args:
        text: of the file.
        error: of the parser.
        problems: where it is noted.
    """
    if isinstance(error, RecursionError | MemoryError):
        problems.add_at("TB003", "not TOML: nested too deeply", line=1, column=1)
        return
    digits = _DIGITS.search(text)
    match = _PLACE.search(str(error))
    if digits is not None and match is None:  # Python's own limit, without a place
        _note(text, digits.start(), "a number with too many digits", problems)
        return
    said = _PLACE.sub("", str(error))
    at = len(text.rstrip())
    if match and match[1]:
        at = _offset(text, int(match[1]), int(match[2]))
    if said.startswith(_TWICE) and _note_twice(text, problems):
        return
    if said in _ENDLESS and _note_endless(text, problems):
        return
    if said in _UNCLOSED:
        message = f"a comma or the closing {_UNCLOSED[said]} is missing"
        _note(text, _end_before(text, at), message, problems)
    elif said == "Invalid value":
        _note_value(text, at, problems)
    else:
        plain = _PARTS.sub(_dotted, said)
        hint = _instead(plain, text[at : at + 1])
        _note(text, at, f"{plain[:1].lower()}{plain[1:]}", problems, hint=hint)


def _note_twice(text: str, problems: Problems) -> bool:
    """Note a key or table that is there already; whether one was found."""
    twice = diagnostics.written_twice(text)
    if twice is None:
        return False
    names = [part for part in twice.path if isinstance(part, str)]
    problems.add_at(
        "TB003",
        f"not TOML: '{'.'.join(names)}' is written twice, first in line {twice.first_line}",
        line=twice.line,
        column=twice.column,
        length=twice.length,
        hint="remove one of them, or rename it",
    )
    return True


def _note_endless(text: str, problems: Problems) -> bool:
    """Note a text that never ends where it begins; whether one was found."""
    start = diagnostics.lost_at(text)
    line = text[start:].partition("\n")[0]
    if line[:1] not in ("'", '"'):
        return False
    hint = "close it with the quote that it begins with"
    _note(text, start, "text that never ends", problems, hint=hint, length=len(line))
    return True


def _note_value(text: str, at: int, problems: Problems) -> None:
    """Note something that is no value: mostly text without quotes."""
    match = _WORD.match(text, at)
    word = match[0] if match else ""
    if not word:
        line = text[at:].partition("\n")[0].strip()
        message = "a value is missing" if not line or line[0] in "#,]}" else "invalid value"
        _note(text, at, message, problems)
        return
    lowered = word.lower()
    if lowered in ("true", "false", "inf", "nan"):
        hint = f"write {lowered}"
    elif lowered in _NOTHING:
        hint = "what has no value is left out"
    else:
        hint = f'text is quoted: "{word[:40]}"'
    _note(text, at, f"'{word[:40]}' is no value", problems, hint=hint, length=len(word))


def _instead(message: str, found: str) -> str:
    """What to write instead of the character that the parser did not expect."""
    if found == ":" and "'='" in message:
        return "write = for :"
    if found in (";", ",") and found and message.startswith("Expected newline"):
        return f"remove the {found}"
    return ""


def _note(
    text: str, at: int, message: str, problems: Problems, *, hint: str = "", length: int = 1
) -> None:
    line, column = diagnostics.line_and_column(text, at)
    problems.add_at(
        "TB003", f"not TOML: {message}", line=line, column=column, hint=hint, length=length
    )


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
