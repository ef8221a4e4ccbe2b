"""What several timers ask of the device before they start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tirbench.errors import CaptureError, TimerUnavailable

if TYPE_CHECKING:
    from tirbench.timing.device import Device


def require_no_capture(device: Device, timer: str) -> None:
    """Refuse to time while a graph is being captured.

    Raises:
        CaptureError: the current stream is capturing.
    """
    if device.is_capturing():
        raise CaptureError(
            f"timer {timer!r}: a CUDA graph is being captured on the current stream, where nothing "
            "runs and nothing can be waited for; call bench() outside of the capture"
        )


def require_nvidia(device: Device, timer: str) -> None:
    """Refuse a timer that exists on NVIDIA GPUs alone.

    Raises:
        TimerUnavailable: torch is built for ROCm.
    """
    if device.is_hip:
        raise TimerUnavailable(
            f"timer {timer!r} needs an NVIDIA GPU and this torch is built for ROCm; use timer='event'"
        )
