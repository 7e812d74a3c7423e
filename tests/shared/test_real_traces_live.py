"""Real traces that come in random batches, shuffled, some rows twice: told as the whole is."""

import json
import random
from collections import Counter
from unittest.mock import Mock

import pyarrow as pa

from causality.test_live import early, pairs, stamps
from happened import trace
from happened.causality.analysis import analyse
from happened.causality.live import Rules
from happened.spark.live.bucket import Bucket
from happened.trace.importing import import_files
from happened.trace.readers import Options

QUESTIONS = ["stamp", "predecessors", "order"]
MOST_EVENTS = 20_000
"""Of a trace: a larger one takes no other way."""


FAMILIES = ("shiviz", "peterson", "tracing-tokens", "kaspa-dag", "zipkin", "etcd-raft")


def samples(shared):
    """Up to four files of each family."""
    named = sorted({name.partition("#")[0] for name in json.loads((shared / "EXPECTED.json").read_text())})
    for family in FAMILIES:
        files = [
            shared / name for name in named if name.startswith(f"{family}/") and (shared / name).is_file()
        ]
        yield from files[:4]


def test_real_traces_in_batches_are_told_as_the_whole(shared_traces, tmp_path, seed):
    dice, done = random.Random(seed), Counter()
    parsers = shared_traces / "shiviz" / "parsers.json"
    for number, sample in enumerate(samples(shared_traces)):
        options = Options(parsers=str(parsers) if sample.parent.name == "shiviz" else None)
        import_files([sample], tmp_path / f"in{number}", options=options)
        events = trace.read(tmp_path / f"in{number}")
        if not 0 < events.num_rows <= MOST_EVENTS or not _has_deliveries(events):
            continue
        out = _follow(events, dice)
        whole = analyse(events, questions=QUESTIONS)
        numbers = {(r["computation"], r["p"]): r["process"] for r in whole.table("processes").to_pylist()}
        names = {(r["computation"], r["p"]): r["process"] for r in out["processes"]}
        for computation in {row["computation"] for row in out["stamps"]}:
            _compare(out, whole, computation, names, numbers)
            done["computations"] += 1
        assert len(out["stamps"]) == events.num_rows
        done["traces"] += 1
    assert done["traces"] >= 5, done


def _has_deliveries(events):
    kinds = Counter(events["kind"].to_pylist())
    return kinds["deliver"] or not kinds["receive"]


def _follow(events, dice):
    """The rows of each table that a bucket told of."""
    order = [*range(events.num_rows), *dice.sample(range(events.num_rows), events.num_rows // 10)]
    order.sort(key=lambda k: k + dice.uniform(0, events.num_rows / 3))
    pages, head, told = {}, None, {}
    store = Mock(read=pages.__getitem__, write=pages.__setitem__, remove=pages.pop)
    size = max(events.num_rows // 7, 1)
    for batch in range(-(-len(order) // size) + 1):
        bucket = Bucket(store, head, Rules(retire=10**6, recent=10**6))
        part = events.take(pa.array(order[batch * size : (batch + 1) * size], pa.int64()))
        answers = bucket.arrive(part, batch) if part.num_rows else bucket.end(batch)
        head = bucket.close(answers)
        for name, table in answers.filled():
            told.setdefault(name, []).extend(table.to_pylist())
    assert head is None and not pages
    return told


def _compare(out, whole, computation, names, numbers):
    def of(rows):
        return [row for row in rows if row["computation"] == computation]

    def named(known):
        return {p: process for (each, p), process in known.items() if each == computation}

    live, expected = of(out["stamps"]), of(whole.table("stamps").to_pylist())
    assert stamps(live, named(names)) == stamps(expected, named(numbers))
    found = pairs(of(out.get("predecessors", [])))
    assert found == pairs(of(whole.table("predecessors").to_pylist()))
    violations = of(whole.table("violations").to_pylist())
    assert early(of(out.get("violations", [])), "early_event") == early(violations, "early_event")
