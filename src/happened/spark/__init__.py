"""The data pipeline: what `causality` does on one machine, on Spark, from a laptop to a cluster.

Shares the kernels of `causality` and adds only what scale needs: which rows go to which task, and what
passes between tasks. Wide data does not cross the JVM: tasks read and write Arrow and Parquet themselves,
so every path must be reachable from every executor.
"""
