"""Traces of systems nobody here wrote: every expected count, from the imported trace alone.

`FIELDS` says how each field of EXPECTED.json is obtained: from the judge's answers about the trace table,
or from import.json. A field without an entry there fails its test.
"""

import json
from itertools import permutations

import numpy as np
import pyarrow as pa
import pytest

from happened import causality, trace
from happened.causality.stamps import stamp_computation
from happened.trace.importing import import_files
from happened.trace.readers import Options

FORMATS = {
    "shiviz": "shiviz",
    "tracing-tokens": "tokens",
    "peterson": "peterson",
    "kaspa-dag": "dag",
    "editing-dag": "dag",
    "nezha-spans": "nezha",
    "zipkin": "zipkin",
    "etcd-raft": "etcd-raft",
}


class Imported:
    """One sample, imported once, with the judge's answers about it."""

    def __init__(self, shared, name, out):
        self.format = FORMATS[name.split("/")[0]]
        parsers = shared / "shiviz" / "parsers.json" if self.format == "shiviz" else None
        options = Options(parsers=str(parsers) if parsers else None)
        self.done = import_files([shared / name], out, options=options)
        assert self.done.summary["format"] == self.format  # recognised, not told
        self.summary = json.loads((out / "import.json").read_text())
        self.file = self.summary["files"][0]
        self.table = trace.read(out)
        self.computations = {c.name: c for c in causality.encode(self.table)}


class Sample:
    """One computation of an imported file, or all of them."""

    def __init__(self, imported, run):
        self.imported = imported
        self.file = imported.file
        self.computations = [
            c for name, c in imported.computations.items() if not run or name.endswith(f"#{run}")
        ]
        assert self.computations
        self.stamps = causality.stamp(self.computations)
        self.reduction = causality.predecessors(self.computations, relevant_only=False)

    def edges(self):
        """(computation, effects, causes) of the transitive reduction."""
        return zip(self.computations, self.reduction.effects, self.reduction.causes, strict=True)

    def remote_predecessors(self):
        """Per event that has any, how many of its immediate predecessors are on other processes."""
        counts = []
        for c, effects, causes in self.edges():
            remote = effects[c.process[effects] != c.process[causes]]
            counts += np.unique(remote, return_counts=True)[1].tolist()
        return np.array(counts)

    def predecessors_later_in_file(self):
        # Rows are written in the order of the file.
        return sum(int(np.sum(c.row[causes] > c.row[effects])) for c, effects, causes in self.edges())

    def recorded_edges(self):
        return sum(c.causes.size for c in self.computations)

    def events_with_redundant_cause(self):
        redundant = 0
        for c, effects, causes in self.edges():
            kept = set(zip(effects.tolist(), causes.tolist(), strict=True))
            recorded = np.repeat(np.arange(c.events), np.diff(c.cause_offsets))
            pairs = zip(recorded.tolist(), c.causes.tolist(), strict=True)
            redundant += len({effect for effect, cause in pairs if (effect, cause) not in kept})
        return redundant

    def redundant_edges(self):
        """Recorded edges less those of the reduction: every reduction edge is a recorded one."""
        return self.recorded_edges() - self.reduction.count

    def overtaking_pairs(self, same_sender=False):
        """Ordered pairs of matched messages to one process that it received the other way round."""
        pairs = 0
        for c in self.computations:
            vectors = stamp_computation(c)
            received = [(c.slot_send[slot], r) for slot, r in enumerate(c.slot_delivery) if r >= 0]
            for p in range(c.processes):
                here = [(s, r) for s, r in received if c.process[r] == p]
                for (s, r), (t, q) in permutations(here, 2):
                    sent_before = vectors[t, c.process[s]] >= c.seq[s]
                    if sent_before and c.seq[q] < c.seq[r]:
                        pairs += not same_sender or c.process[s] == c.process[t]
        return pairs


def events(sample):
    return sum(c.events for c in sample.computations)


def processes(sample):
    return sum(c.processes for c in sample.computations)


def told(name):
    return lambda sample: sample.file[name]


