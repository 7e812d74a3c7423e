"""The data pipeline: what `causality` does on one machine, on Spark, from a laptop to a cluster.

Shares the kernels of `causality` and adds only what scale needs: which rows go to which task, and what
passes between tasks. Wide data does not cross the JVM: tasks read and write Arrow and Parquet themselves,
so every path or URL must be reachable from every executor.

splits, sizes    what a task reads, and how large the computations are
one_pass         every split is read once: whole computations are answered, large ones leave edges
whole            computations that fit a task
by_epoch         those that do not
tasks, storage   how work gets to tasks, and where they leave what they made
preflight        whether executors reach what the driver does
phases           what a run has finished, for one that goes on
"""
