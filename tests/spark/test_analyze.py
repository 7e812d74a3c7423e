"""Spark says what the kernels say on one machine, whole or cut into epochs."""

import json
import random
from collections import Counter
from functools import partial
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from causality import traces
from happened.causality import check_order, encode
from happened.causality.analysis import TABLES, analyse
from happened.causality.questions import necessary, question
from happened.core.errors import CausalityError, TraceFormatError
from happened.ordering import create
from happened.sim.network import Network
from happened.sim.recorder import RunRecorder
from happened.sim.simulation import Simulation
from happened.spark import one_pass
from happened.spark.by_epoch import epoch_layout, stamping, steps
from happened.spark.pipeline import analyze_path
from happened.trace import SCHEMA, TraceWriter, read


def wild_rows(seed, count, *, prefix="", computation=None, skew=0):
    """`count` random computations that break every rule but have no cycle, as rows."""
    dice = random.Random(seed)
    rows, made = [], 0
    while made < count:
        name = f"{computation}{made}" if computation is not None else ""
        candidate = traces.wild(dice, name)
        try:
            encode(traces.table(candidate))
        except TraceFormatError:
            continue
        if prefix:
            for row in candidate:
                _rename(row, f"{prefix}{made}.")
        if skew:
            _give_times(candidate, dice, skew)
        _give_clocks(candidate, dice)
        for row in candidate:
            row["relevant"] = dice.random() < 0.7
        rows += candidate
        made += 1
    dice.shuffle(rows)
    return rows


def _rename(row, prefix):
    row["process"] = prefix + row["process"]
    if row.get("message"):
        row["message"] = prefix + row["message"]
    if row.get("to"):
        row["to"] = [prefix + name for name in row["to"]]
    if row.get("causes"):
        row["causes"] = [{"process": prefix + c["process"], "seq": c["seq"]} for c in row["causes"]]


def _give_times(rows, dice, skew):
    """Times that follow some order of events, on clocks that are apart by up to `skew`."""
    ahead = {row["process"]: dice.randint(-skew, skew) for row in rows}
    for row in rows:
        row["time"] = row["seq"] * 10 + ahead[row["process"]] + dice.randint(0, 5)


def _give_clocks(rows, dice):
    """Clocks that some events claim: mostly ones that grow, some that shrink, and entries that cannot be."""
    names = sorted({row["process"] for row in rows})
    for row in rows:
        if dice.random() < 0.6:
            others = dice.sample(names, dice.randint(0, len(names)))
            clock = {name: dice.randint(0, row["seq"]) for name in others}
            row["clock"] = clock | {row["process"]: row["seq"] - (dice.random() < 0.1)}
            if dice.random() < 0.1:
                row["clock"]["absent"] = dice.randint(-1, 2)


