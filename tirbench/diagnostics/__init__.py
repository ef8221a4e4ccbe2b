"""What is wrong with a file, where, and what to do about it.

`Problems` collects; `Diagnostic` is one placed problem; `locate` and `locations` find paths of a TOML
document in its text. The scanner behind them is imported when there is something to place: of a file that
is right nobody asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tirbench.diagnostics.codes import CODES
from tirbench.diagnostics.diagnostic import (
    MAX_SHOWN,
    Diagnostic,
    Problems,
    closest,
    did_you_mean,
    shown,
    visible,
    without_quotes,
)

if TYPE_CHECKING:
    from tirbench.diagnostics.positions import (
        Newer,
        Position,
        line_and_column,
        locate,
        locations,
        lost_at,
        newer_syntax,
        written_twice,
    )

__all__ = [
    "CODES",
    "MAX_SHOWN",
    "Diagnostic",
    "Newer",
    "Position",
    "Problems",
    "closest",
    "did_you_mean",
    "line_and_column",
    "locate",
    "locations",
    "lost_at",
    "newer_syntax",
    "shown",
    "visible",
    "without_quotes",
    "written_twice",
]


def __getattr__(name: str) -> Any:
    """What `positions` defines."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tirbench.diagnostics import positions

    return getattr(positions, name)
