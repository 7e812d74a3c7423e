"""Checks, before the work begins, that executors reach the same directories as the driver.

In    where tasks will write, and a file that they will read
Cost  on a local master nothing; else one small job, or none where a trace fits one task, which looks itself

An executor with another directory under the same name would write there, and its tables would be lost. So the
driver writes a small file into each directory, and tasks look for it.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from ..core.errors import CausalityError
from ..trace.atomic import whole_file
from ..trace.store import AnyPath, size_of
from .tasks import Trouble, cannot_reach, is_local, on_tasks

PROBES = 16
"""Tasks that check; Spark spreads them over the executors it has."""

WORD = ".driver"


@dataclass(frozen=True)
class Preflight:
    """The file that a task looks for; nothing on a local master."""

    word: str = ""
    directories: tuple[AnyPath, ...] = ()
    file: AnyPath | None = None

    def look(self, number: int = 0) -> Trouble | None:
        """Runs in a task; returns what is wrong."""
        for directory in self.directories:
            try:
                said = (directory / WORD).read_text()
                probe = directory / f".probe-{number:03d}"
                with whole_file(probe) as path:
                    path.write_text(self.word)
                probe.unlink(missing_ok=True)  # created by another attempt of this task, perhaps
            except (OSError, CausalityError) as error:
                return Trouble(cannot_reach(directory, _why(error)))
            if said != self.word:
                return Trouble(cannot_reach(directory, "what they have there is another directory"))
        if self.file is not None:
            try:
                size_of(self.file)
                with self.file.open("rb") as file:
                    file.read(4)
            except (OSError, CausalityError) as error:
                return Trouble(cannot_reach(self.file, _why(error)))
        return None

    def look_everywhere(self, spark: SparkSession) -> None:
        """CausalityError if an executor does not reach what the driver reaches."""
        if self.directories:
            on_tasks(spark, PROBES, self.look)

    def end(self) -> None:
        for directory in self.directories:
            (directory / WORD).unlink(missing_ok=True)


def preflight(spark: SparkSession, directories: Sequence[AnyPath], file: AnyPath | None) -> Preflight:
    """Write the small file into each directory, if tasks run elsewhere."""
    if is_local(spark):
        return Preflight()
    word = os.urandom(8).hex()
    for directory in directories:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / WORD).write_text(word)
    return Preflight(word, tuple(directories), file)


def _why(error: OSError | CausalityError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
