"""Which extra of `pip install` installs each optional package."""

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

    None if the error is about something else: a module of our own, or a name that a package lacks.
    """
    package = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or package not in EXTRA_OF.keys() | REQUIRED:
        return None
    wanted = f"happened[{EXTRA_OF[package]}]" if package in EXTRA_OF else "happened"
    return f"{package} is not installed; install it with: pip install '{wanted}'"
