"""Files made to cost time or memory end early, with one message, whatever their trick."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]
BAD = ROOT / "tests" / "bad"
WHOLE = (BAD / "argument_missing.toml").read_text(encoding="utf-8")
WHOLE = WHOLE.replace('eps = "eps" }', 'eps = "eps", BLOCK = "next_pow2(hidden)" }')
CPU_S: Final = 20
MEMORY: Final = 1 << 30

WORK = '"nbytes(x) + nbytes(w) + nbytes(y)"'
MATRIX = "batch = [1, 32]"


def lines(number: int, line: Callable[[int], str]) -> str:
    return "".join(f"{line(index)}\n" for index in range(number))


def tensors(entries: str) -> str:
    return WHOLE.replace("[kernels.triton]", f"{entries}\n[kernels.triton]")


def chain(number: int, link: Callable[[int], str], last: str) -> str:
    """Tensors that each need the next; the kernel needs the first."""
    text = tensors(lines(number, lambda i: f"t{i} = {{ {link(i)} }}") + f"t{number} = {{ {last} }}")
    return text.replace('args = ["x", "w", "eps"]', 'args = ["t0", "w", "eps"]', 1)


def expression(text: str) -> str:
    return WHOLE.replace(WORK, f'"{text}"')


LAST = 'shape = ["hidden"], dtype = "float16", init = "normal"'

BOMBS = {
    # more of something than a workload has
    "cases by cross product": WHOLE.replace(
        MATRIX, MATRIX + "\n" + lines(7, lambda i: f"p{i} = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]")
    ),
    "more cases than atoms": WHOLE.replace(
        MATRIX, MATRIX + "\n" + lines(300, lambda i: f"p{i} = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]")
    ),
    "a long axis": WHOLE.replace(MATRIX, f"batch = [{', '.join(map(str, range(1, 3_000)))}]"),
    "a long axis without its name in the id": WHOLE.replace(
        MATRIX, f"batch = [{', '.join(map(str, range(1, 2_000)))}]"
    ).replace("_b{batch}", ""),
    "cases one by one": WHOLE + lines(40_000, lambda i: f"[[case]]\nhidden={i}\nbatch=3"),
    "unknown keys": WHOLE + lines(90_000, lambda i: f"a{i} = 1"),
    "headers": WHOLE + lines(90_000, lambda i: f"[k{i}]"),
    "tables of an array": WHOLE + "[[skip]]\n" * 90_000,
    "tables in tables of arrays": WHOLE + "[[a]]\n[[a.b]]\n[[a.b.c]]\n" * 20_000,
    "params": WHOLE.replace("[params]\n", "[params]\n" + lines(90_000, lambda i: f"a{i} = 1")),
    "derived names": WHOLE + "[derive]\n" + lines(50_000, lambda i: f"d{i} = 'd{i + 1}'"),
    "arguments": WHOLE.replace('"eps"]', '"eps"' + ', "eps"' * 90_000 + "]", 1),
    "entries of a shape": WHOLE.replace('"hidden"]', '"hidden"' + ', "hidden"' * 90_000 + "]", 1),
    "numbers of a list": WHOLE.replace("eps = 1e-6", "l = [" + "1, " * 300_000 + "1]\neps = 1e-6"),
    "inline tables of TOML 1.1": WHOLE + "[meta]\n" + lines(90_000, lambda i: f"a{i}={{\n}}"),
    "a file of 50 MB": WHOLE + "#" + "x" * (50 << 20),
    # just as many as there may be, each judged against the others
    "a chain of derived names": expression("d0")
    + "[derive]\n"
    + lines(990, lambda i: f"d{i} = 'd{i + 1} + d{i + 1}'")
    + "d990 = 1\n",
    "a ring of derived names": WHOLE
    + "[derive]\n"
    + lines(990, lambda i: f"d{i} = 'd{(i + 1) % 990} + d{(i + 2) % 990}'"),
    "a chain of like": chain(990, lambda i: f'like = "t{i + 1}", init = "zeros"', LAST),
    "a chain of views": chain(990, lambda i: f'view = "t{i + 1}"', LAST),
    "a chain of shapes": chain(
        990, lambda i: f'shape = ["size(t{i + 1}, 0)"], dtype = "float16", init = "zeros"', LAST
    ),
    "tensors": tensors(lines(990, lambda i: f"t{i} = {{ {LAST} }}")),
    "kernels": WHOLE
    + lines(
        990,
        lambda i: (
            f'[kernels.k{i}]\ntarget = "kernels/scale.py:scale"\nargs = ["x", "w", "eps"]\n'
            'returns = "y"'
        ),
    ),
    "skips": WHOLE + lines(990, lambda i: f"[[skip]]\nwhen = 'hidden == {i}'\nreason = 'no'"),
    "globs that go back and forth": WHOLE.replace('"h128_b1"]', f'"{"*h" * 200}z"]').replace(
        'id = "', f'id = "{"h" * 180}'
    ),
    # depth
    "nested arrays": f"{WHOLE}[meta]\na = {'[' * 90_000}{']' * 90_000}",
    "nested inline tables": f"{WHOLE}[meta]\na = {'{a = ' * 90_000}1{'}' * 90_000}",
    "a dotted key": f"{WHOLE}[meta]\n{'.'.join('a' * 400_000)} = 1",
    "a dotted header": f"{WHOLE}[{'.'.join('a' * 400_000)}]\nx = 1",
    "a quoted dotted key": WHOLE + "[meta]\n" + ".".join(['"a b"'] * 90_000) + " = 1",
    "dotted keys": f"{WHOLE}[meta]\n" + lines(900, lambda i: ".".join("a" * 60) + f".k{i} = 1"),
    # expressions
    "a tower of powers": expression("62 ** 62 ** 62 ** 62"),
    "parentheses": expression("(" * 490 + "1" + ")" * 490),
    "signs": expression("-" * 990 + "1"),
    "digits of an expression": expression("9" * 999),
    "a long expression": expression("1 + " * 200_000 + "1"),
    "digits": WHOLE.replace("1e-6", "9" * 900_000),
    "a long list in an expression": expression("sum((l + 1) * l + l * l)").replace(
        "eps = 1e-6", "l = [" + "1, " * 90_000 + "1]\neps = 1e-6"
    ),
    # texts
    "a long text": WHOLE.replace("Row-wise", "R" * 900_000),
    "a long id": WHOLE.replace('id = "', 'id = "' + "h" * 900_000),
    "a text without an end": WHOLE + 'a = """' + "\\n" * 400_000,
    "a long key with dots after it": WHOLE + "a" * 900_000 + "." * 70,
}

