"""`tirbench bisect`: the commit that made a row slower."""

from __future__ import annotations

from typing import Any

import click

from tirbench.commands import shared


@click.command("bisect")
@click.argument("name", metavar="CASE")
@click.argument("good", required=False)
@click.argument("bad", default="HEAD")
@click.option(
    "--device", type=click.Choice(["cuda", "cpu"]), help="Default: cuda where there is one."
)
@click.option("--timer", type=click.Choice(shared.TIMERS), help="Instead of the workload's timer.")
@click.option(
    "--resolve",
    metavar="SHARE",
    callback=shared.share_of_time,
    help="Look for a smaller slowdown (0.5%) with more workers.",
)
@shared.form
def command(name: str, good: str | None, bad: str, **given: Any) -> int:
    """Find the commit after GOOD, up to BAD (HEAD), that made CASE slower.

    CASE is workload/case, or workload/case/implementation. Without GOOD it is the code of the row's last
    pin. Commits are compared with GOOD as `tirbench ab` does; the working tree is not touched. Exits 1
    where a commit is at fault, 0 where BAD is not slower, 3 where it could not be told.
    """
    from tirbench import bisecting
    from tirbench.report import bisections

    asked = bisecting.Asked(
        name=name,
        good=good,
        bad=bad,
        device=shared.device(given["device"]),
        timer=given["timer"],
        resolve=given["resolve"],
    )
    with shared.progress() as watch:
        found = bisecting.bisect(shared.root(), asked, watch, shared.say)
    shown = shared.look()
    click.echo(bisections.render(found, given["form"], **shown), nl=False, color=shown["color"])
    return found.exit_code
