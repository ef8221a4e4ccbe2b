"""A stranger's file can name nothing outside the project, run nothing, and say nothing to a terminal."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tirbench.errors import InputError
from tirbench.expand import expand
from tirbench.load import load

ROOT = Path(__file__).parents[2]
BAD = ROOT / "tests" / "bad"
WHOLE = (BAD / "argument_missing.toml").read_text(encoding="utf-8")
WHOLE = WHOLE.replace('eps = "eps" }', 'eps = "eps", BLOCK = "next_pow2(hidden)" }')
DRIVES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
"""What moves a cursor, hides text or turns its direction."""

COMMANDS = (
    ("check", "{}"),
    ("check", "{}", "--format", "json"),
    ("check", "{}", "--format", "github"),
    ("check", "{}", "--format", "sarif"),
    ("check", "{}", "--format", "markdown"),
    ("list", "{}"),
    ("list", "{}", "--json"),
    ("show", "{}"),
    ("compile", "{}"),
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "kernels").mkdir(parents=True)
    (root / "pyproject.toml").touch()
    for source in (BAD / "kernels").glob("*.txt"):
        shutil.copy(source, root / "kernels" / source.stem)
    return root


def problems(project: Path, text: str | bytes, name: str = "w.toml") -> str:
    path = project / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        expand(load(path))
    except InputError as error:
        return str(error)
    return ""


def tirbench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tirbench", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff\xfe", "w.toml:1:1: error[TB002]: not UTF-8: byte 0xff"),
        (WHOLE.encode() + b"# \xc3\x28", "not UTF-8: byte 0xc3"),
        (WHOLE.encode() + b"# \xed\xa0\x80", "not UTF-8: byte 0xed"),  # half of a surrogate pair
        (WHOLE.encode() + b"# \xf4\x90\x80\x80", "not UTF-8: byte 0xf4"),  # beyond Unicode
        (WHOLE.encode() + b"\x00", "control character U+0000"),
        (WHOLE.encode() + b"# \x1b[2J", "control character U+001B"),
        (WHOLE.encode() + b"a\rb", "control character U+000D"),
        (b"\xef\xbb\xbf" + WHOLE.encode(), "a byte order mark"),
        (b"", "no version of the language"),
    ],
)
def test_bytes_that_are_no_text_are_refused(project: Path, data: bytes, message: str) -> None:
    assert message in problems(project, data)


@pytest.mark.parametrize("word", ["class", "None", "lambda", "torch", "case", "f", "__import__"])
def test_no_tensor_takes_a_name_that_python_or_the_harness_has(project: Path, word: str) -> None:
    text = re.sub(r"\bw\b", word, WHOLE.replace("Row-wise scaling, y = x * w", "y"))
    found = problems(project, text)
    assert re.search(r"error\[TB(016|024)\]", found), found


@pytest.mark.parametrize(
    "name",
    [
        '"a b"',
        '"a\\"b"',
        '"\\u202ea"',
        '"a\\nb"',
        '"{{ a }}"',
        '"a;b"',
        '"é"',
        '"../a"',
        '""',
        '"1a"',
    ],
)
def test_a_name_is_letters_digits_and_underscores(project: Path, name: str) -> None:
    for table in ("params", "derive", "matrix"):
        text = f"{WHOLE}\n[{table}]\n" if f"[{table}]" not in WHOLE else WHOLE
        value = "[1, 2]" if table == "matrix" else "1"
        found = problems(project, text.replace(f"[{table}]", f"[{table}]\n{name} = {value}", 1))
        assert "TB016" in found, found
        assert not DRIVES.search(found)


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("/etc/passwd.py:f", "TB050"),
        ("../outside.py:f", "TB050"),
        ("kernels/../../outside.py:f", "TB050"),
        ("kernels/link.py:f", "TB050"),
        ("kernels/folder/outside.py:f", "TB050"),
        ("kernels\\\\scale.py:f", "TB050"),
        ("C:/x.py:f", "TB050"),
        ("~/x.py:f", "TB051"),
        ("$HOME/x.py:f", "TB051"),
        ("kernels/loop.py:f", "TB051"),
        ("kernels/fifo.py:f", "TB051"),
        ("kernels:f", "TB050"),
        ("file:///etc/passwd.py:f", "TB050"),
        (
            "os.system",
            "",
        ),  # a dotted path: whether it exists says the run, since importing runs code
    ],
)
def test_no_path_leads_out_of_the_project(project: Path, target: str, code: str) -> None:
    (project.parent / "outside.py").write_text("def f(x, w, eps): ...\n")
    (project / "kernels" / "link.py").symlink_to(project.parent / "outside.py")
    (project / "kernels" / "folder").symlink_to(project.parent)
    (project / "kernels" / "loop.py").symlink_to(project / "kernels" / "loop.py")
    os.mkfifo(project / "kernels" / "fifo.py")
    text = WHOLE.replace('target = "kernels/scale.py:scale"', f'target = "{target}"', 1)
    found = problems(project, text)
    assert (f"error[{code}]" in found) if code else not found, found


@pytest.mark.parametrize("command", ["check", "list", "show", "compile", "migrate"])
def test_a_workload_that_is_a_link_out_of_the_project_is_neither_read_nor_written(
    project: Path, command: str
) -> None:
    secret = project.parent / "secret.toml"
    secret.write_text("schema = 0\npassword = 'hunter2\n")
    (project / "w.toml").symlink_to(secret)
    (project / "linked").symlink_to(project.parent)
    for argument in ("w.toml", "linked/secret.toml"):
        done = tirbench(project, command, argument)
        assert done.returncode == 2
        assert "a link that leads out of the project" in done.stdout + done.stderr
        assert "hunter2" not in done.stdout + done.stderr
    assert secret.read_text() == "schema = 0\npassword = 'hunter2\n"


def test_a_link_inside_the_project_is_followed(project: Path) -> None:
    (project / "folder").mkdir()
    (project / "w.toml").write_text(WHOLE)
    (project / "v.toml").symlink_to("w.toml")
    assert tirbench(project, "check", "v.toml").returncode == 0


def test_a_project_that_is_reached_through_a_link_is_the_same_project(project: Path) -> None:
    (project / "w.toml").write_text(WHOLE)
    link = project.parent / "link"
    link.symlink_to(project)
    assert tirbench(project.parent, "check", str(link / "w.toml")).returncode == 0


def test_a_workload_that_is_no_file_is_refused(project: Path) -> None:
    os.mkfifo(project / "w.toml")
    done = tirbench(project, "check", "w.toml")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    (project / "x.toml").symlink_to("/dev/zero")
    done = tirbench(project, "check", "x.toml")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


EVIL = (
    r"\u001b]0;x\u0007\u001b[2J\u202e<script>alert(1)</script>|`@x`\n::error::y {{ 7*7 }} {% x %}"
)


def hostile(project: Path) -> None:
    """A right file whose every free text is hostile, and a wrong one whose names are."""
    free = (
        WHOLE.replace("Row-wise scaling, y = x * w", EVIL)
        + f'\n[meta]\nnote = "{EVIL}"\n\n[[skip]]\nwhen = "batch == 32"\nreason = "{EVIL}"\n'
        + f'\n[check.outputs.y]\nrtol = 0.5\nreason = "{EVIL}"\n'
    )
    (project / "right.toml").write_text(free)
    named = WHOLE + f'\n["{EVIL}"]\n"{EVIL}" = "{EVIL}"\n'
    named = named.replace('"eps"]', f'"{EVIL}"]', 1).replace('init = "normal"', f'init = "{EVIL}"')
    (project / "wrong.toml").write_text(named)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_nothing_that_is_printed_drives_a_terminal_or_a_runner(
    command: tuple[str, ...], project: Path
) -> None:
    hostile(project)
    for name, code in (("right.toml", 0), ("wrong.toml", 2)):
        done = tirbench(project, *(part.replace("{}", name) for part in command))
        assert done.returncode == code, done.stdout + done.stderr
        text = done.stdout + done.stderr
        assert not DRIVES.search(text), DRIVES.findall(text)
        commands = [line for line in text.splitlines() if line.startswith("::")]
        assert all(re.match(r"::(error|warning) file=", line) for line in commands)
        if "json" in command or "sarif" in command:
            json.loads(done.stdout)


def test_reading_runs_and_imports_nothing_that_is_named(project: Path) -> None:
    trap = 'open("sprung", "w").close()\nraise SystemExit(7)\n'
    for folder in (project, project / "kernels"):
        for name in ("torch", "triton", "numpy", "conftest", "sitecustomize_", "usercustomize_"):
            (folder / f"{name}.py").write_text(trap)
    scale = project / "kernels" / "scale.py"
    scale.write_text(trap + scale.read_text())
    (project / "w.toml").write_text(WHOLE)
    for command in COMMANDS:
        done = tirbench(project, *(part.replace("{}", "w.toml") for part in command))
        assert done.returncode == 0, done.stdout + done.stderr
    assert not list(project.rglob("sprung"))


@pytest.mark.parametrize("arguments", [("--help",), ("check", "w.toml"), ("check", "bad.toml")])
def test_reading_imports_nothing_heavy(arguments: tuple[str, ...], project: Path) -> None:
    (project / "w.toml").write_text(WHOLE)
    (project / "bad.toml").write_text(WHOLE.replace("dtype", "dtyp"))
    program = (
        "import sys\nfrom tirbench.cli import main\ntry:\n    main()\nfinally:\n"
        "    print(*({'torch', 'triton', 'numpy', 'jinja2', 'rich'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.strip() == ""