def write(rows, path):
    table = pa.Table.from_pylist(
        [{"computation": "", "relevant": False} | row for row in rows], schema=SCHEMA
    )
    path.mkdir()
    third = max(1, table.num_rows // 3)
    for part, at in enumerate(range(0, max(table.num_rows, 1), third)):
        pq.write_table(table.slice(at, third), path / f"part-{part}.parquet")
    return table


def same(trace, out, summary, timestamps="full"):
    expected = analyse(trace, timestamps=timestamps)
    for name in TABLES:
        assert traces.rows_of(pq.read_table(out / name), name) == traces.rows_of(
            expected.table(name), name
        ), name
    for name, value in summary.items():
        if name != "necessary_units_mean":
            assert value == expected.totals[name], name
    return expected


def test_thousands_of_random_computations_at_once(spark, tmp_path, seed):
    table = write(wild_rows(seed, 1000, computation="c", skew=50), tmp_path / "trace")
    summary = analyze_path(spark, tmp_path / "trace", tmp_path / "out", split_rows=1)
    expected = same(table, tmp_path / "out", summary)
    assert expected.totals["causal_violations"] > 100
    assert expected.totals["lost"] > 100
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == summary


def in_blocks(monkeypatch):
    """Walks go through few columns at a time."""
    monkeypatch.setattr(question, "WIDTH", 5)
    monkeypatch.setattr(necessary, "CELLS", 300)
    monkeypatch.setattr(steps, "WIDTH", 9)


def as_if_wide(monkeypatch):
    """Any computation that is cut has too many processes for whole vectors."""
    in_blocks(monkeypatch)
    monkeypatch.setattr(epoch_layout, "WIDE", 1)


@pytest.mark.parametrize(
    "epoch_events, skew, split_rows, arrange, timestamps",
    [
        pytest.param(40, 0, 1, None, "full", marks=pytest.mark.slow),
        pytest.param(40, 300, 1, as_if_wide, "predecessors", marks=pytest.mark.slow),
        (5000, 20, 1000, in_blocks, "predecessors"),
        pytest.param(40, 0, 1000, as_if_wide, "predecessors", marks=pytest.mark.slow),
        pytest.param(40, 300, 1000, in_blocks, "sparse", marks=pytest.mark.slow),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_one_computation_cut_into_epochs(
    spark, tmp_path, seed, monkeypatch, epoch_events, skew, split_rows, arrange, timestamps
):
    """Losses, strays, duplicates, causes, silent processes; clocks many epochs apart, or no times at all."""
    if arrange:
        arrange(monkeypatch)
    monkeypatch.setattr(stamping, "EPOCHS_PER_GROUP", 3)
    table = write(wild_rows(seed, 12, prefix="w", skew=skew), tmp_path / "trace")
    summary = analyze_path(
        spark,
        tmp_path / "trace",
        tmp_path / "out",
        whole_events=1,
        epoch_events=epoch_events,
        split_rows=split_rows,
        timestamps="full" if arrange is as_if_wide else timestamps,  # what nobody has is not given
    )
    same(table, tmp_path / "out", summary, timestamps)
    epochs = set(pq.read_table(tmp_path / "out" / "stamps")["epoch"].to_pylist())
    assert len(epochs) > (2 if epoch_events == 40 else 0)
    assert summary["receives_before_sends"] >= summary["receives_before_sends_corrected"]


def edges_of(table):
    """Happened-before of one computation as (process, seq) pairs, from the kernels' own encoding."""
    (c,) = encode(table)
    name = [(c.process_names[c.process[e]], int(c.seq[e])) for e in range(c.events)]
    edges = {(name[c.source[e]], name[e]) for e in range(c.events) if c.source[e] >= 0}
    return edges | {
        (name[cause], name[e])
        for e in range(c.events)
        for cause in c.causes[c.cause_offsets[e] : c.cause_offsets[e + 1]]
    }


@pytest.fixture(scope="module")
def order_across_epochs(spark, tmp_path_factory, module_seed):
    """A trace that is cut, the violations found in it, and the summary."""
    folder = tmp_path_factory.mktemp("order")
    table = write(wild_rows(module_seed, 40, prefix="w", skew=100), folder / "trace")
    summary = analyze_path(
        spark, folder / "trace", folder / "out", questions=["order"], whole_events=1, epoch_events=60
    )
    return table, pq.read_table(folder / "out" / "violations").to_pylist(), summary


def test_witnesses_across_epochs_are_paths_of_happened_before(order_across_epochs, module_seed):
    print("seed", module_seed)
    table, found, summary = order_across_epochs
    edges = edges_of(table)
    sends = {
        row["message"]: (row["process"], row["seq"]) for row in table.to_pylist() if row["kind"] == "send"
    }
    early = [row for row in found if row["order_name"] == "causal"]
    assert len(early) == summary["causal_violations"] > 3
    of_fifo = [row for row in found if row["order_name"] == "fifo"]
    assert sum(row["path"] is not None for row in of_fifo) >= min(100, len(of_fifo))
    assert sum(row["path"] is not None for row in early) >= min(100, len(early))
    for row in (row for row in (*early, *of_fifo) if row["path"] is not None):
        path = [(step["process"], step["seq"]) for step in row["path"]]
        assert path[0] == sends[row["overtaken"]]
        assert path[-1] == sends[row["early"]]
        for one, next_ in pairwise(path):
            assert (one, next_) in edges or (one[0] == next_[0] and one[1] < next_[1])


@pytest.mark.parametrize("arrange", [pytest.param(None, marks=pytest.mark.slow), as_if_wide])
def test_a_path_over_many_epochs(spark, tmp_path, monkeypatch, arrange):
    """p tells q, q tells r much later, and what r then sends overtakes what p sent first."""
    if arrange:
        arrange(monkeypatch)
    pause = [{"kind": "internal"}] * 60
    chains = {
        "p": [send("m1", "z"), send("a", "q"), *pause],
        "q": [deliver("a"), *pause, send("b", "r")],
        "r": [*pause, deliver("b"), *pause, send("m2", "z")],
        "z": [*pause, deliver("m2"), deliver("m1")],
    }
    write(traces.number(chains), tmp_path / "trace")
    analyze_path(spark, tmp_path / "trace", tmp_path / "out", whole_events=1, epoch_events=20)
    (row,) = (
        row
        for row in pq.read_table(tmp_path / "out" / "violations").to_pylist()
        if row["order_name"] == "causal"
    )
    path = [(step["process"], step["seq"], step["kind"], step["message"]) for step in row["path"]]
    assert path == [
        ("p", 1, "send", "m1"),
        ("p", 2, "send", "a"),
        ("q", 1, "deliver", "a"),
        ("q", 62, "send", "b"),
        ("r", 61, "deliver", "b"),
        ("r", 122, "send", "m2"),
    ]
    epochs = {
        (stamp["process"], stamp["seq"]): stamp["epoch"]
        for stamp in pq.read_table(tmp_path / "out" / "stamps").to_pylist()
    }
    assert epochs["r", 122] - epochs["p", 1] > 5


def batched(items, size):
    return [tuple(items[at : at + size]) for at in range(0, len(items), size)]


def send(message, *to):
    return {"kind": "send", "message": message, "to": list(to)}


def deliver(message):
    return {"kind": "deliver", "message": message}


def test_total_order_across_epochs(order_across_epochs, module_seed):
    print("seed", module_seed)
    table, violations, summary = order_across_epochs
    verdict = check_order(table, "total")
    assert summary["total_violations"] == verdict.violations > 0
    rows = {(row["process"], row["seq"]): row for row in table.to_pylist()}
    found = [row for row in violations if row["order_name"] == "total"]
    assert len(found) == summary["total_violations"]
    for row in found:
        legs = [*batched(row["path"], 2)]
        for first, second in legs:
            assert first["process"] == second["process"] != row["process"]
            assert first["seq"] < second["seq"]
        # Two processes disagree, or more of them in a circle.
        assert (legs[0][0]["message"], legs[-1][1]["message"]) == (row["overtaken"], row["early"])
        assert all(one[1]["message"] == next_[0]["message"] for one, next_ in pairwise(legs))
        assert row["early_seq"] < row["overtaken_seq"]
        assert rows[row["process"], row["early_seq"]]["message"] == row["early"]
        assert rows[row["process"], row["overtaken_seq"]]["message"] == row["overtaken"]


def test_an_output_that_exists_is_not_touched(spark, tmp_path):
    write([], tmp_path / "trace")
    (tmp_path / "out").mkdir()
    with pytest.raises(CausalityError, match="exists already"):
        analyze_path(spark, tmp_path / "trace", tmp_path / "out")


def test_an_empty_trace_is_a_summary_of_nothing(spark, tmp_path):
    write([], tmp_path / "trace")
    summary = analyze_path(spark, tmp_path / "trace", tmp_path / "out")
    assert summary["events"] == 0
    assert all(pq.read_table(tmp_path / "out" / name).num_rows == 0 for name in TABLES)


def test_large_small_and_scattered_computations_at_once(spark, tmp_path, seed):
    """Several large ones go through every phase together, and leave the others to their own."""
    rows = wild_rows(seed, 60, computation="c", skew=50)
    for name in ("x", "y"):
        rows += [row | {"computation": name} for row in wild_rows(f"{seed}{name}", 6, prefix="w", skew=30)]
    random.Random(seed).shuffle(rows)
    table = write(rows, tmp_path / "trace")
    sizes = sorted(Counter(row["computation"] for row in rows).values())
    summary = analyze_path(
        spark,
        tmp_path / "trace",
        tmp_path / "out",
        whole_events=sizes[-4],  # two of the others are large as well
        epoch_events=30,
        split_rows=1,
    )
    same(table, tmp_path / "out", summary)


def test_a_trace_written_as_it_happened_is_matched_in_its_splits(spark, tmp_path, seed, monkeypatch):
    """Every delivery finds its send in its own split or among the messages between splits: no second pass."""

    def refuse(*_, **__):
        raise AssertionError("a second pass over the rows")

    monkeypatch.setattr(one_pass, "replace", refuse)
    with TraceWriter(tmp_path / "trace", batch_rows=400) as writer:
        simulation = Simulation(
            partial(create, "ks"),
            5,
            200,
            seed=seed,
            network=Network(duplicate=0.1),
            recorder=RunRecorder(writer),
        )
        assert simulation.run() == []
    summary = analyze_path(
        spark, tmp_path / "trace", tmp_path / "out", whole_events=1, epoch_events=300, split_rows=1
    )
    same(read(tmp_path / "trace"), tmp_path / "out", summary)
    assert len(list((tmp_path / "trace").glob("*.parquet"))) > 2
    assert summary["messages"] == 200


def test_names_come_from_the_epochs_of_the_sends(spark, tmp_path):
    """A trace of nothing but violations, in epochs of 20 events: each is about two that are far apart."""
    messages = [f"m{number}" for number in range(60)]
    chains = {
        "p": [send(message, "q") for message in messages],
        "q": [deliver(message) for message in reversed(messages)],
    }
    table = write(traces.number(chains), tmp_path / "trace")
    summary = analyze_path(
        spark, tmp_path / "trace", tmp_path / "out", questions=["order"], whole_events=1, epoch_events=20
    )
    assert summary["causal_violations"] == 59
    expected = analyse(table, questions=["order"]).table("violations")
    found = pq.read_table(tmp_path / "out" / "violations")
    assert traces.rows_of(found, "violations") == traces.rows_of(expected, "violations")
