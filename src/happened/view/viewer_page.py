"""The page of a view: one file that needs no network and runs only its own script.

A Content-Security-Policy in the page's head allows only the script and style with the given hashes, so that
no text of a trace can run. Scenes are in the page as base64; names are escaped, and the script inserts them
as text only.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from .palette import switchable_palette

SCRIPTS = (
    "scene", "picture", "glyphs", "ground", "lines", "paint", "spans", "query", "panels", "served",
    "overview", "story", "app", "input", "start",
)  # fmt: skip
"""The scripts in the order in which they are joined: a class comes before the classes that extend it."""


@cache
def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


@cache
def style() -> str:
    return switchable_palette() + _asset("viewer.css")


@cache
def script() -> str:
    """The whole script, its names private to the page."""
    return '"use strict";\n(() => {\n' + "\n".join(_asset(f"{name}.js") for name in SCRIPTS) + "})();\n"


def policy(connect: str = "'none'") -> str:
    """The Content-Security-Policy: its own script and style alone, and connections to `connect`."""
    return (
        f"default-src 'none'; script-src '{_hash(script())}'; style-src '{_hash(style())}'; "
        f"img-src blob:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def html(about: Mapping[str, Any], scenes: Sequence[str] = (), connect: str = "'none'") -> str:
    """The page. `about` describes what it shows; `scenes` are packed, as base64."""
    blocks = (f'<script type="text/plain" id="scene-{n}">{text}</script>\n' for n, text in enumerate(scenes))
    told = json.dumps(about).replace("<", "\\u003c")  # no text can then end the script element
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy(connect))}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(str(about['title']))}</title><style>{style()}</style></head>\n"
        f'{_asset("frame.html")}<script type="application/json" id="about">{told}</script>\n'
        f"{''.join(blocks)}<script>{script()}</script>\n</body></html>\n"
    )
