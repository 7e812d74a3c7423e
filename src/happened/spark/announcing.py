"""What is being done, for whoever watches: the log `happened`, Spark's own pages, and the caller.

On a classic session every job has a description that says which question and which pass; on any session jobs
have the tag `happened` and one of their pass, so that `spark.interruptTag("happened")` ends ours alone.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from .classic import context_of

Progress = Callable[[str], object]

LOG = logging.getLogger("happened")
TAG = "happened"
DESCRIPTION = "spark.job.description"


@contextmanager
def announcing(spark: SparkSession, job: str, progress: Progress) -> Iterator[Progress]:
    """A function to tell the pass that begins; afterwards the session is described as it was before."""
    context = context_of(spark)
    before = context.getLocalProperty(DESCRIPTION) if context is not None else None
    here = threading.get_ident()
    tags: list[str] = []

    def tag(*names: str) -> None:
        while tags:
            spark.removeTag(tags.pop())
        tags.extend(name for name in names if name not in spark.getTags())
        for name in tags:
            spark.addTag(name)

    def tell(what: str) -> None:
        if threading.get_ident() == here:  # jobs have the description and tags of the thread they start in
            LOG.info("%s: %s", job, what)
            if context is not None:
                context.setJobDescription(f"happened {job}: {what}")
            tag(TAG, f"{TAG} {job}: {what}".replace(",", ""))
        progress(what)

    try:
        yield tell
    finally:
        tag()
        if context is not None:
            context.setLocalProperty(DESCRIPTION, before)  # type: ignore[arg-type]
