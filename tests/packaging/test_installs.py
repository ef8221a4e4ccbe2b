"""Templates and schema travel: a wheel, the wheel of an sdist, and an editable install all compile."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKLOAD = "vector_add"
WHERE = "import tirbench; print(tirbench.__file__)"


def command(*arguments: str | Path, cwd: Path) -> str:
    """Run a command outside of the checkout, with nothing of this process's environment in its way."""
    ours = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    done = subprocess.run(
        list(map(str, arguments)),
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name not in ours},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist of the tree, and a wheel built from it: the way a release is made."""
    out = tmp_path_factory.mktemp("dist")
    command(sys.executable, "-m", "build", "--no-isolation", "-o", out, ROOT, cwd=out)
    return out


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of a user: one workload of ours, outside of the checkout."""
    root = tmp_path / "project"
    folder = root / "workloads"
    (folder / "kernels").mkdir(parents=True)
    (root / "pyproject.toml").touch()
    shutil.copy(ROOT / "workloads" / f"{WORKLOAD}.toml", folder)
    for file in (ROOT / "workloads" / "kernels").glob("*.py"):
        shutil.copy(file, folder / "kernels")
    return root


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A fresh environment; it finds the dependencies of this one behind its own packages.

    A `.pth` file and not PYTHONPATH, which would come first: a tirbench that is installed here would be
    the one that is tested.
    """
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (packages / "zz_dependencies.pth").write_text("\n".join(map(str, dependencies())))
    return folder


def dependencies() -> set[Path]:
    """Where the dependencies of tirbench and its build are installed."""
    found = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    for name in ("click", "hatchling", "jinja2", "jsonschema"):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        found.add(Path(spec.origin).parents[1])
    return found


def install(environment: Path, what: Path, *flags: str) -> None:
    """Install one thing and nothing that it depends on; no index is asked."""
    alone = ("--no-index", "--no-deps", "--no-build-isolation", "--ignore-installed")
    command(
        *(sys.executable, "-m", "pip", "--python", str(environment), "install", "-q"),
        *(*alone, *flags, str(what)),
        cwd=environment,
    )


def where(environment: Path) -> Path:
    """The folder of the package that the environment imports."""
    return Path(command(environment / "bin" / "python", "-c", WHERE, cwd=environment)).parent


def uses(environment: Path, project: Path) -> None:
    """Check and compile the workload of a project with what is installed."""
    tirbench = environment / "bin" / "tirbench"
    # A warning may stand before it: here the schema does not lie where the workload says.
    assert "1 workload with " in command(tirbench, "check", "workloads", cwd=project)
    assert command(tirbench, "compile", "workloads", cwd=project) == f"build/{WORKLOAD}.py\n"
    text = (project / "build" / f"{WORKLOAD}.py").read_text(encoding="utf-8")
    assert "def launch():" in text
    assert str(project) not in text
    assert command(tirbench, "schema", cwd=project).startswith("{")


def test_a_wheel_built_from_an_sdist_checks_and_compiles(
    distributions: Path, environment: Path, project: Path
) -> None:
    (wheel,) = distributions.glob("*.whl")
    install(environment, wheel)
    assert environment in where(environment).parents
    uses(environment, project)


def test_an_editable_install_checks_and_compiles(environment: Path, project: Path) -> None:
    install(environment, ROOT, "-e")
    assert where(environment) == ROOT / "tirbench"
    uses(environment, project)


def test_a_wheel_holds_the_package_and_its_templates_and_nothing_else(distributions: Path) -> None:
    (wheel,) = distributions.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"tirbench"}
    templates = {
        f"tirbench/templates/{path.relative_to(ROOT / 'templates').as_posix()}"
        for path in (ROOT / "templates").rglob("*.jinja")
    }
    schemas = {f"tirbench/schema/{p.name}" for p in (ROOT / "tirbench" / "schema").glob("*.json")}
    assert templates | schemas <= set(names)
    assert not [name for name in names if "__pycache__" in name]


def test_an_sdist_holds_what_its_tests_need(distributions: Path) -> None:
    (sdist,) = distributions.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        top = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert {"pyproject.toml", "templates", "tests", "tirbench", "workloads"} <= top
    assert not {".git", ".venv", ".tirbench", "build", "dist"} & top
