"""The browser's part of a widget: the files beside this one, packed into one small module.

A notebook stores the JavaScript of every widget instance, so size counts: the sources are stripped
of comments and indentation, compressed, and unpacked by a module of eight lines (all browsers since
2023 have ``DecompressionStream``). Nothing is fetched: blob URLs are local to the page, and
anywidget loads the outer module the same way.
"""

from __future__ import annotations

import base64
import gzip
import re
from functools import cache
from pathlib import Path

#: The files that draw timelines, in the order in which they build on each other.
PICTURE = ("columns.js", "chart.js", "bars.js", "axes.js", "words.js", "looks.js", "timeline.js")
_HERE = Path(__file__).parent
_LOADER = """
const packed = Uint8Array.from(atob("%s"), (c) => c.charCodeAt(0));
const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
const url = URL.createObjectURL(
  new Blob([await new Response(stream).text()], { type: "text/javascript" }));
const { default: widget } = await import(url);
URL.revokeObjectURL(url);
export default widget;
"""


@cache
def module(*files: str, render: str) -> str:
    """One ECMAScript module of several files; `render` is the body of anywidget's render.

    The body sees `model` and `el` and returns the function that cleans up.
    """
    source = "\n".join((_HERE / name).read_text(encoding="utf-8") for name in files)
    source += "\nexport default { render({ model, el }) { " + render + " } };\n"
    lean = re.sub(r"^\s+|^\s*//.*\n|\s+//\s.*$", "", source, flags=re.MULTILINE)
    return _LOADER % base64.b64encode(gzip.compress(lean.encode(), mtime=0)).decode()


@cache
def style(*files: str) -> str:
    """Style sheets as one string without needless white space."""
    text = "\n".join((_HERE / name).read_text(encoding="utf-8") for name in files)
    return re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))
