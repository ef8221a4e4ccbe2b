"""The launch kind `numpy`: a function of NumPy arrays that share their memory with the case's tensors.

Loaded by the command line, which never imports NumPy: what runs a kernel is in `runtime`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tirbench.launch import Kind, Option, Source, Syntax, emit_arguments, literal
from tirbench.model import BoundLaunch


def options(launch: BoundLaunch) -> Mapping[str, Source]:
    """`floating_errors` as an argument of `runtime.bound`; empty where it is not given."""
    given = dict(launch.options).get("floating_errors")
    return {"floating_errors": Source(f"floating_errors={literal(given)}" if given else "")}


KIND = Kind(
    name="numpy",
    template="tirbench_numpy:launch.py.jinja",
    returns=False,
    closure=True,
    arguments=lambda launch: emit_arguments(launch.args),
    options=options,
    syntax=Syntax(
        device="cpu",
        options={
            "floating_errors": Option(
                form="text",
                schema={
                    "description": "What NumPy does at a division by zero, an overflow and the like.",
                    "enum": ["ignore", "warn", "raise"],
                },
            )
        },
    ),
)
