"""What older versions of PySpark lack: the only place that checks versions.

PySpark 3.5 answers every question about a trace or a frame; streams need 4.0 or newer.
"""

from typing import NamedTuple

import pyspark

from ..core.errors import CausalityError


class Need(NamedTuple):
    since: tuple[int, int]
    of_spark: str


NEEDS = {
    "happened stream": Need((4, 0), "sources of streams written in Python"),
    "deliver": Need((4, 0), "transformWithState"),
    "held": Need((4, 0), "the state of a checkpoint as a table"),
    "NatsSource": Need((4, 0), "sources of streams written in Python"),
    "a limit of a batch": Need((4, 2), "ReadLimit"),
    "plain checkpoint files": Need((4, 3), "FileSystemBasedCheckpointFileManager where it is now"),
    "tags of a classic session": Need((4, 0), "SparkSession.addTag"),
}
"""For each feature, the first version of PySpark that has what it needs, and what that is; names of
happened.streaming are looked up here before they are imported."""


def has(feature: str) -> bool:
    return _installed() >= NEEDS[feature].since


def require(feature: str) -> None:
    """CausalityError if the installed PySpark is too old for a feature."""
    if not has(feature):
        (major, minor), of_spark = NEEDS[feature]
        raise CausalityError(
            f"{feature} needs PySpark {major}.{minor} or newer ({of_spark}); this is {pyspark.__version__}"
        )


def _installed() -> tuple[int, int]:
    major, minor, *_ = pyspark.__version__.split(".")
    return int(major), int(minor)
