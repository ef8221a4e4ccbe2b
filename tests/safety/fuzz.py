"""Loader, expressions and renderer on damaged, random and hostile input; nothing but `TirbenchError` escapes.

    python -m tests.safety.fuzz 20000

runs so many of each target and prints what came out; the tests run a few hundred. A seed gives the same
input on every machine.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from tirbench.errors import TirbenchError
from tirbench.expand import count, expand
from tirbench.expression import Expression, Layout, Scope, bind
from tirbench.load import load
from tirbench.render import render
from tirbench.values import Dtype

HERE: Final = Path(__file__).parent
EXAMPLES: Final = HERE.parent / "load" / "examples"
BAD: Final = HERE.parent / "bad"
RIGHT, WRONG = (
    [path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("*.toml"))]
    for folder in (EXAMPLES, BAD)
)
TEXTS: Final = [*RIGHT, *WRONG]
TOKEN: Final = re.compile(r'("[^"\n]*"|\w+|[=\[\]{},.])')
WORDS: Final = sorted({word for text in TEXTS for word in TOKEN.findall(text)})
VALUES: Final = [word for word in WORDS if word[0] == '"' or word.isdigit()]
HOSTILE: Final = (
    *('""', '"{{ x }}"', '"{% x %}"', "'\"'", '"\\n"', '"\\u0000"', '"\\u202e"', '"\\u001b[2J"'),
    *("'''a\nb'''", "\"__import__('os')\"", '"../../x.py:f"', '"/etc/passwd:f"', '"class"', "inf"),
    *("nan", "-1", "0", "1e400", "9" * 30, "[]", "{}", "[[1]]", "1979-05-27", "true", '"omit"'),
    *('"x"', '"x.py:é"', '"\\"; import os; \\""', "{ kind = 1 }", '"n" ', '"a" * 3', '"\\\\"'),
)

Target: TypeAlias = Callable[[random.Random, Path], str]


def damaged(rng: random.Random, folder: Path) -> str:
    """An example or a bad file with words replaced by others, left out, or by hostile values."""
    parts = TOKEN.split(rng.choice(rng.choice((RIGHT, RIGHT, RIGHT, WRONG))))
    values = [index for index, part in enumerate(parts) if part[:1] == '"' or part.isdigit()]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        index = rng.choice(values) if values and rng.random() < 0.7 else rng.randrange(len(parts))
        if parts[index].isdigit() and rng.random() < 0.8:
            parts[index] = rng.choice(("0", "1", "2", "3", "8", "64", "65", "100"))
        elif rng.random() < 0.3:
            parts[index] = parts[rng.choice(values)] if values else ""
        else:
            parts[index] = rng.choice([rng.choice(WORDS), rng.choice(HOSTILE), ""])
    return judged("".join(parts).encode("utf-8", "replace"), folder)


def flipped(rng: random.Random, folder: Path) -> str:
    """An example with bytes of any value put in, taken out, or changed; or with parts doubled."""
    data = bytearray(rng.choice(RIGHT).encode())
    for _ in range(rng.choice((1, 1, 2, 6))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0:
                data[at:at] = bytes([rng.randrange(256)])
            case 1:
                del data[at : at + rng.randint(1, 40)]
            case 2:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case _:
                data[at:at] = data[at : at + rng.randint(1, 200)]
    return judged(bytes(data), folder)


def grown(rng: random.Random, folder: Path) -> str:
    """Random TOML of the right keys and any values."""

    def value(depth: int) -> str:
        match rng.randrange(5 if depth < 3 else 3):
            case 0:
                return rng.choice(HOSTILE)
            case 1 | 2:
                word: str = rng.choice(VALUES)
                return word
            case 3:
                return "[" + ", ".join(value(depth + 1) for _ in range(rng.randrange(4))) + "]"
            case _:
                keys = {rng.choice(KEYS) for _ in range(rng.randrange(4))}
                return "{" + ", ".join(f"{key} = {value(depth + 1)}" for key in sorted(keys)) + "}"

    lines = ["schema = 1", 'description = "grown"']
    for table in rng.sample(TABLES, rng.randint(2, len(TABLES))):
        lines.append(table)
        keys = {rng.choice(KEYS) for _ in range(rng.randrange(6))}
        lines += [f"{key} = {value(0)}" for key in sorted(keys)]
    return judged("\n".join(lines).encode("utf-8", "replace"), folder)


KEYS: Final = (
    *("x", "y", "n", "kind", "target", "args", "returns", "grid", "shape", "dtype", "role", "init"),
    *(
        "like",
        "view",
        "strides",
        "when",
        "reason",
        "rtol",
        "flops",
        "bytes",
        "default",
        "of",
        "grad",
    ),
)
TABLES: Final = (
    *("[params]", "[matrix]", "[derive]", "[tensors]", "[tensors.x]", "[kernels.k]", "[check]"),
    *("[references.r]", "[check.oracle]", "[check.outputs.y]", "[work]", "[gate]", "[select]"),
    *(
        "[[case]]",
        "[[skip]]",
        "[[init]]",
        "[[kernels.k.steps]]",
        "[timer]",
        "[requires]",
        "[ranks]",
    ),
)


def judged(data: bytes, folder: Path) -> str:
    """Load, expand and render a file; what is right must render to a program that Python can read."""
    path = folder / "w.toml"
    path.write_bytes(data)
    workload = load(path)
    if count(workload) > 200:
        return "large"
    cases = expand(workload)
    harness = render(workload, cases)
    ast.parse(harness.text)
    return "rendered"


PIECES: Final = (
    *("a", "b", "t", "n", "1", "0", "62", "2.5", "inf", "nan", "True", "None", "'s'", "float16"),
    *("+", "-", "*", "/", "//", "%", "**", "==", "<", "and", "or", "not", "if", "else", "(", ")"),
    *(",", "min(", "max(", "size(", "nbytes(", "cdiv(", "sum(", "str(", "int32(", "len(", "omit"),
    *(
        "lambda",
        ":",
        "[",
        "]",
        ".",
        "__class__",
        "{",
        "}",
        "\\",
        "\n",
        "#",
        "é",
        ":=",
        "@",
        "f'{a}'",
    ),
)
SCOPE: Final = Scope(
    values={"a": 3, "b": (1, 2), "n": -1, "s": "text"},
    tensors={"t": Layout(dtype=Dtype("int32"), shape=(4, 2))},
)


def expressions(rng: random.Random, _: Path) -> str:
    """Expressions of any pieces, in any order."""
    text = rng.choice(("", " ")).join(
        rng.choice(PIECES) for _ in range(rng.choice((1, 2, 3, 3, 4, 5, 5, 7, 20)))
    )
    bind(Expression(text), SCOPE)
    return "value"


TARGETS: Final[dict[str, Target]] = {
    "damaged files": damaged,
    "changed bytes": flipped,
    "random TOML": grown,
    "expressions": expressions,
}


def project(root: Path) -> Path:
    """A folder with the kernels that the examples name."""
    (root / ".tirbench").mkdir()
    (root / "kernels" / "include").mkdir(parents=True)
    for folder in (EXAMPLES, BAD):
        for source in (folder / "kernels").glob("*.txt"):
            shutil.copy(source, root / "kernels" / source.stem)
    return root


def run(target: Target, number: int, seed: int, root: Path) -> Counter[str]:
    """So many inputs; what came of them.

    Raises:
        AssertionError: something else than a `TirbenchError` escaped; the seed is in the message.
    """
    outcomes: Counter[str] = Counter()
    for index in range(seed, seed + number):
        try:
            outcomes[target(random.Random(index), root)] += 1  # noqa: S311 - damage, not secrets
        except TirbenchError as error:  # noqa: PERF203 - each input is judged by itself
            str(error)  # which places its diagnostics
            outcomes["refused"] += 1
        except Exception as error:
            trace = "".join(traceback.format_exception(error)[-4:])
            raise AssertionError(f"{target.__name__} of seed {index}:\n{trace}") from error
    return outcomes


def main() -> None:
    """Run every target and print the counts."""
    parser = argparse.ArgumentParser(description="Fuzz loader, expressions and renderer.")
    parser.add_argument("number", type=int, help="inputs of each target")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = project(Path(folder))
        for name, target in TARGETS.items():
            outcomes = run(target, given.number, given.seed, root)
            listed = ", ".join(f"{number:,} {what}" for what, number in sorted(outcomes.items()))
            sys.stdout.write(f"{name}: {outcomes.total():,} runs: {listed}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