HARMLESS = {"a long text", "dotted keys", "a long list in an expression", "a long axis", "kernels"}
"""Large, and right."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bombs")
    (root / "pyproject.toml").touch()
    (root / "kernels").mkdir()
    for source in (BAD / "kernels").glob("*.txt"):
        shutil.copy(source, root / "kernels" / source.stem)
    return root


def limited(arguments: Iterable[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """A command that the kernel ends when it takes too much; nothing here looks at a clock."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    return subprocess.run(
        [sys.executable, "-m", "tirbench", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_in_one_message(name: str, project: Path) -> None:
    path = project / "bomb.toml"
    path.write_text(BOMBS[name], encoding="utf-8")
    done = limited(["check", path.name], project)
    assert done.returncode == (0 if name in HARMLESS else 2), done.stderr[-2000:] + done.stdout
    assert done.stderr == ""
    assert len(done.stdout) < 20_000, "a message is read by a person"
    if name not in HARMLESS:
        assert done.stdout.startswith("bomb.toml:")


@pytest.mark.parametrize("command", ["list", "show", "compile"])
def test_no_command_builds_the_cases_that_it_counts(command: str, project: Path) -> None:
    path = project / "bomb.toml"
    path.write_text(BOMBS["cases by cross product"], encoding="utf-8")
    done = limited([command, path.name], project)
    assert done.returncode == 2
    assert "error[TB036]: 40,000,000 cases; a workload has at most 100,000" in done.stderr


# --- Source files that a workload names -----------------------------------------------------------

MOST: Final = 1 << 20
TOO_DEEP = "nested too deeply"

SOURCES = {
    "a chain of sums": ("s.py", "a = " + "1 + " * (MOST // 5) + "1\n", TOO_DEEP),
    "a chain of attributes": ("s.py", "a" + ".a" * (MOST // 3) + "\n", TOO_DEEP),
    "a chain of calls": ("s.py", "f" + "()" * (MOST // 3) + "\n", TOO_DEEP),
    "signs": ("s.py", "-" * (MOST // 2) + "1\n", TOO_DEEP),
    "parentheses in Python": ("s.py", "(" * (MOST // 2), "too many nested parentheses"),
    "statements": ("s.py", "a;" * (MOST // 2 - 10) + "\n", "defines no 'f'"),
    "functions": ("s.py", "def g(): 1\n" * (MOST // 12), "it defines: g"),
    "assignments": ("s.py", lines(MOST // 14, lambda i: f"n{i:06} = 1"), "defines no 'f'"),
    "decorators": ("s.py", "@a\n" * (MOST // 4) + "def f(): 1\n", ""),
    "50 MB of Python": ("s.py", "#" * (50 << 20), "larger than 1 MiB"),
    "50 MB of CUDA": ("s.cu", "/" * (50 << 20), "larger than 1 MiB"),
    "__global__": ("s.cu", "__global__ " * (MOST // 12), "defines no kernel 'f'"),
    "kernels": ("s.cu", "__global__ void a(" * (MOST // 20), "defines no kernel 'f'"),
    "words": ("s.cu", "__global__ " + "a " * (MOST // 3), "defines no kernel 'f'"),
    "open comments": ("s.cu", "/* " * (MOST // 4), "defines no kernel 'f'"),
    "open texts": ("s.cu", "\"'" * (MOST // 3), "defines no kernel 'f'"),
    "parameters": ("s.cu", "__global__ void f(" + "int a, " * (MOST // 8), ""),
}


def source_of(name: str, folder: Path) -> str:
    """A workload that names the file, which is written."""
    file, content, _ = SOURCES[name]
    (folder / "kernels" / file).write_text(content)
    if file.endswith(".py"):
        return WHOLE.replace('"kernels/scale.py:scale"', f'"kernels/{file}:f"', 1)
    kernel = f'kind = "cuda"\ntarget = "kernels/{file}:f"\nblock = [1]\nargs = ["x", "y"]\n'
    begin, end = WHOLE.index('kind = "triton"'), WHOLE.index("args = {")
    rest = WHOLE[end:].partition("\n")[2].replace("num_warps = 4\n", "")
    return WHOLE[:begin] + kernel + "grid = [1]\n" + rest


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_file_that_is_a_bomb_ends_in_one_message(name: str, project: Path) -> None:
    path = project / "bomb.toml"
    path.write_text(source_of(name, project), encoding="utf-8")
    done = limited(["check", path.name], project)
    assert done.returncode in (0, 2), done.stderr[-2000:] + done.stdout
    assert done.stderr == ""
    assert len(done.stdout) < 20_000
    if sys.version_info >= (3, 11) or SOURCES[name][2] != TOO_DEEP:
        assert SOURCES[name][2] in done.stdout
