"""`tirbench pin`: accept a run that was kept."""

from __future__ import annotations

import click

from tirbench.commands import measuring, shared


@click.command("pin")
@click.argument("run_id", default="latest", metavar="[RUN]")
@click.option(
    "--accept", multiple=True, metavar="ROW", help="Take workload/case/implementation as measured."
)
@click.option("--reason", default="", help="Why the accepted rows are as they are.")
@click.option("--allow-dirty", is_flag=True, help="Pin an uncommitted tree; the rows say so.")
@click.option("--prune", is_flag=True, help="Drop rows that no workload has any more.")
def command(
    run_id: str, accept: tuple[str, ...], reason: str, *, allow_dirty: bool, prune: bool
) -> int:
    """Accept a kept run into the baselines: RUN is an id below .tirbench/runs, or latest."""
    from tirbench import again, pipeline, store

    root = shared.root()
    kept = store.read_run(root, run_id)
    tree = store.Tree(commit=kept.run.commit, dirty=kept.run.dirty)
    store.require_committed(tree, allow_dirty=allow_dirty)
    reading = again.reading_of(root, kept)
    options = pipeline.Options(device=kept.run.machine.kind)
    asked = pipeline.PinOptions(allow_dirty=allow_dirty, accept=accept, reason=reason, prune=prune)
    measuring.pin(reading, kept, asked, options, tree)
    return 0
