"""Named cases: the smallest trace that shows each rule, and what is said about it."""

import ast
from pathlib import Path

import numpy as np
import pytest

from causality.traces import number, table
from happened import causality
from happened.causality.stamps import stamp_rows
from happened.core.errors import TraceFormatError
from happened.trace import validate


def send(message, *to):
    return {"kind": "send", "message": message, "to": list(to)}


def deliver(message):
    return {"kind": "deliver", "message": message}


def receive(message, units=None):
    row = {"kind": "receive", "message": message}
    return row | ({"attributes": {"units": units}} if units is not None else {})


def trace(**chains):
    result = table(number(chains))
    validate(result)
    return result


REPLY_OVERTAKES_ORIGINAL = {
    "alice": [send("question", "bob", "carol")],
    "bob": [deliver("question"), send("answer", "carol")],
    "carol": [deliver("answer"), deliver("question")],
}


def test_a_violation_explains_itself():
    verdict = causality.check_order(trace(**REPLY_OVERTAKES_ORIGINAL))
    assert str(verdict) == "causal order VIOLATED: 3 deliveries examined, 1 of them too early"
    assert str(verdict.witness).splitlines() == [
        "carol delivered answer before question, although question was sent to it causally earlier:",
        "  alice#1  send question",
        "  bob#1  deliver question    ← alice#1",
        "  bob#2  send answer",
        "yet at carol:",
        "  carol#1  deliver answer    too early",
        "  carol#2  deliver question    overtaken",
    ]


def test_fifo_sees_only_one_sender():
    assert causality.check_order(trace(**REPLY_OVERTAKES_ORIGINAL), "fifo").holds is True


def test_an_overtaken_message_that_is_lost_is_no_early_delivery_but_a_lost_cause():
    chains = REPLY_OVERTAKES_ORIGINAL | {"carol": [deliver("answer")]}
    assert causality.check_order(trace(**chains)).holds is True
    assert causality.check_order(trace(**chains)).lost_causes == 1
    assert causality.check_delivery(trace(**chains)).lost == 1


def test_a_receive_carries_no_edge_where_deliveries_are_recorded():
    """Bob has received the question, not delivered it, when he sends: the two sends are concurrent."""
    chains = REPLY_OVERTAKES_ORIGINAL | {"bob": [receive("question"), send("answer", "carol")]}
    assert causality.check_order(trace(**chains)).holds is True


def test_receives_stand_in_for_deliveries_that_are_not_recorded():
    chains = {
        name: [event | {"kind": "receive"} if event["kind"] == "deliver" else event for event in events]
        for name, events in REPLY_OVERTAKES_ORIGINAL.items()
    }
    assert causality.check_order(trace(**chains)).violations == 1


def test_a_disagreement_names_the_four_deliveries():
    verdict = causality.check_order(
        trace(
            p=[send("a", "r", "s")],
            q=[send("b", "r", "s")],
            r=[deliver("a"), deliver("b")],
            s=[deliver("b"), deliver("a")],
        ),
        "total",
    )
    assert verdict.holds is False
    assert str(verdict.witness).splitlines() == [
        "r and s disagree on the order of a and b:",
        "  r#1  deliver a",
        "  r#2  deliver b",
        "  s#1  deliver b",
        "  s#2  deliver a",
    ]


@pytest.mark.parametrize("order", causality.ORDERS)
def test_a_trace_without_deliveries_decides_nothing(order):
    assert causality.check_order(trace(p=[send("a", "q"), {"kind": "internal"}]), order).holds is None
    assert causality.check_order(table([]), order).holds is None


def test_one_common_message_decides_nothing_about_total_order():
    only = trace(p=[send("a", "q", "r")], q=[deliver("a")], r=[deliver("a")])
    assert causality.check_order(only, "total").holds is None
    assert causality.check_order(only, "causal").holds is True


def test_an_unknown_order_is_refused():
    with pytest.raises(ValueError, match="causal, fifo, total"):
        causality.check_order(table([]), "alphabetical")


@pytest.mark.parametrize(
    ("chains", "named"),
    [
        ({"p": [deliver("a"), send("a", "p")]}, ["p#1 deliver a", "p#2 send a"]),
        (
            {"p": [deliver("b"), send("a", "q")], "q": [deliver("a"), send("b", "p")]},
            ["p#1 deliver b", "p#2 send a", "q#1 deliver a", "q#2 send b"],
        ),
        ({"p": [{"kind": "internal", "causes": [{"process": "p", "seq": 1}]}]}, ["p#1 internal"]),
    ],
    ids=["delivery before its own send", "two deliveries before each other's send", "its own cause"],
)
def test_a_cycle_is_named(chains, named):
    with pytest.raises(TraceFormatError, match="cycle") as error:
        causality.stamp(trace(**chains))
    circle = error.value.reason.split(": ")[1].split(". ")[0].split(" → ")
    assert circle[0] == circle[-1]
    assert sorted(circle[1:]) == sorted(named)


