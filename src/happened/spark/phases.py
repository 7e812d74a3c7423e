"""Records of the phases that a run has finished, kept beside its intermediates: a resumed run skips them.

A phase is recorded when all of its tasks are done; the record is its pickled result. What its tasks wrote
lies under names that are the same in every run. A phase that was interrupted is done again.

Records are valid for one version of this package, one state of the trace and one set of options, all part of
their fingerprint; records with another fingerprint are ignored. They are pickles: whoever can write there can
run code in the driver.
"""

import hashlib
import pickle
from collections.abc import Callable, Sequence
from typing import TypeVar

from .. import __version__
from ..trace.atomic import whole_file
from ..trace.store import AnyPath, versions_of
from .splits import Split

T = TypeVar("T")

FINGERPRINT = "fingerprint"


class Phases:
    """Runs phases; with a directory, it records each, and does not run those that are recorded there."""

    def __init__(self, directory: AnyPath | None = None) -> None:
        self._directory = directory

    def run(self, name: str, work: Callable[[], T]) -> T:
        if self._directory is None:
            return work()
        record = self._directory / f"{name}.pickle"
        if record.is_file():
            return pickle.loads(record.read_bytes())  # type: ignore[no-any-return]
        result = work()
        with whole_file(record) as path, path.open("wb") as file:
            pickle.dump(result, file)
        return result


def are_of(directory: AnyPath, fingerprint: str) -> bool:
    """Whether the records in a directory are of a run with this fingerprint."""
    path = directory / FINGERPRINT
    return path.is_file() and path.read_text() == fingerprint


def begin(directory: AnyPath, fingerprint: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with whole_file(directory / FINGERPRINT) as path:
        path.write_text(fingerprint)


def fingerprint(splits: Sequence[Split], *options: object) -> str:
    """What the phases of a run depend on: the files read, as they are now, and the options."""
    paths = sorted({piece.path for split in splits for piece in split.pieces}, key=str)
    of = (__version__, [*map(str, paths)], versions_of(paths), splits, options)
    return hashlib.sha256(repr(of).encode()).hexdigest()