FIELDS = {
    "events": events,
    "nodes": events,  # of a DAG; of raft, see below
    "hosts": processes,
    "agents": processes,
    "pods": told("pods"),
    "services": told("services"),
    "spans": told("spans"),  # records; tests/shared/test_real_spans.py has the events
    "traces": lambda sample: len(sample.computations),
    "hosts_out_of_file_order": told("hosts_out_of_file_order"),
    "events_with_remote_pred": lambda sample: len(sample.remote_predecessors()),
    "events_with_multi_remote": lambda sample: int(np.sum(sample.remote_predecessors() > 1)),
    "reduction_edges": lambda sample: sample.reduction.count,
    "ordered_pairs": lambda sample: sample.stamps.ordered_pairs,
    "concurrent_pairs": lambda sample: sample.stamps.concurrent_pairs,
    "pred_after_event_in_file": Sample.predecessors_later_in_file,
    "tokens_sent": lambda sample: causality.check_delivery(sample.computations).messages,
    "token_receives": lambda sample: causality.check_delivery(sample.computations).deliveries,
    "causal_order_violating_receive_pairs": Sample.overtaking_pairs,
    "of_which_same_sender_fifo": lambda sample: sample.overtaking_pairs(same_sender=True),
    "causal_order_violating_pairs_unique": Sample.overtaking_pairs,
    "of_which_fifo_unique": lambda sample: sample.overtaking_pairs(same_sender=True),
    "edges": Sample.recorded_edges,
    "redundant_edges": Sample.redundant_edges,
    "events_with_redundant_parent": Sample.events_with_redundant_cause,
    "child_before_parent": told("child_starts_before_parent"),
} | {
    name: told(name)
    for name in (
        "roots", "heads", "merges", "maxpar", "missing_parent_refs", "file_order_topological", "cyclic",
        "dup_parent", "duplicate_ids", "no_parent_in_file", "cross_pod_edges", "child_starts_before_parent",
        "child_ends_after_parent", "span_ids", "shared_ids", "sends", "receives", "lost", "self_sends",
        "uniquely_matched",
    )
}  # fmt: skip


@pytest.fixture(scope="module")
def imports(shared_traces, tmp_path_factory):
    done = {}

    def get(name):
        if name not in done:
            out = tmp_path_factory.mktemp("imported") / "trace"
            done[name] = Imported(shared_traces, name, out)
        return done[name]

    return get


@pytest.fixture(scope="module")
def expected(shared_traces):
    return json.loads((shared_traces / "EXPECTED.json").read_text())


@pytest.mark.parametrize("family", FORMATS)
def test_every_expected_count_is_reproduced(family, imports, expected):
    samples = {name: counts for name, counts in expected.items() if name.startswith(f"{family}/")}
    assert samples
    for name, counts in samples.items():
        file, _, run = name.partition("#")
        sample = Sample(imports(file), run)
        fields = FIELDS | {"nodes": processes} if family == "etcd-raft" else FIELDS
        found = {field: fields[field](sample) for field in counts}
        assert found == counts, name


def test_every_family_of_the_expected_counts_is_tested(expected):
    assert {name.split("/")[0] for name in expected} == FORMATS.keys()


@pytest.mark.parametrize("family", ["shiviz", "tracing-tokens", "peterson"])
def test_recomputed_clocks_are_the_logged_ones(family, imports, expected):
    """0 mismatches; for the token logs, from the tokens alone."""
    compared = 0
    for name in {name.partition("#")[0] for name in expected if name.startswith(f"{family}/")}:
        table = imports(name).table
        if family == "tracing-tokens":
            assert table["causes"].null_count == table.num_rows
        for c in imports(name).computations.values():
            vectors = stamp_computation(c)
            for e, row in enumerate(table["clock"].take(pa.array(c.row)).to_pylist(maps_as_pydicts="strict")):
                assert row == {
                    p: n for p, n in zip(c.process_names, vectors[e].tolist(), strict=True) if n
                }, c.event(e)
                compared += 1
    assert compared > 900


def test_nothing_is_quarantined_but_lines_that_are_no_events(imports, expected):
    """voldemort's log has a broken line (and five that end in more than matches, which is no loss),
    messaging2's spans name parents that were never reported.
    """
    left_out = {
        name: imports(name).summary["quarantined"] for name in {n.partition("#")[0] for n in expected}
    }
    assert {name: count for name, count in left_out.items() if count} == {
        "shiviz/voldemort-simple-threadnames.log": 1,
        "zipkin/messaging2.json": 6,
    }