def test_a_cause_that_is_not_there_is_an_error():
    orphan = [{"kind": "internal", "causes": [{"process": "p", "seq": 7}]}]
    with pytest.raises(TraceFormatError, match="p#1 names the cause p#7"):
        causality.stamp(trace(p=orphan))


def test_a_computation_must_be_named_where_there_are_several():
    both = table(number({"p": [send("a", "q")]}, "one") + number({"p": [send("a", "q")]}, "two"))
    stamps = causality.stamp(both)
    assert stamps.vector("p", 1, "two") == {"p": 1}
    assert (stamps.ordered_pairs, stamps.concurrent_pairs) == (0, 0)
    with pytest.raises(LookupError, match="'one', 'two'"):
        stamps.vector("p", 1)
    with pytest.raises(LookupError, match="p#2"):
        stamps.vector("p", 2, "one")


def test_stamping_in_two_epochs_from_the_frontier_gives_the_same_vectors():
    """The first epoch leaves the last row of each process and of each message in flight."""
    (c,) = causality.encode(trace(**REPLY_OVERTAKES_ORIGINAL))
    whole = causality.stamp([c]).matrix()
    for cut in range(1, c.events):
        last = [int(np.flatnonzero(c.process[:cut] == p).max(initial=-1)) for p in range(c.processes)]
        flying = sorted({int(s) for s in c.source[cut:] if 0 <= s < cut})
        kept = [*(e for e in last if e >= 0), *flying]
        entering = len(kept)
        row_of = {e: row for row, e in enumerate(kept)} | {
            e: entering + e - cut for e in range(cut, c.events)
        }
        vectors = np.concatenate([whole[kept], np.full((c.events - cut, c.processes), -7, np.int32)])
        stamp_rows(
            vectors,
            entering,
            np.array([row_of.get(e, -1) for e in last]),
            c.first,
            c.process[cut:],
            np.array([row_of.get(int(s), -1) for s in c.source[cut:]], np.int32),
            np.zeros(c.events - cut + 1, np.int64),
            np.zeros(0, np.int32),
        )
        assert (vectors[entering:] == whole[cut:]).all()


def test_units_travel_only_where_pc2_sends_them():
    """Step 10 of Fig. 2.8 (docs/papers.md): M43 to {3, 6} carries 42:{2,3} to 3 and 42:{2}, 51:{6} to 6."""
    found = causality.necessary(
        trace(
            p5=[send("M51", "p4", "p6")],
            p4=[deliver("M51"), send("M42", "p2", "p3"), send("M43", "p3", "p6")],
        )
    )
    carried = {"p3": set(), "p6": set()}
    for row in found.edge_units().to_pylist():
        if row["message"] == "M43":
            carried[row["destination"]].add(f"{row['unit_message']}>{row['unit_destination']}")
    assert carried == {"p3": {"M42>p2", "M42>p3"}, "p6": {"M42>p2", "M51>p6"}}
    assert found.in_log("p4", 3) == {("M42", "p2"), ("M43", "p3"), ("M43", "p6")}


def test_an_audit_names_the_first_unit_that_differs():
    chains = {
        "alice": [send("question", "bob", "carol")],
        "bob": [deliver("question"), send("answer", "carol")],
        "carol": [receive("answer", "question>bob"), receive("question", ""), deliver("question")],
    }
    audit = causality.audit_units(trace(**chains))
    assert (audit.recorded, audit.equal, audit.holds) == (2, 1, False)
    assert str(audit.missing_examples[0]) == "question>carol on answer to carol (#1)"
    assert str(audit.redundant_examples[0]) == "question>bob on answer to carol (#1)"


def test_a_malformed_unit_is_an_error():
    chains = {"p": [send("a", "q")], "q": [receive("a", "nonsense"), deliver("a")]}
    with pytest.raises(TraceFormatError, match="message>destination"):
        causality.audit_units(trace(**chains))


def test_the_judge_imports_nothing_it_judges():
    judged = {"ordering", "tracking", "wire", "sim", "net"}
    sources = sorted(Path(causality.__file__).parent.glob("*.py"))
    assert len(sources) > 5
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.ImportFrom | ast.Import):
                parts = {part for alias in node.names for part in alias.name.split(".")}
                parts |= set((getattr(node, "module", None) or "").split("."))
                assert not parts & judged, source
