"""Are immediate predecessors cheaper than the transitive reduction of a general graph?

    python bench/reduction.py [--events 20000] [--processes 16] [--json]

A run without any protocol is recorded (multicast to half of the processes, delays that reorder) and its
first events are kept; under causal order no message edge is redundant and there is nothing to reduce. In
one run, on the same trace:

kernel     happened.causality.predecessors, from the Arrow table to the edges: encode, stamp, reduce
reduce     of that, only the step from stamped events to edges
networkx   transitive_reduction of the graph with the edges of process order and of messages, which is
           made before the time is taken

The kernel's fastest of five repetitions counts, networkx's only one. Both must give the same edges. networkx
walks everything after an event once per event: it takes minutes.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import networkx as nx
import numpy as np
import pyarrow as pa

from happened.causality import encode, predecessors
from happened.causality.computation import Computation
from happened.causality.predecessors import computation_predecessors
from happened.causality.stamps import stamp_computation
from happened.sim.network import Network
from happened.sim.recorder import Recorder
from happened.sim.simulation import Simulation
from happened.trace import TraceWriter, read
from oracles.unordered import Unordered

REPETITIONS = 5
AT_LEAST = 500


def record(events: int, processes: int, seed: int) -> pa.Table:
    """The first `events` rows of a run: rows are written as they happen, so causes are among them."""
    with tempfile.TemporaryDirectory(prefix="happened-reduction-") as work:
        with TraceWriter(Path(work) / "trace") as writer:
            Simulation(
                Unordered,
                processes,
                events // 8,
                seed=seed,
                network=Network(),
                recorder=Recorder(writer),
                control_sizes=lambda messages: [0] * len(messages),
            ).run()
        table = read(Path(work) / "trace")
    assert table.num_rows >= events, f"only {table.num_rows} events were recorded"
    return table.slice(0, events)


def graph(c: Computation) -> nx.DiGraph:
    """Happened-before as recorded: the next event of the process, and from each send to its deliveries."""
    made = nx.DiGraph()
    made.add_nodes_from(range(c.events))
    for p in range(c.processes):
        nx.add_path(made, c.chain[c.chain_offsets[p] : c.chain_offsets[p + 1]].tolist())
    delivered = np.flatnonzero(c.source >= 0)
    made.add_edges_from(zip(c.source[delivered].tolist(), delivered.tolist(), strict=True))
    return made


def fastest(work) -> float:
    best = float("inf")
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print only the figures, as JSON")
    arguments = parser.parse_args()
    table = record(arguments.events, arguments.processes, arguments.seed)
    (c,) = encode(table)
    found = predecessors(table, relevant_only=False)  # compiles the kernels, too
    ours = set(zip(found.causes[0].tolist(), found.effects[0].tolist(), strict=True))
    vectors, every = stamp_computation(c), np.ones(c.events, bool)
    result = {
        "events": c.events,
        "processes": c.processes,
        "kernel": fastest(lambda: predecessors(table, relevant_only=False)),
        "reduce": fastest(lambda: computation_predecessors(c, vectors, every)),
    }
    whole = graph(c)
    result["edges_recorded"] = whole.number_of_edges()
    result["edges_reduced"] = len(ours)
    start = time.perf_counter()
    theirs = set(nx.transitive_reduction(whole).edges)
    result["networkx"] = time.perf_counter() - start
    assert theirs == ours, f"{len(theirs ^ ours)} edges differ"
    result["networkx/kernel"] = result["networkx"] / result["kernel"]
    result["networkx/reduce"] = result["networkx"] / result["reduce"]
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    print(f"CPython {platform.python_version()}, networkx {nx.__version__}, {c.events:,} events")
    print(f"  {result['edges_recorded']:,} edges recorded, {len(ours):,} left by both")
    for name in ("kernel", "reduce", "networkx"):
        print(f"  {name:10} {result[name]:12.4f} s")
    print(f"  networkx/kernel {result['networkx/kernel']:,.0f} (at least {AT_LEAST} wanted)")
    print(f"  networkx/reduce {result['networkx/reduce']:,.0f}")
    raise SystemExit(result["networkx/kernel"] < AT_LEAST)


if __name__ == "__main__":
    main()
