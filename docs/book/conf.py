"""Sphinx settings of the book (`make book`): offline when it is built and when it is read."""

import os
import sys
from pathlib import Path

# this file is used from where it lies; the sources are what tools/make_book.py has laid out
sys.path.insert(0, str(Path(__file__).parents[2]))

project = "pplab"
author = "the pplab authors"
html_title = "Pipelines, measured"
language = "en"

extensions = ["myst_nb", "tools.mathml"]
html_math_renderer = "mathml"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"
nb_merge_streams = True
# what draws widgets without a kernel: make_book puts these files there when they are to live
_players = os.environ.get("PPLAB_BOOK_PLAYERS", "").split()
nb_ipywidgets_js = {f"w/{name}": {} for name in _players}

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["book.css"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {
        "font-stack": "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif",
        "color-brand-primary": "#2f5a8a",
        "color-brand-content": "#2f5a8a",
    },
    "dark_css_variables": {
        "color-brand-primary": "#8ab4e8",
        "color-brand-content": "#8ab4e8",
    },
}
# Code in the colours of a style made for contrast, by day and by night.
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
