"""`tirbench replay`: one case of a kept run, once more."""

from __future__ import annotations

import click

from tirbench.commands import measuring, shared


@click.command("replay")
@click.argument("run_id", metavar="RUN")
@click.argument("case", metavar="CASE")
@shared.form
def command(run_id: str, case: str, form: str) -> int:
    """Run one case of a kept run again exactly: its program, plan and tuned choices, as a new run."""
    from tirbench import again, pipeline, store

    root = shared.root()
    before = store.read_run(root, run_id)
    with shared.progress() as watch:
        after = again.replay(root, before, case, store.read_tree(root), watch, shared.say)
    measuring.print_run(after, form)
    for line in again.changes(before, after):
        shared.say(line)
    return pipeline.exit_code(after.run.outcomes, invalid=False)
