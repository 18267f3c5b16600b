"""Markdown, formulas and code as HTML, for the slides (``make_slides``)."""

from __future__ import annotations

import re
from typing import Any

from tools.mathml import mathml


def _markdown() -> Any:
    from markdown_it import MarkdownIt
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    def renderer(tex: str, options: dict[str, Any]) -> str:
        return mathml(tex, block=bool(options.get("display_mode")))

    made = MarkdownIt("commonmark", {"html": True}).enable("table")
    made.use(dollarmath_plugin, renderer=renderer)
    return made


def rendered(text: str) -> str:
    """HTML of a text in Markdown, with its formulas."""
    page = _markdown().render(text)
    # a deck stands alone: links between notebooks would lead nowhere
    return re.sub(r'<a href="(?!https?:)[^"]*">(.*?)</a>', r"\1", page)


def inline(text: str) -> str:
    """HTML of one line of Markdown."""
    return _markdown().renderInline(text)


def coloured(source: str) -> str:
    """HTML of Python code."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    lines = highlight(source, PythonLexer(), HtmlFormatter(nowrap=True)).rstrip()
    return f"<pre class='code'>{lines}</pre>"


def code_css() -> str:
    """The colours of code, by day and by night."""
    from pygments.formatters import HtmlFormatter

    by_day = HtmlFormatter(style="a11y-high-contrast-light").get_style_defs("pre")
    by_night = HtmlFormatter(style="a11y-high-contrast-dark").get_style_defs("pre")
    drop = re.compile(r"^pre \{[^}]*\}\n?|^td\.linenos.*\n|^span\.linenos.*\n|^pre \.hll.*\n", re.M)
    night = drop.sub("", by_night)
    return f"{drop.sub('', by_day)}\n@media (prefers-color-scheme: dark) {{\n{night}\n}}"
