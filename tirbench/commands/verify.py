"""`tirbench verify`: correctness alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from tirbench.commands import measuring, shared


@click.command("verify")
@partial(shared.files, required=False)
@measuring.running
@shared.form
def command(**given: Any) -> int:
    """Check that every kernel is right; time nothing."""
    from tirbench import pipeline, store

    reading, options = measuring.prepare(given, time=False)
    if not reading.chosen and given["last_failed"]:
        return 0
    kept = measuring.run(reading, options, store.read_tree(reading.root))
    measuring.print_run(kept, given["form"], debug=given["debug"])
    return pipeline.exit_code(kept.run.outcomes, invalid=bool(reading.problems))
