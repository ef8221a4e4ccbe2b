"""A headless Chromium over its debugging pipe: no driver, no package, no port."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")


def program() -> str | None:
    """Where a Chromium is, if anywhere."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One tab; what its console says is kept."""

    def __init__(self, to: int, answers: int) -> None:
        self.to = to
        self.answers = answers
        self.buffer = b""
        self.number = 0
        self.session = ""
        self.console: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            said = self._next()
            if said.get("id") == self.number:
                assert "error" not in said, said
                result: dict[str, Any] = said["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            data = os.read(self.answers, 1 << 16)
            assert data, "the browser has ended"
            self.buffer += data
        text, _, self.buffer = self.buffer.partition(b"\0")
        said: dict[str, Any] = json.loads(text)
        if said.get("method") in {
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Log.entryAdded",
        }:
            self.console.append(json.dumps(said["params"]))
        self.loaded = said.get("method") == "Page.loadEventFired"
        return said

    def open(self, path: Path, fragment: str = "") -> None:
        """Load a file and wait until it is there."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=path.as_uri() + fragment)
        while self.run("document.readyState") != "complete" or not self.run(
            "location.href"
        ).startswith("file:"):
            pass

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """The window, and whether the reader likes it dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def press(self, key: str) -> None:
        """A key of the keyboard."""
        text = {"Enter": "\r"}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, text=text)

    def screenshot(self, path: Path) -> None:
        """What is seen now."""
        path.write_bytes(
            base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        )


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser of its own, without a profile; ended with everything it started."""
    found = program()
    assert found is not None
    read_to, write_to = os.pipe()
    read_answers, write_answers = os.pipe()

    def pipes() -> None:  # the protocol's two descriptors
        os.dup2(read_to, 13)
        os.dup2(write_answers, 14)
        os.dup2(13, 3)
        os.dup2(14, 4)

    with tempfile.TemporaryDirectory() as profile:
        process = subprocess.Popen(
            [
                found,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
                f"--user-data-dir={profile}",
            ],
            preexec_fn=pipes,  # noqa: PLW1509 - it only duplicates descriptors
            close_fds=False,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_to)
        os.close(write_answers)
        try:
            yield Browser(write_to, read_answers)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(write_to)
            os.close(read_answers)
