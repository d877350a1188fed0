"""A headless Chromium under test, spoken to by its DevTools protocol over a pipe: no port, no package."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from tests.patience import PATIENCE_S

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: Chromium reads requests from descriptor 3 and writes to 4. Moved up first: the pipe may be at 3 or 4.
_ON_3_AND_4 = """
import fcntl, os, sys
asked, told = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(asked, 3), os.dup2(told, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-breakpad", "--mute-audio"),
    *("--disable-dev-shm-usage", "--remote-debugging-pipe"),
)
_KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, ""), " ": (32, " "), "ArrowDown": (40, "")}
_SHIFT = 8


def find_browser() -> str:
    """Return the path of a Chromium, or skip the test."""
    if path := next(filter(None, map(shutil.which, _NAMES)), None):
        return path
    pytest.skip("no Chromium on this machine: install Debian's package chromium")


class Browser:
    """One window. `errors` are those its console shows: exceptions, refusals by the CSP or a server."""

    def __init__(self, directory: Path) -> None:
        read_here, write_there = os.pipe()
        read_there, self._to = os.pipe()
        self._from = read_here
        self._rest = b""
        self._number = 0
        self._session = ""
        self.errors: list[str] = []
        self.received: dict[str, int] = {}
        self._addresses: dict[str, str] = {}
        self._held: list[str] = []
        command = [find_browser(), *_FLAGS, f"--user-data-dir={directory}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _ON_3_AND_4, str(read_there), str(write_there), *command],
            pass_fds=(read_there, write_there),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(read_there)
        os.close(write_there)
        [page] = [one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(1280, 900)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        self._number += 1
        request: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            request["sessionId"] = self._session
        os.write(self._to, json.dumps(request).encode() + b"\0")
        while True:
            message = self._read(method)
            if message.get("id") == self._number:
                assert "error" not in message, (method, message["error"])
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _read(self, method: str) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._from], [], [], PATIENCE_S)[0], f"{method}: no answer from Chromium"
            part = os.read(self._from, 1 << 20)
            assert part, f"{method}: Chromium has gone"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        match event.get("method"), event.get("params", {}):
            case "Runtime.exceptionThrown", details:
                thrown = details["exceptionDetails"]
                self.errors.append(thrown.get("exception", {}).get("description", thrown["text"]))
            case "Log.entryAdded", {"entry": {"level": "error"} as entry}:
                self.errors.append(f"{entry['text']} {entry.get('url', '')}")
            case "Network.requestWillBeSent", sent:
                self._addresses[sent["requestId"]] = sent["request"]["url"]
            case "Network.loadingFinished", loaded:
                self.received[self._addresses[loaded["requestId"]]] = loaded["encodedDataLength"]
            case "Fetch.requestPaused", held:
                self._held.append(held["requestId"])

    def open(self, address: str) -> None:
        """Load a page anew, whatever was shown."""
        self.leave()
        self.call("Page.navigate", url=address)

    def leave(self) -> None:
        """Leave the page that is shown; it does nothing more."""
        self.call("Page.navigate", url="about:blank")
        self.wait_for("location.href === 'about:blank'")

    def reload(self) -> None:
        self.call("Page.reload")

    @contextmanager
    def slow(self, pattern: str) -> Iterator[None]:
        """Hold back what is requested from such addresses until the end of the block."""
        self.call("Fetch.enable", patterns=[{"urlPattern": pattern}])
        try:
            yield
        finally:
            for request in self._held:
                self.call("Fetch.continueRequest", requestId=request)
            self._held.clear()
            self.call("Fetch.disable")

    def evaluate(self, expression: str) -> Any:
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in answer, (expression, answer["exceptionDetails"])
        return answer["result"].get("value")

    def wait_for(self, condition: str, within_s: float = PATIENCE_S) -> None:
        """Wait until an expression is true in the page; one that fails, on a page half loaded, is not."""
        deadline = time.monotonic() + within_s
        while not self.evaluate(f"(() => {{ try {{ return Boolean({condition}); }} catch {{ }} }})()"):
            if time.monotonic() > deadline:
                shown = self.evaluate("document.body?.innerText") or ""
                pytest.fail(f"waited in vain for {condition}; the page says:\n{shown[:3000]}")
            time.sleep(0.05)

    def text(self, selector: str) -> str:
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def click(self, selector: str) -> None:
        """Click the middle of an element with the mouse; it must be seen there."""
        where = f"document.querySelector({json.dumps(selector)})"
        deadline = time.monotonic() + PATIENCE_S
        self.evaluate("window.isMissed = true")
        # A page may move what it shows while we aim. In the one a click led to, nothing is missed.
        while self.evaluate("window.isMissed"):
            assert time.monotonic() < deadline, f"{selector} was clicked in vain"
            self.wait_for(f"{where}?.checkVisibility()")
            x, y = self.evaluate(
                f"(() => {{ const e = {where}; e.scrollIntoView({{block: 'center', behavior: 'instant'}});"
                "e.addEventListener('click', () => { window.isMissed = false; }, true);"
                "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
            )
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def press(self, key: str, *, shift: bool = False) -> None:
        code, text = _KEYS[key]
        same = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": _SHIFT if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **same)
        self.call("Input.dispatchKeyEvent", type="keyUp", **same)

    def tab_to(self, selector: str, most: int = 40) -> None:
        """Press Tab until the element has the focus, as one without a mouse does."""
        # On a page half loaded, all presses would be spent before it is there.
        self.wait_for(f"document.querySelector({json.dumps(selector)})?.checkVisibility()")
        for _ in range(most):
            if self.evaluate(f"document.activeElement?.matches({json.dumps(selector)})"):
                return
            self.press("Tab")
        pytest.fail(f"{selector} cannot be reached with Tab")

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def prefer(self, **features: str) -> None:
        """Set what the person prefers: ``prefer(color_scheme="dark")``."""
        named = [
            {"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in features.items()
        ]
        self.call("Emulation.setEmulatedMedia", features=named)

    def screenshot(self, path: Path) -> None:
        """Take a picture of the whole page, for a person to look at."""
        content = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": content["width"], "height": min(content["height"], 3000), "scale": 1}
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(answer["data"]))
