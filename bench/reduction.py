"""Are immediate predecessors cheaper than the transitive reduction of a general graph?

    python bench/reduction.py [--events 20000] [--processes 16] [--json]
    python bench/reduction.py --dag [--commits 160000] [--log commits.jsonl] [--json]

The bench records the first events of a run without any protocol (multicast to half of the processes, delays
that reorder); under causal order no message edge would be redundant and there would be nothing to reduce. It
measures on the same trace:

kernel     happened.causality.predecessors, from the Arrow table to the edges: encode, stamp, reduce
reduce     only the last step of the kernel, from stamped events to edges
networkx   transitive_reduction of the graph with the edges of process order and of messages, which is
           made before the time is taken

The kernel runs five times and the fastest counts; networkx runs once. Both must give the same edges. networkx
takes minutes, since for each event it walks all later events.

With --dag, the transitive reduction of a commit graph (bench/commit_graph.py, or a log that `happened import`
reads, with parents first) is compared with Python integers as bit sets. The figures are CPU seconds of
separate programs and their descendants (bench/importing.py; Linux only):

python        reads the log and reduces it with Python integers whose bits are a commit's ancestors
import        makes a trace of the log
one process   causality.predecessors of the trace
session       an empty Spark session, started and stopped
idle          a session that runs one Python task which does nothing: what any job costs
spark         analyze_path(questions=["predecessors"]) of the trace

and within one process, once everything is loaded and compiled, `bits` (the integers alone) and `kernel`
(causality.predecessors, from the Arrow table). All must give the same number of edges. One process may take
3 times as long as python, and so may Spark beyond an idle job. Programs run three times; the least counts.
"""

import argparse
import ctypes
import json
import platform
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
BENCH = Path(__file__).resolve().parent

import networkx as nx
import numpy as np
import pyarrow as pa

from commit_graph import commit_graph, write_commits
from happened.causality import encode, predecessors
from happened.causality.computation import Computation
from happened.causality.predecessors import computation_predecessors
from happened.causality.stamps import stamp_computation
from happened.sim.network import Network
from happened.sim.recorder import RunRecorder
from happened.sim.simulation import Simulation
from happened.trace import TraceWriter, read
from importing import PLAIN as IMPORT
from importing import PR_SET_CHILD_SUBREAPER, measure
from oracles.bit_sets import parents_in, reduction_size
from oracles.unordered import Unordered
from small import EMPTY

REPETITIONS = 5
AT_LEAST = 500
AT_MOST = 3
ROUNDS = 3

PYTHON = """
import sys
sys.path.insert(0, sys.argv[3])
from oracles.bit_sets import parents_in, reduction_size
print(reduction_size(parents_in(sys.argv[1])))
"""
ONE_PROCESS = """
import sys
from happened.causality import predecessors
from happened.trace import read
print(predecessors(read(sys.argv[2]), relevant_only=False).count)
"""
IDLE = """
from happened.spark.session import session
from happened.spark.tasks import on_tasks
spark = session("local[2]")
on_tasks(spark, 1, lambda number: number)
spark.stop()
"""
ON_SPARK = """
import shutil
import sys
from pathlib import Path
from happened.spark.pipeline import analyze_path
from happened.spark.session import session
spark = session("local[2]")
shutil.rmtree(sys.argv[2] + "-answers", ignore_errors=True)
analyze_path(spark, Path(sys.argv[2]), Path(sys.argv[2] + "-answers"), questions=["predecessors"])
spark.stop()
"""


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
                recorder=RunRecorder(writer),
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


def of_commits(arguments: argparse.Namespace) -> dict[str, float]:
    """The figures of a commit graph."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="happened-reduction-") as work:
        log = arguments.log or Path(work) / "commits.jsonl"
        if arguments.log is None:
            with log.open("w") as file:
                write_commits(file, commit_graph(arguments.commits, arguments.seed))
        given = str(log), f"{work}/trace", str(BENCH.parent / "tests")
        cpu = {"import": measure(IMPORT, *given)[0]}
        parents, table = parents_in(log), read(Path(work) / "trace")
        (c,) = encode(table)
        found = predecessors(table, relevant_only=False).count  # compiles the kernels, too
        programs = {
            "python": PYTHON, "one process": ONE_PROCESS, "session": EMPTY, "idle": IDLE, "spark": ON_SPARK
        }  # fmt: skip
        for name, code in programs.items():
            cpu[name] = min(measure(code, *given)[0] for _ in range(ROUNDS))
        summary = json.loads(Path(f"{work}/trace-answers/summary.json").read_text())
    begin = time.process_time()
    size = reduction_size(parents)
    middle = time.process_time()
    predecessors(table, relevant_only=False)
    assert size == found == summary["reduction_edges"], (size, found, summary["reduction_edges"])
    return {
        "events": c.events,
        "processes": c.processes,
        "edges_recorded": sum(map(len, parents)),
        "edges_reduced": size,
        **cpu,
        "bits": middle - begin,
        "kernel": time.process_time() - middle,
        "one process/python": cpu["one process"] / cpu["python"],
        "(spark - idle)/python": (cpu["spark"] - cpu["idle"]) / cpu["python"],
    }


def tell_commits(result: dict[str, float]) -> None:
    print(f"{result['events']:,} commits on {result['processes']:,} chains")
    print(f"{result['edges_recorded']:,} edges recorded, {result['edges_reduced']:,} left by all")
    for name in ("import", "python", "one process", "session", "idle", "spark", "bits", "kernel"):
        print(f"  {name:12} {result[name]:8.2f} CPU s")
    for name in ("one process/python", "(spark - idle)/python"):
        print(f"  {name} {result[name]:.2f} (at most {AT_MOST} wanted)")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print only the figures, as JSON")
    parser.add_argument("--dag", action="store_true", help="a commit graph against Python integers")
    parser.add_argument("--commits", type=int, default=160_000)
    parser.add_argument("--log", type=Path, help="of commits, JSON lines with id and parents; parents first")
    arguments = parser.parse_args()
    if arguments.dag:
        result = of_commits(arguments)
        if arguments.json:
            print(json.dumps(result, indent=2))
        else:
            tell_commits(result)
        raise SystemExit(max(v for name, v in result.items() if "/" in name) > AT_MOST)
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
