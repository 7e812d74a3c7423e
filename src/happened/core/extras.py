"""Which extra of `pip install` installs each optional package; names that are imported at first use."""

from collections.abc import Callable, Mapping
from importlib import import_module

EXTRA_OF = {
    "cryptography": "net",
    "google": "connect",
    "grpc": "connect",
    "grpc_status": "connect",
    "nats": "nats",
    "networkx": "topology",
    "pandas": "spark",
    "py4j": "spark",
    "pyspark": "spark",
    "yaml": "topology",
    "zstandard": "connect",
}
REQUIRED = frozenset({"numba", "numpy", "pyarrow", "tqdm"})
"""Packages that `pip install happened` installs without any extra; a bare checkout may lack them."""


def how_to_install(error: ImportError) -> str | None:
    """One line that says which package is missing and what installs it.

    None if the error has another cause: a module of our own, or a name that a package lacks.
    """
    package = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or package not in EXTRA_OF.keys() | REQUIRED:
        return None
    wanted = f"happened[{EXTRA_OF[package]}]" if package in EXTRA_OF else "happened"
    return f"{package} is not installed; install it with: pip install '{wanted}'"


def imported_when_used(
    package: str, homes: Mapping[str, str], check: Callable[[str], object] = lambda name: None
) -> Callable[[str], object]:
    """The `__getattr__` of a package (PEP 562) that imports each name from its module when it is first used.

    check   is called with the name before; it raises if the name cannot be used
    """

    def look_up(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            check(name)
            return getattr(import_module(homes[name], package), name)
        except ImportError as error:
            advice = how_to_install(error)
            if advice is None:
                raise
            raise ImportError(f"{package}.{name} cannot be used: {advice}", name=error.name) from error

    return look_up
