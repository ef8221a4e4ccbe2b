"""Two revisions in one process: a process of its own each time, as isolation lasts for its life."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

ROOT = Path(__file__).resolve().parents[2]
Trees: TypeAlias = "Callable[..., Path]"
Run: TypeAlias = "Callable[[str], str]"

HEAD = """\
import sys
from pathlib import Path
from tirbench.launch import roots
from tirbench.launch.targets import load_target
here = Path("PLACE")
trees = [here / "base", here / "head"]
for tree in trees:
    roots.isolate(tree, here / "project")
def of(target):
    return [load_target(tree / "w", target) for tree in trees]
"""


@pytest.fixture
def tree(tmp_path: Path) -> Trees:
    """Writes a file into both trees, `SIDE` replaced by the name of each."""

    def write(path: str, text: str) -> Path:
        for side in ("base", "head"):
            file = tmp_path / side / "w" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace("SIDE", side))
        return tmp_path

    return write


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a program after the two trees were isolated; answers what it prints."""

    def start(program: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", HEAD.replace("PLACE", str(tmp_path)) + program],
            capture_output=True,
            text=True,
            check=False,
            env={"PYTHONPATH": str(ROOT)},
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return start


def test_siblings_of_each_tree_are_its_own_also_when_imported_late(tree: Trees, run: Run) -> None:
    tree("kernels/helper.py", "NAME = 'SIDE'\n")
    tree("kernels/late.py", "import helper\nNAME = helper.NAME + ' late'\n")
    tree(
        "kernels/k.py",
        "from helper import NAME\n"
        "def now():\n    return NAME\n"
        "def late():\n    import late\n    from importlib import import_module\n"
        "    return late.NAME, import_module('helper').NAME\n",
    )
    # Called in turns: the second call of a side must not see what the other has imported.
    said = run(
        "a, b = of('kernels/k.py:late')\nn = [f() for f in of('kernels/k.py:now')]\n"
        "print(n, a(), b(), a(), 'helper' in sys.modules, any('kernels' in p for p in sys.path))"
    )
    assert said == (
        "['base', 'head'] ('base late', 'base') ('head late', 'head') ('base late', 'base') "
        "False False"
    )


def test_packages_namespaces_and_circles_work_as_they_do_alone(tree: Trees, run: Run) -> None:
    tree("kernels/pkg/__init__.py", "from pkg.part import PART\nfrom . import part\n")
    tree("kernels/pkg/part.py", "import pkg\nPART = 'SIDE part'\n")
    tree("kernels/space/deep.py", "DEEP = 'SIDE deep'\n")
    tree("kernels/first.py", "import second\nFIRST = 'SIDE first'\n")
    tree("kernels/second.py", "import first\ndef get():\n    return first.FIRST\n")
    tree(
        "kernels/k.py",
        "import pkg.part as aliased\nimport pkg\nimport space.deep\nfrom space import deep\n"
        "import first, second\n"
        "def all():\n    return pkg.PART, aliased.PART, space.deep.DEEP, deep.DEEP, second.get()\n",
    )
    first, second = run("for f in of('kernels/k.py:all'): print(f())").splitlines()
    assert first == "('base part', 'base part', 'base deep', 'base deep', 'base first')"
    assert second == first.replace("base", "head")


def test_a_sibling_and_a_target_of_one_file_are_one_module(tree: Trees, run: Run) -> None:
    tree("kernels/ops.py", "def op():\n    return 'SIDE'\n")
    tree("kernels/k.py", "import ops\ndef same():\n    return ops.op\n")
    said = run(
        "print([f() is g for f, g in zip(of('kernels/k.py:same'), of('kernels/ops.py:op'))])"
    )
    assert said == "[True, True]"


def test_a_package_of_the_project_is_that_of_the_revision(
    tree: Trees, run: Run, tmp_path: Path
) -> None:
    """It is installed from the working tree, which is neither of the two."""
    tree("kernels/k.py", "import ours.ops\ndef name():\n    return ours.ops.NAME\n")
    for place in ("base", "head", "project"):
        (tmp_path / place / "ours").mkdir(parents=True)
        (tmp_path / place / "ours" / "__init__.py").touch()
        (tmp_path / place / "ours" / "ops.py").write_text(
            f"NAME = '{place}'\ndef name():\n    return NAME\n"
        )
    program = "sys.path.insert(0, str(here / 'project'))\n"
    program += "print([f() for t in ('kernels/k.py:name', 'ours.ops.name') for f in of(t)])\n"
    program += "import ours.ops; print(ours.ops.NAME)"
    assert run(program).splitlines() == ["['base', 'head', 'base', 'head']", "project"]


def test_the_standard_library_and_installed_packages_stay_what_they_are(
    tree: Trees, run: Run
) -> None:
    tree(
        "kernels/k.py", "import json, click\ndef same(j, c):\n    return json is j and click is c\n"
    )
    said = run(
        "import json, click\nprint([f(json, click) for f in of('kernels/k.py:same')], "
        "*(f(4) for f in of('math.sqrt')))"
    )
    assert said == "[True, True] 2.0 2.0"


def test_a_module_that_fails_can_be_tried_again_and_missing_ones_are_missing(
    tree: Trees, run: Run
) -> None:
    tree("kernels/bad.py", "raise ValueError('SIDE is bad')\n")
    tree("kernels/k.py", "def bad():\n    import bad\ndef gone():\n    import no_such_module\n")
    said = run(
        "for f in (*of('kernels/k.py:bad'), *of('kernels/k.py:bad'), *of('kernels/k.py:gone')):\n"
        "    try: f()\n    except Exception as e: print(type(e).__name__, e)\n"
    )
    assert said.splitlines() == [
        *["ValueError base is bad", "ValueError head is bad"] * 2,
        *["ModuleNotFoundError No module named 'no_such_module'"] * 2,
    ]
