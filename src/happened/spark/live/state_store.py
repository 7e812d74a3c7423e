"""The store of streaming state: RocksDB, unless the session has chosen another one of its kind."""

from pyspark.sql import SparkSession

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def use_rocksdb(spark: SparkSession) -> bool:
    """Set it for the session if the session has none; returns whether it was set."""
    if "RocksDB" in (spark.conf.get(PROVIDER, "") or ""):
        return False
    spark.conf.set(PROVIDER, ROCKSDB)
    return True
