"""The repository of the commands' tests, and runs of it."""

from tests.commands.conftest import make_run, pin, repository

__all__ = ["make_run", "pin", "repository"]
