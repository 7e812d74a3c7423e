"""The colours of all pictures and pages, light and dark, as CSS variables: `var(--ink)`.

assets/palette.json lists all colours. Scripts read them from the style of the page in which they draw.
"""

import json
from functools import cache
from importlib.resources import files


@cache
def _declared(dark: bool) -> str:
    """The variables of one scheme as CSS declarations."""
    text = files(__package__).joinpath("assets", "palette.json").read_text(encoding="utf-8")
    scheme = "dark" if dark else "light"
    colours = "".join(f" --{name}: {pair[dark]};" for name, pair in json.loads(text).items())
    return f"color-scheme: {scheme};{colours}"


def palette(selector: str = ":root") -> str:
    """A style that gives elements the colours of the scheme that the reader prefers."""
    dark = f"@media (prefers-color-scheme: dark) {{ {selector} {{ {_declared(True)} }} }}"
    return f"{selector} {{ {_declared(False)} }}\n{dark}\n"


def switchable_palette() -> str:
    """A style for a page on which the reader can choose the scheme: it sets `data-theme` to light or dark."""
    return (
        f'{palette(":root:not([data-theme=light])")}:root[data-theme="light"] {{ {_declared(False)} }}\n'
        f':root[data-theme="dark"] {{ {_declared(True)} }}\n'
    )