def test_raft_messages_that_could_be_several_are_not_matched(imports):
    imported = imports("etcd-raft/example.ndjson")
    kinds = imported.table["kind"].to_pylist()
    ambiguous = [
        "ambiguous" in attributes
        for attributes in imported.table["attributes"].to_pylist(maps_as_pydicts="strict")
    ]
    assert all(kind == "internal" for kind, flag in zip(kinds, ambiguous, strict=True) if flag)
    assert sum(ambiguous) == imported.file["ambiguous_sends"] + imported.file["ambiguous_receives"]
    assert kinds.count("receive") == imported.file["uniquely_matched"]
    found = causality.check_delivery(imported.table)
    # Of the 126 lost messages, these are the ones of which it can be said which they were.
    assert (found.lost, found.never_sent, found.duplicated) == (51, 0, 0)


@pytest.fixture(scope="module")
def commits(shared_traces, tmp_path_factory):
    out = tmp_path_factory.mktemp("git") / "trace"
    import_files([shared_traces / "git-dag" / "shiviz-history.jsonl"], out)
    told = json.loads((out / "import.json").read_text())["files"][0]
    table = trace.read(out)
    (computation,) = causality.encode(table)
    ids = [table["label"][int(row)].as_py() for row in computation.row]
    answers = json.loads((shared_traces / "git-dag" / "shiviz-history.expected.json").read_text())
    return computation, ids, told, answers


def test_commits_have_git_s_own_counts(commits):
    computation, _, told, git = commits
    stamps = causality.stamp([computation])
    assert computation.events == git["commits"]
    assert (told["edges"], told["roots"], told["merges"]) == (git["edges"], git["roots"], git["merges"])
    assert told["maxpar"] == git["max_parents"]
    assert (stamps.ordered_pairs, stamps.concurrent_pairs) == (git["ordered_pairs"], git["concurrent_pairs"])


def test_commits_are_ordered_as_git_says(commits):
    computation, ids, _, git = commits
    (vectors,) = causality.stamp([computation]).vectors
    place = {id: e for e, id in enumerate(ids)}
    answers = set()
    for a, b, answer in git["pairs"]:
        e, f = place[a], place[b]
        before = vectors[f, computation.process[e]] >= computation.seq[e]
        after = vectors[e, computation.process[f]] >= computation.seq[f]
        assert (before, after) == {"before": (True, False), "after": (False, True)}.get(
            answer, (False, False)
        )
        answers.add(answer)
    assert len(answers) > 1


def test_independent_parents_are_the_immediate_predecessors(commits):
    computation, ids, _, git = commits
    found = causality.predecessors([computation])
    parents = {}
    for effect, cause in zip(found.effects[0].tolist(), found.causes[0].tolist(), strict=True):
        parents.setdefault(ids[effect], set()).add(ids[cause])
    assert git["independent_parents"]
    for commit, independent in git["independent_parents"].items():
        assert parents[commit] == set(independent)
    for commit, redundant in git["redundant_parent_edges"]:
        assert not parents[commit] & set(redundant)
    redundant = sum(len(of) for _, of in git["redundant_parent_edges"])
    assert found.count == git["edges"] - redundant


@pytest.mark.parametrize("family", ["jaeger", "otlp"])
def test_samples_without_expected_counts_are_imported_whole(family, shared_traces, tmp_path):
    for path in sorted((shared_traces / family).iterdir()):
        done = import_files([path], tmp_path / path.stem)
        assert done.summary["format"] == family
        told = done.summary["files"][0]
        rejected = done.summary["quarantined"] - done.summary["quarantined_imported"]
        assert done.summary["events"] == 2 * (told["spans"] - rejected)
        assert rejected == told["duplicate_ids"]
        assert sum(c.events for c in causality.encode(trace.read(tmp_path / path.stem))) > 0


def test_only_the_histories_that_no_level_admits_have_a_circle(shared_traces, tmp_path):
    """Sessions and reads alone: the finer levels differ in what order of writes they forbid."""
    found = {}
    for path in sorted((shared_traces / "awdit-histories").rglob("*.txt")):
        name = f"{path.parent.name}/{path.name}"
        done = import_files([path], tmp_path / name)
        assert done.summary["format"] == "awdit" and done.summary["events"] > 1
        found[name] = done.summary["quarantined"]
    assert {name for name, circles in found.items() if circles} == {
        name for name in found if name.startswith("none/")
    }


def test_operations_of_jepsen_are_imported(shared_traces, tmp_path):
    for path in sorted((shared_traces / "jepsen").iterdir()):
        operations = json.loads(path.read_text())
        done = import_files([path], tmp_path / path.stem)
        assert done.summary["format"] == "jepsen"
        assert done.summary["events"] == len(operations) and not done.summary["quarantined"]
        assert done.summary["processes"] == len({each["process"] for each in operations})
