"""Results as text, one module a format; pure functions, nothing here prints or writes but `progress`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from tirbench.model import Row, Run

Format: TypeAlias = Literal["text", "markdown", "json", "jsonl", "github"]


def render(
    run: Run,
    form: str,
    *,
    width: int | None = None,
    color: bool = False,
    notes: tuple[str, ...] = (),
    folder: str = "",
    place: Callable[[Row], str | None] = lambda _: None,
    debug: bool = False,
) -> str:
    """A run in one of the formats, with its last line ended.

    Args:
        run: what was measured.
        form: `text`, `markdown`, `json`, `jsonl` or `github`.
        width: columns of the text; what a file gets if not given.
        color: whether the text has colours.
        notes: what is missing from the run.
        folder: where its logs and samples are kept.
        place: where a workload asks for a row (`workloads/x.toml:12`), for annotations.
        debug: whether the text shows tracebacks whole.
    """
    from tirbench.report import document, github, markdown, terminal

    match form:
        case "markdown":
            return markdown.render(run, notes=notes)
        case "json":
            return document.to_json(run, notes=notes)
        case "jsonl":
            return "".join(document.to_jsonl(run, notes=notes))
        case _:
            look = terminal.Look(width=width or terminal.FILE_WIDTH, color=color)
            body = terminal.render(run, look, notes=notes, folder=folder, debug=debug)
    if form == "github":
        return "".join(f"{line}\n" for line in github.annotate(run, place)) + body
    return body
