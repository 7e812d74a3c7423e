"""The store of streaming state: RocksDB, unless the session has chosen another provider; and pages in it."""

from typing import Any

from pyspark.sql import SparkSession

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def use_rocksdb(spark: SparkSession) -> bool:
    """Set it for the session if the session has none; returns whether it was set."""
    if "RocksDB" in (spark.conf.get(PROVIDER, "") or ""):
        return False
    spark.conf.set(PROVIDER, ROCKSDB)
    return True


class StatePages:
    """Pages of bytes, by number, in the map that Spark keeps as the state of a key."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def read(self, page: int) -> bytes:
        return bytes(self._state.getValue((page,))[0])

    def write(self, page: int, data: bytes) -> None:
        self._state.updateValue((page,), (data,))

    def remove(self, page: int) -> None:
        self._state.removeKey((page,))
