"""Progress for people who watch: the log `happened`, Spark's own pages, and the caller's function.

On a classic session every job has a description that names the question and the pass; on any session jobs
have the tag `happened` and a tag of their pass, so that `spark.interruptTag("happened")` ends our jobs alone.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from .versions import context_of, tags_of

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
        if threading.get_ident() == here:  # jobs have the description and tags of the thread they start in
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
