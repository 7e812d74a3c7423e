"""Traces as they are being written: the questions of stamps, predecessors and order, batch by batch.

trace_tail     what is new in a directory since last time: parts that appeared, lines that were added
trace_source   the same as a source of Spark, `spark.readStream.format("happened")`
live_job       every micro-batch is an epoch; the state and the tables of a batch are committed together

`causality.live` is what happens to a batch.
"""
