"""Speeds up the start of commands that answer in this process.

When pyarrow first gets a Python value it imports pandas if that is installed: a sixth of the time of a
question about a hundred thousand events, and none of these commands needs it. While modules are imported, the
garbage collector would search objects that never become garbage.
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
"""New objects before the garbage collector looks at the youngest generation; 700 by default."""


class _WithoutPandas(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=fullname)
        return None


_without_pandas = _WithoutPandas()


def spare(argv: Sequence[str]) -> None:
    """Prepare a process that runs this command alone."""
    here = not IN_PROCESS.isdisjoint(argv[:1]) or (argv[:1] == ["analyze"] and "--local" in argv)
    if not here or "--master" in argv:
        return
    gc.set_threshold(BETWEEN_COLLECTIONS)
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _without_pandas)


def allow_pandas() -> None:
    """Undo that, for a question that goes to Spark after all."""
    with contextlib.suppress(ValueError):
        sys.meta_path.remove(_without_pandas)
