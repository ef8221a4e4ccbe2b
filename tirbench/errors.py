"""One exception tree.

Inputs that are wrong raise; failed measurements are values (`tirbench.model.Failed`), never exceptions
that escape a run. `exit_code` is what the command line answers when the exception reaches it.
"""

from __future__ import annotations


class TirbenchError(Exception):
    """Root of every error that tirbench raises on purpose."""

    exit_code = 2


class UsageError(TirbenchError):
    """The command line asks for something that cannot be: the message says what to write instead."""


class InputError(TirbenchError):
    """A workload or baseline file is wrong.

    Args:
        diagnostics: everything wrong with the files, each a `tirbench.diagnostics.Diagnostic`;
            `str()` of the error is their text form.
    """

    def __init__(self, diagnostics: tuple[object, ...]) -> None:
        """Keep the diagnostics; the message is rendered on demand."""
        super().__init__(f"{len(diagnostics)} problem(s)")
        self.diagnostics = diagnostics

    def __str__(self) -> str:
        """Every diagnostic in its text form, a blank line between two."""
        return "\n\n".join(str(diagnostic) for diagnostic in self.diagnostics)


class MeasurementError(TirbenchError):
    """Something could not be measured on this machine: no device, no lock, no worker."""

    exit_code = 3


class StorageError(MeasurementError):
    """What was measured cannot be written down: the disk is full, or gone. What was written stays."""


class TimerError(MeasurementError, RuntimeError):
    """A timer could not produce a number it can stand for; no other timer's number takes its place."""


class TimerUnavailable(TimerError):
    """The timer does not fit this device, build of torch, or process; the message says what to do."""


class AttributionError(TimerError):
    """The profiler returned fewer or other records than there were launches."""


class ImpossibleTime(TimerError):
    """A sample is not positive and finite, or faster than the measured roof of the device allows."""


class CaptureError(TimerError):
    """A CUDA graph could not be captured, or one is being captured where a timer should run."""
