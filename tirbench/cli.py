"""The command line: which commands there are, what ends one, and the exit code.

Results go to stdout, progress and messages to stderr. Exit codes: 0 fine, 1 wrong result, 2 invalid input or
usage, 3 something could not be measured, 130 interrupted.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import Final, NamedTuple

import click

from tirbench import __version__
from tirbench.errors import TirbenchError
from tirbench.signals import ending_in_order


class Entry(NamedTuple):
    """A command as `tirbench --help` shows it, and a call of it as its own help does."""

    line: str
    example: str


JOBS: Final[dict[str, dict[str, Entry]]] = {
    "Write a workload": {
        "new": Entry("Write a small workload and its kernel.", "new softmax"),
        "check": Entry("Say what is wrong with workloads.", "check workloads/*.toml"),
        "explain": Entry("Say what an error code means.", "explain TB021"),
        "show": Entry("Show what a workload means, case by case.", "show workloads/rmsnorm.toml"),
        "list": Entry("List the ids of cases.", "list workloads --select smoke --json"),
        "compile": Entry("Write the harness of each workload.", "compile workloads -o build"),
        "migrate": Entry("Rewrite older workloads.", "migrate --diff workloads/*.toml"),
        "schema": Entry(
            "Print the JSON Schema for editors.", "schema > workloads/workload.schema.json"
        ),
    },
    "Measure": {
        "verify": Entry("Check that every kernel is right.", "verify workloads --select smoke"),
        "exec": Entry("Verify, time and report.", "exec workloads/*.toml --pin"),
        "ab": Entry("Measure two revisions against each other.", "ab main workloads/rmsnorm.toml"),
        "aot": Entry("Compile kernels without a GPU.", "aot workloads --arch sm_90,sm_100"),
        "replay": Entry("Run one case of a kept run again.", "replay latest rmsnorm/hs4096_bs128"),
    },
    "Review": {
        "summary": Entry("Show a kept run against its pins.", "summary latest"),
        "report": Entry("Write a kept run as one HTML file.", "report latest -o report.html"),
        "pin": Entry("Accept a kept run into the baselines.", "pin latest"),
        "gate": Entry("Judge a run, or a branch, against the baselines.", "gate --static main"),
        "diff": Entry("Say what a branch changes.", "diff main --format markdown"),
    },
    "Understand a number": {
        "why": Entry("Why a row differs from its pin.", "why rmsnorm/hs4096_bs128/triton"),
        "placement": Entry(
            "How much a case depends on addresses.", "placement rmsnorm/hs4096_bs128"
        ),
        "bisect": Entry(
            "Find the commit that made a row slower.", "bisect rmsnorm/hs4096_bs128/triton v1.0"
        ),
        "history": Entry("The pinned numbers of a case.", "history rmsnorm/hs4096_bs128"),
        "doctor": Entry("What this machine can measure.", "doctor"),
        "selftest": Entry("How often its verdicts are right.", "selftest --seconds 300"),
    },
}
"""Every command by the job that it is for. Each has a module of its name in `tirbench.commands`, which is
imported when it is called: `--help` reads this table alone, and `check` pays for nothing else."""

MODULES: Final = {name: entry for job in JOBS.values() for name, entry in job.items()}


def main() -> None:
    """Run the command line; every error that a user can cause ends in one message and its exit code."""
    gc.set_threshold(200_000)  # a command keeps what it makes: looking for garbage costs it a tenth
    try:
        with ending_in_order():
            code = commands.main(standalone_mode=False, prog_name="tirbench")
    except click.ClickException as error:
        error.show()
        code = 2
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted; what was finished is kept", err=True)
        code = 130
    except TirbenchError as error:
        from tirbench.report.text import plain

        click.echo(f"error: {plain(str(error), lines=True)}", err=True)
        code = error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `| head` is no error
        code = 0
    sys.exit(code or 0)


class Commands(click.Group):
    """The commands of the table, each imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Every name, in the order of the help."""
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name, its help ending in an example."""
        if cmd_name not in MODULES:
            return None
        found: click.Command = import_module(f"tirbench.commands.{cmd_name}").command
        found.epilog = f"Example: tirbench {MODULES[cmd_name].example}"
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """One line a command, below the job that it is for."""
        width = max(map(len, MODULES))
        for job, entries in JOBS.items():
            with formatter.section(job):
                formatter.write_dl(
                    [(f"{name:{width}}", entry.line) for name, entry in entries.items()]
                )


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 fine, 1 wrong or slower, 2 invalid input, 3 not measured, 130 interrupted.",
)
@click.version_option(__version__, prog_name="tirbench")
def commands() -> None:
    """Checked, trustworthy, pinned times of GPU kernels from reviewed TOML files.

    FILES are paths, globs, folders, or file::case-glob, as in workloads/rmsnorm.toml::hs4096_*.
    """
