"""`tirbench pin`: accept a run that was kept, or learn from all of them."""

from __future__ import annotations

import click

from tirbench.commands import measuring, shared


@click.command("pin")
@click.argument("run_id", required=False, metavar="[RUN]")
@click.option(
    "--accept", multiple=True, metavar="ROW", help="Take workload/case/implementation as measured."
)
@click.option(
    "--reason", default="", help="Why the accepted rows, or wider bands, are as they are."
)
@click.option("--allow-dirty", is_flag=True, help="Pin an uncommitted tree; the rows say so.")
@click.option("--prune", is_flag=True, help="Drop rows that no workload has any more.")
@click.option(
    "--learn",
    is_flag=True,
    help="Accept nothing: keep what all kept runs show of sessions, and widen bands by it.",
)
def command(
    run_id: str | None,
    accept: tuple[str, ...],
    reason: str,
    *,
    allow_dirty: bool,
    prune: bool,
    learn: bool,
) -> int:
    """Accept a kept run into the baselines: RUN is an id below .tirbench/runs, or latest."""
    from tirbench import again, pipeline, store

    if learn:
        if run_id is not None or accept or allow_dirty or prune:
            raise click.UsageError("--learn reads every kept run and accepts none: --reason alone")
        return _learn(reason)
    root = shared.root()
    kept = store.read_run(root, run_id or "latest")
    tree = store.Tree(commit=kept.run.commit, dirty=kept.run.dirty)
    store.require_committed(tree, allow_dirty=allow_dirty)
    reading = again.reading_of(root, kept)
    options = pipeline.Options(device=kept.run.machine.kind)
    asked = pipeline.PinOptions(allow_dirty=allow_dirty, accept=accept, reason=reason, prune=prune)
    measuring.pin(reading, kept, asked, options, tree)
    return 0


def _learn(reason: str) -> int:
    from tirbench import gating
    from tirbench.report.sessions import lesson_text

    lessons, notes = gating.learn(shared.root(), reason)
    for lesson in lessons:
        shared.say(lesson_text(lesson))
    for note in notes:
        shared.say(f"left out: {note}")
    if not lessons:
        shared.say("nothing is pinned: there is no row to learn of")
    return 0
