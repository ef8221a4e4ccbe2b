"""`kind = "build"`: called once with the arguments, returns the closure that is launched."""

from __future__ import annotations

from tirbench.launch.call import SYNTAX, options
from tirbench.launch.emit import emit_arguments
from tirbench.launch.kind import Kind

KIND = Kind(
    name="build",
    template="launch/build.py.jinja",
    closure=True,
    arguments=lambda launch: emit_arguments(launch.args),
    options=options,
    syntax=SYNTAX,
)
