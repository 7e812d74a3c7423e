"""The space–time viewer: a trace as a page to look at, from a file or a server on this machine.

All computations about order are done here, from the judge's answers, and shipped as arrays; the page's script
(assets/) only draws and looks values up.

    viewed(path)    a trace, read and judged
    page(viewed)    one self-contained page of it
    show(table)     a picture of its first events, in a notebook
"""

from .notebook import show
from .pages import Viewed, page, viewed

__all__ = ["Viewed", "page", "show", "viewed"]
