"""What happened, and what happened before it.

Causal and total message order with the least metadata, and exact causality of recorded traces.

    create(name, me, n)     a machine of an ordering protocol, for process `me` of `n`
    protocols()             every ordering protocol by name, with what it assumes and promises
    Tracker(me, members)    exact timestamps for an application's own messages
    Node(name, peers=…)     a process that sends over TCP or NATS, in order, and survives being killed
    read_trace(path)        a recorded trace as a table of events
    check(trace)            did the deliveries of a trace keep the order? With a witness if not.
    ask                     questions to a trace: ask.why(trace, event), ask.path, ask.critical_path, …

Importing this package imports nothing else: each name is looked up in its room when it is first used.
`create`, `protocols`, `Tracker` and `Node` need the standard library alone, `read_trace` needs pyarrow, and
`check` and `ask` need numpy and numba besides. docs/api.md has an example of each.
"""

# A type checker takes this name for true and sees the types; importing `typing` for it would take longer
# than the rest of this file.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import ask
    from .causality import check
    from .net import Node
    from .ordering import create, protocols
    from .trace import read as read_trace
    from .tracking import Tracker

__version__ = "0.3.0"

__all__ = ["Node", "Tracker", "__version__", "ask", "check", "create", "protocols", "read_trace"]

_HOMES = {
    "Node": ("net", "Node"),
    "Tracker": ("tracking", "Tracker"),
    "ask": ("ask", None),  # a room itself
    "check": ("causality", "check"),
    "create": ("ordering", "create"),
    "protocols": ("ordering", "protocols"),
    "read_trace": ("trace", "read"),
}


def _look_up(name: str) -> object:
    """Import the room of a name when it is first asked for; afterwards the name is bound here."""
    try:
        room, attribute = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    from importlib import import_module

    from .core.extras import how_to_install

    try:
        value: object = import_module(f".{room}", __name__)
        value = value if attribute is None else getattr(value, attribute)
    except ImportError as error:
        advice = how_to_install(error)
        if advice is None:
            raise
        reason = f"happened.{name} cannot be used: {advice}"
        raise ModuleNotFoundError(reason, name=error.name) from error
    globals()[name] = value
    return value


if not TYPE_CHECKING:  # a type checker that saw this would let any misspelt name pass
    __getattr__ = _look_up  # PEP 562


def load_ipython_extension(shell: object) -> None:
    """`%load_ext happened` in a notebook: tables that are traces are shown as pictures."""
    from pyarrow import Table

    from .view.notebook import html_of_table

    shell.display_formatter.formatters["text/html"].for_type(Table, html_of_table)  # type: ignore[attr-defined]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
