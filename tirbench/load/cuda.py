"""The kernels of a `.cu` file, read without a compiler: their names, and how many parameters they have.

The file may be a stranger's, so it is walked once, from token to token: a pattern that looks ahead from every
`__global__` would take the square of its length.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tirbench.diagnostics import did_you_mean
from tirbench.load.bounds import read_source
from tirbench.load.names import names_in

if TYPE_CHECKING:
    from pathlib import Path

    from tirbench.diagnostics import Problems
    from tirbench.model import Launch

_NO_CODE: Final = re.compile(
    r"""("(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?)|//[^\n]*|/\*.*?(?:\*/|\Z)""", re.DOTALL
)
_PART: Final = re.compile(r"[A-Za-z_]\w*|[(){};]")
_NO_NAME: Final = frozenset(
    {"__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__attribute__", "__block_size__"}
    | {"alignas", "decltype", "requires", "__align__"}
)
"""Words between `__global__` and the name that take parentheses of their own."""
_MAX_PARAMETERS: Final = 20_000
"""Characters; a list that goes on for longer is not read."""


def check_cuda(launch: Launch, file: Path, text: str, name: str, problems: Problems) -> None:
    """A `.cu` file defines the kernel, with as many parameters as there are arguments."""
    target = (*launch.path, "target")
    data, error = read_source(file)
    if error:
        problems.add("TB051", target, f"'{text}' cannot be read: {error}")
        return
    code = without_comments(data.decode("utf-8", "replace"))
    kernels = kernels_of(code)
    if name not in kernels:
        hint = did_you_mean(name, kernels, "it defines")
        problems.add("TB051", target, f"'{text}' defines no kernel '{name}'", hint=hint)
        return
    parameters = parameters_at(code, kernels[name])
    given = launch.args.positional
    if parameters is None or launch.args.named or "omit" in names_in(given):
        return
    if len(given) != len(parameters):
        message = f"'{name}' takes {len(parameters)} arguments, got {len(given)}"
        hint = "its parameters: " + ", ".join(parameters)
        problems.add("TB053", (*launch.path, "args"), message, hint=hint)


def without_comments(source: str) -> str:
    """A text of C++ with a space for each comment; what looks like one inside quotes stays."""
    return _NO_CODE.sub(lambda match: match[1] or " ", source)


def kernels_of(code: str) -> dict[str, int]:
    """The kernels of a text without comments, and where the parameters of each begin."""
    found: dict[str, int] = {}
    sought, word, depth = False, "", 0
    for match in _PART.finditer(code):
        part = match[0]
        if part == "__global__":
            sought, word, depth = True, "", 0
        elif not sought:
            continue
        elif part == "(":
            if depth == 0 and word and word not in _NO_NAME:
                found.setdefault(word, match.end())
                sought = False
            depth += 1
        elif part == ")":
            depth -= 1
        elif part in "{};":
            sought = False
        elif depth == 0:
            word = part
    return found


def parameters_at(code: str, begin: int) -> tuple[str, ...] | None:
    """The parameters of a C function, from after its opening parenthesis; `None` if it never closes."""
    source = code[begin : begin + _MAX_PARAMETERS]
    depth, start, found = 0, 0, []
    for index, character in enumerate(source):
        if character in "(<[{":
            depth += 1
        elif character == ")" and depth == 0:
            found.append(source[start:index])
            parameters = [" ".join(parameter.split()) for parameter in found]
            return tuple(p for p in parameters if p and p != "void")
        elif character in ")>]}":
            depth -= 1
        elif character == "," and depth == 0:
            found.append(source[start:index])
            start = index + 1
    return None
