"""What is wrong with a file, where, and what to do about it.

`Problems` collects; `Diagnostic` is one placed problem; `locate` and `locations` find paths of a TOML
document in its text.
"""

from tirbench.diagnostics.codes import CODES
from tirbench.diagnostics.diagnostic import (
    MAX_SHOWN,
    Diagnostic,
    Problems,
    closest,
    did_you_mean,
    shown,
)
from tirbench.diagnostics.positions import (
    Newer,
    Position,
    line_and_column,
    locate,
    locations,
    newer_syntax,
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
    "newer_syntax",
    "shown",
]
