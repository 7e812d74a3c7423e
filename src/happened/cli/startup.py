"""What commands that answer in this process do without, so that they answer sooner.

pyarrow looks for pandas, once, when it is first given a Python value, and imports it if it is there: a sixth
of what a question about a hundred thousand events takes, and none of these commands has a use for it. The
collector of cycles looks, while modules are imported, through what will never be garbage.
"""

import contextlib
import gc
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

IN_PROCESS = {"ask", "check", "export", "view"}
BETWEEN_COLLECTIONS = 100_000
"""Objects made, less those freed, before the youngest are looked through; 700 unless told."""


class _WithoutPandas(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=fullname)
        return None


_without_pandas = _WithoutPandas()


def spare(argv: Sequence[str]) -> None:
    """Begin a process that is this command's alone."""
    here = not IN_PROCESS.isdisjoint(argv[:1]) or (argv[:1] == ["analyze"] and "--local" in argv)
    if not here or "--master" in argv:
        return
    gc.set_threshold(BETWEEN_COLLECTIONS)
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _without_pandas)


def allow_pandas() -> None:
    """For a question that goes to Spark after all."""
    with contextlib.suppress(ValueError):
        sys.meta_path.remove(_without_pandas)
