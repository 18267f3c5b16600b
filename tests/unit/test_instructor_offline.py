"""What would be loaded from a network is found in pages and styles; links to click on are not."""

from __future__ import annotations

import pytest

from tools.offline import external, vendored


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://cdn.example/require.js"></script>',
        "<script async src='//cdn.example/x.js'></script>",
        "<script type=module src=https://cdn.example/x.js></script>",
        '<link rel="stylesheet" href="https://fonts.example/css">',
        '<link href="https://fonts.example/css" rel="stylesheet">',
        '<img alt="" src="http://example/x.png">',
        '<iframe src="https://example/"></iframe>',
        '<style>@import url("https://fonts.example/css");</style>',
        "<style>body { background: url(https://example/x.png) }</style>",
        "<style>@font-face { src: url('//example/x.woff2') }</style>",
    ],
)
def test_what_is_loaded_is_found(tmp_path, page):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "page.html").write_text(f"<html>{page}</html>")
    (found,) = external(tmp_path)
    assert found.startswith("deep/page.html: ") and "//" in found


@pytest.mark.parametrize(
    "page",
    [
        '<a href="https://arxiv.org/abs/2401.10241">paper</a>',
        '<script src="../_static/furo.js"></script>',
        '<link rel="stylesheet" href="book.css">',
        '<img src="data:image/png;base64,AAAA//AA">',
        '<svg xmlns="http://www.w3.org/2000/svg"><use href="#sun"></use></svg>',
        "<pre>curl https://example/x | url(x)</pre>",
        "<style>body { background: url(data:image/svg+xml;utf8,%3Csvg) }</style>",
    ],
)
def test_what_is_not_loaded_is_left_alone(tmp_path, page):
    (tmp_path / "page.html").write_text(f"<html>{page}</html>")
    assert external(tmp_path) == []


def test_a_style_sheet_is_looked_into(tmp_path):
    (tmp_path / "theme.css").write_text("@import 'https://fonts.example/css';")
    assert external(tmp_path) == ["theme.css: https://fonts.example/css"]


def test_a_package_that_was_tampered_with_is_refused(tmp_path):
    (tmp_path / "requirejs-2.3.8.tgz").write_bytes(b"not what npm gave")
    with pytest.raises(RuntimeError, match=r"is not the requirejs 2\.3\.8 that is expected"):
        vendored("requirejs", "2.3.8", "require.js", tmp_path)


def test_npm_that_is_not_there_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="requirejs comes from npm, which is not here"):
        vendored("requirejs", "2.3.8", "require.js", tmp_path)
