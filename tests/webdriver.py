"""A browser for tests, driven by WebDriver's protocol: JSON over HTTP, nothing to install.

The mouse and the keyboard are the browser's own, not events made up by a script.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element, by the standard
KEYS = {"left": "\ue012", "right": "\ue014", "home": "\ue011", "end": "\ue010", "tab": "\ue004"}
KEYS |= {"up": "\ue013", "down": "\ue015"}
DRIVER = shutil.which("chromedriver")
MISSING = "no chromedriver (Debian: chromium-driver)"
STATIC = Path(__file__).parents[1] / "docs" / "_static"


def write_page(path: Path, html: str) -> str:
    """Write a part of the site, with its scripts and style, as a page; returns its address."""
    html = html.replace("../_static/", STATIC.as_uri() + "/")
    style = (STATIC / "pyentmax.css").read_text("utf-8")
    head = (
        '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    )
    path.write_text(f"{head}<style>{style}</style><body>{html}</body>", encoding="utf-8")
    return path.as_uri()


class Browser:
    """Chromium without a window; a context manager."""

    def __init__(self) -> None:
        # A port that nobody else has: the driver's own choice, which it prints.
        command = [str(DRIVER), "--port=0", "--log-level=SEVERE"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        lines = (re.search(r"successfully on port (\d+)", line) for line in self.process.stdout)
        listens = next(filter(None, lines), None)
        if listens is None:
            raise RuntimeError("chromedriver did not start")
        self.address = f"http://127.0.0.1:{listens[1]}"
        switches = ["--headless=new", "--no-sandbox", "--disable-gpu"]
        switches += ["--window-size=1000,900", "--host-resolver-rules=MAP * ~NOTFOUND"]
        options = {"args": switches}
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        self.session = self._call("POST", "/session", wanted)["sessionId"]

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call("DELETE", f"/session/{self.session}")
        self.process.terminate()
        self.process.communicate()

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.address + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, url: str) -> None:
        self._call("POST", f"/session/{self.session}/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function with this body returns in the page."""
        body = {"script": script, "args": list(arguments)}
        return self._call("POST", f"/session/{self.session}/execute/sync", body)

    def wait(self, script: str, seconds: float = 5) -> None:
        """Until a function with this body returns true in the page."""
        end = time.monotonic() + seconds
        while not self.run(script):
            if time.monotonic() > end:
                raise TimeoutError(f"still not true: {script}")
            time.sleep(0.02)

    def _element(self, selector: str) -> dict[str, str]:
        body = {"using": "css selector", "value": selector}
        found: dict[str, str] = self._call("POST", f"/session/{self.session}/element", body)
        return found

    def click(self, selector: str) -> None:
        element = self._element(selector)[ELEMENT]
        self._call("POST", f"/session/{self.session}/element/{element}/click", {})

    def press(self, *keys: str) -> None:
        """Type on the keyboard, at whatever has the focus."""
        actions = []
        for key in keys:
            value = KEYS.get(key, key)
            actions += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self._act({"type": "key", "id": "keyboard", "actions": actions})

    def drag(self, selector: str, start: float, end: float) -> None:
        """Drag within an element, from one part of its width to another (0 left, 1 right)."""
        options = "{block: 'center', behavior: 'instant'}"
        self.run(f"document.querySelector(arguments[0]).scrollIntoView({options})", selector)
        box = "const b = document.querySelector(arguments[0]).getBoundingClientRect();"
        left, top, width, height = self.run(
            f"{box} return [b.left, b.top, b.width, b.height];", selector
        )

        def to(part: float, duration: int) -> dict[str, Any]:
            place = {"x": round(left + part * width), "y": round(top + height / 2)}
            return {"type": "pointerMove", "duration": duration, "origin": "viewport", **place}

        actions = [to(start, 0), {"type": "pointerDown", "button": 0}]
        actions += [to(end, 60), {"type": "pointerUp", "button": 0}]
        parameters = {"pointerType": "mouse"}
        self._act({"type": "pointer", "id": "mouse", "parameters": parameters, "actions": actions})

    def _act(self, source: dict[str, Any]) -> None:
        self._call("POST", f"/session/{self.session}/actions", {"actions": [source]})
