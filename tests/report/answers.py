"""The tables `happened analyze` would leave for a trace, made by the kernels alone: no Spark to start."""

from collections import Counter

import pyarrow.parquet as pq

from happened.causality.analysis import TABLES, analyse


def write_answers(folder, table):
    """Write the tables; the summary."""
    analysis = analyse(table)
    for name in TABLES:
        (folder / name).mkdir(parents=True)
        pq.write_table(analysis.table(name), folder / name / "part.parquet")
    edges = analysis.totals["necessary_edges"]
    mean = analysis.totals["necessary_units"] / edges if edges else None
    return Counter({**analysis.totals, "necessary_units_mean": mean})
