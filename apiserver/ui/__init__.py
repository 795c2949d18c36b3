"""The page of all classes for a browser: one document without any data, which asks the API of its own origin.

The files beside this one are what it is made of, as they are written. Each script and style sheet is put into the page
in place of the reference to it, and the page's policy lets exactly these run, each by the hash of its bytes. That is
why the scripts are no modules: those could not import each other from within a page.
"""

import base64
import hashlib
import html
import re
from importlib.resources import files
from typing import Final

from apiserver.serving.documents import Document

PATH: Final = "/ui/"
_REFERENCE: Final = re.compile(
    r'<link rel="stylesheet" href="(?P<style>[\w.]+)">|<script src="(?P<script>[\w.]+)"></script>'
)


def make_page(file: str = "") -> Document:
    """The page.

    Args:
        file: the name of the file whose content is served, which the page then says instead of calling it live; empty
            where a cluster is followed.
    """
    hashes: dict[str, list[str]] = {"script": [], "style": []}

    def inline(reference: re.Match[str]) -> str:
        kind = reference.lastgroup or ""
        text = _read(reference[kind])
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        hashes[kind].append(f"'sha256-{digest}'")
        return f"<{kind}>{text}</{kind}>"

    text = _REFERENCE.sub(inline, _read("index.html"))
    if file:
        text = text.replace('<html lang="en">', f'<html lang="en" data-file="{html.escape(file)}">', 1)
    return Document(text.encode(), "text/html; charset=utf-8", _policy(**hashes))


def _policy(script: list[str], style: list[str]) -> str:
    """Nothing but its own scripts and styles, requests to its own origin, and no markup made from text."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(script)}",
            f"style-src {' '.join(style)}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _read(name: str) -> str:
    return (files(__name__) / name).read_text(encoding="utf-8")
