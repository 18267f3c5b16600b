"""A widget on a static page: its real module and state, with a stand-in for anywidget's model.

The page is a plain file and is opened as ``file://``, so it shows what an exported notebook shows:
there is no kernel and no server. `model` lies on ``window`` for the tests to drive.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.browser.lab import CHROMIUM_FLAGS, cannot, chromium

#: 120 frames of zooming in, panning and zooming out by keys; gives the milliseconds between them.
ZOOM_AND_PAN = """async () => {
  const host = document.querySelector(".pp-host"), times = [];
  const key = (key, shiftKey) => host.dispatchEvent(
    new KeyboardEvent("keydown", { key, shiftKey, bubbles: true }));
  let last = null;
  for (let i = 0; i < 120; i++) {
    if (i < 20) key("+"); else if (i >= 70 && i < 95) key("-");
    else key(i % 2 ? "ArrowRight" : "ArrowLeft", true);
    const t = await new Promise((frame) => requestAnimationFrame(frame));
    if (last !== null) times.push(t - last);
    last = t;
  }
  return times;
}"""
#: Paints the picture again; gives what is written on the canvas: [text, size in pixels, alpha].
WRITTEN = """async () => {
  const proto = CanvasRenderingContext2D.prototype, plain = proto.fillText, found = [];
  proto.fillText = function (text, ...place) {
    found.push([String(text), parseFloat(this.font.match(/([\\d.]+)px/)[1]), this.globalAlpha]);
    return plain.call(this, text, ...place);
  };
  document.body.classList.toggle("again");
  await new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)));
  proto.fillText = plain;
  return found;
}"""
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>widget</title>
<style>body { margin: 12px; background: %(page)s } %(css)s</style>
<body data-jp-theme-light="%(light)s"><div id="here"></div><button id="after">after</button>
<script type="module">
const state = %(state)s, heard = {};
for (const key in state) {
  const value = state[key];
  if (value && value.base64 !== undefined) {
    const bytes = Uint8Array.from(atob(value.base64), (c) => c.charCodeAt(0));
    // A comm message hands over a view into a larger buffer, at any offset.
    const larger = new Uint8Array(bytes.length + 3);
    larger.set(bytes, 3);
    state[key] = new DataView(larger.buffer, 3, bytes.length);
  }
}
window.sent = [];
window.model = {
  get: (key) => state[key],
  set: (key, value) => {
    state[key] = value;
    for (const f of heard["change:" + key] || []) f();
  },
  on: (name, f) => (heard[name] = heard[name] || []).push(f),
  off: (name, f) => { heard[name] = (heard[name] || []).filter((g) => g !== f); },
  send: (message) => window.sent.push(message),
  save_changes: () => {},
};
const url = URL.createObjectURL(new Blob([%(esm)s], { type: "text/javascript" }));
const widget = (await import(url)).default;
window.cleanup = widget.render({ model: window.model, el: document.getElementById("here") });
</script></body></html>"""
_JUPYTER_DARK = """
  :root { --jp-layout-color0: #111111; --jp-ui-font-color0: rgba(255, 255, 255, 1);
    --jp-ui-font-color1: rgba(255, 255, 255, 0.87); --jp-border-color1: #616161;
    --jp-layout-color2: #424242; --jp-brand-color1: #2196f3 }"""


def require_browser() -> None:
    """Skip with a reason where there is no browser to drive; fail instead on CI."""
    chromium()
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        cannot("no playwright here: pip install playwright")


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Headless Chromium with software rendering."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=CHROMIUM_FLAGS)
        try:
            yield started
        finally:
            started.close()


def write(widget: Any, file: Path, *, dark: bool = False) -> Path:
    """A page with one widget in the state it has now."""
    state = {}
    for name in widget.keys:
        value = getattr(widget, name)
        if not name.startswith("_") and name not in ("layout", "tabbable", "tooltip", "comm"):
            binary = isinstance(value, bytes)
            state[name] = {"base64": base64.b64encode(value).decode()} if binary else value
    page = _PAGE % {
        "css": widget._css + (_JUPYTER_DARK if dark else ""),
        "esm": json.dumps(widget._esm),
        "light": "false" if dark else "true",
        "page": "#111" if dark else "#fff",
        "state": json.dumps(state),
    }
    file.write_text(page, encoding="utf-8")
    return file


@contextlib.contextmanager
def opened(chromium: Any, file: Path, *, width: int = 1000) -> Iterator[Any]:
    """The page, painted; on leaving, no errors on its console and no request to any network."""
    context = chromium.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    page.set_default_timeout(15_000)
    requests: list[str] = []
    errors: list[str] = []
    page.on("request", lambda r: requests.append(r.url))
    page.on("console", lambda m: errors.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: errors.append(str(e)))
    try:
        page.goto(file.as_uri())
        page.wait_for_function("window.__pplab_painted !== undefined")
        yield page
        assert not errors, errors
        foreign = [url for url in requests if not url.startswith(("file:", "blob:", "data:"))]
        assert not foreign, foreign
    finally:
        context.close()
