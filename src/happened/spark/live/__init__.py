"""Traces that are still being written: stamps, predecessors and order violations, batch by batch.

trace_source   what is new in a directory, as rows or bytes: `spark.readStream.format("happened")`
bucket         some of the computations, and what is kept of them between batches; without Spark
live_operator  buckets as state of Spark Structured Streaming
state_store    RocksDB
frames         `hs.stream`: streaming frames in and out
live_parts     what the operator gives out: bytes, or the names of parts that its tasks wrote
live_job       `happened stream`: a directory of tables, with a manifest for each batch

`causality.live_union` is what happens to a batch of small computations, `causality.live` to a large one's.
"""

from ..versions import require

require("happened stream")  # before a module of this package imports what older versions of PySpark lack
