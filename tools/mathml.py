"""Formulas as MathML, which browsers draw themselves: no script, no font, no network.

Used by the book (as a Sphinx extension) and by the slides.
"""

from __future__ import annotations

from typing import Any


def mathml(tex: str, *, block: bool = False) -> str:
    """MathML of a formula in TeX; the TeX itself where it is beyond the converter."""
    from html import escape

    from latex2mathml.converter import convert

    try:
        return convert(tex, display="block" if block else "inline")
    except Exception:  # the converter raises a dozen different errors, and IndexError among them
        return f"<code>{escape(tex)}</code>"


def setup(app: Any) -> dict[str, Any]:
    """Make ``html_math_renderer = "mathml"`` known to Sphinx."""
    from docutils import nodes

    def inline(translator: Any, node: Any) -> None:
        translator.body.append(mathml(node.astext()))
        raise nodes.SkipNode

    def block(translator: Any, node: Any) -> None:
        translator.body.append(f'<div class="math">{mathml(node.astext(), block=True)}</div>\n')
        raise nodes.SkipNode

    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
