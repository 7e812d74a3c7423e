"""The phases of a run: announced to people who watch, and recorded so that a resumed run skips them.

Phases are announced in the log `happened`, on Spark's own pages and to the caller's function: on a classic
session every job has a description that names the question and the pass; on any session jobs have the tag
`happened` and a tag of their pass, so that `spark.interruptTag("happened")` ends our jobs alone.

When all tasks of a phase are done, its pickled result is recorded beside the intermediate files. The names of
the files that its tasks write are the same in every run. A phase that was interrupted is done again. Records
are valid for one version of this package, one state of the trace and one set of options, all part of their
fingerprint; records with another fingerprint are ignored. As the records are pickles, whoever can write to
their directory can run code in the driver.
"""

import hashlib
import logging
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from .. import __version__
from ..trace.atomic import whole_file
from ..trace.store import AnyPath, versions_of
from .splits import Split
from .versions import context_of, tags_of

T = TypeVar("T")

FINGERPRINT = "fingerprint"


class Phases:
    """Runs phases. With a directory, it records each phase there and skips those recorded already."""

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
    """Whether the records in a directory come from a run with this fingerprint."""
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


Progress = Callable[[str], object]

LOG = logging.getLogger("happened")
TAG = "happened"
DESCRIPTION = "spark.job.description"


@contextmanager
def announcing(spark: SparkSession, job: str, progress: Progress) -> Iterator[Progress]:
    """Yields a function to call when a pass begins; afterwards the session's description is restored."""
    context = context_of(spark)
    before = context.getLocalProperty(DESCRIPTION) if context is not None else None
    here = threading.get_ident()
    tagging = tags_of(spark)
    tags: list[str] = []
    passes: list[tuple[str, float]] = []

    def end_pass() -> None:
        if passes:
            what, began = passes.pop()
            LOG.info("%s: %s took %.1f s", job, what, time.perf_counter() - began)

    def tag(*names: str) -> None:
        while tags:
            tagging.remove(tags.pop())
        tags.extend(name for name in names if name not in tagging.get())
        for name in tags:
            tagging.add(name)

    def tell(what: str) -> None:
        if threading.get_ident() == here:  # jobs get the description and tags of the thread that starts them
            end_pass()
            passes.append((what, time.perf_counter()))
            LOG.info("%s: %s", job, what)
            if context is not None:
                context.setJobDescription(f"happened {job}: {what}")
            tag(TAG, f"{TAG} {job}: {what}".replace(",", ""))
        progress(what)

    try:
        yield tell
        end_pass()
    finally:
        tag()
        if context is not None:
            context.setLocalProperty(DESCRIPTION, before)  # type: ignore[arg-type]


def log_totals(job: str, summary: Mapping[str, Any]) -> None:
    """One log line: how many rows were judged, and how many could not be."""
    LOG.info(
        "%s: %s events, %s rows quarantined", job, f"{summary['events']:,}", f"{summary['quarantined']:,}"
    )
