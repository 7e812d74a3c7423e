"""Logs that record sends and receives: with tokens, without ids, and our own JSON lines."""

import json

import pytest

from happened import causality


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def token(process, own, tag, token=None, **clock):
    body = {"Token": token} if token else {}
    clock = {process: own, **clock}
    return {"TracerIdentity": process, "TraceID": 1, "Tag": tag, "Body": body, "VectorClock": clock}


def raft(name, nid, **message):
    event = {"name": name, "nid": nid}
    return {"ts": 1.5, "tag": "trace", "event": event | ({"msg": message} if message else {})}


def test_tokens_are_messages_and_clocks_are_left_to_be_verified(read, fixture_text):
    found = read("tokens", fixture_text("tokens.log"))
    assert found.quarantined == []
    assert found.counts[0]["tokens_sent"] == found.counts[0]["token_receives"] == 2
    events = found.events()
    assert events["client", 2]["to"] == ["server"]
    assert all(row["causes"] is None for row in found.rows)
    for name, row in events.items():
        assert found.stamps.vector(*name) == row["clock"]


def test_a_token_nobody_received_went_nowhere_that_is_known(read):
    found = read("tokens", lines(token("p", 1, "GenerateTokenTrace", "t")))
    assert (found.rows[0]["kind"], found.rows[0]["to"]) == ("send", [])
    assert causality.check_delivery(found.table).lost == 0
    assert found.counts[0]["lost"] == 1


def test_a_token_generated_twice_is_named(read):
    found = read(
        "tokens",
        lines(
            token("p", 1, "GenerateTokenTrace", "t"),
            token("p", 2, "GenerateTokenTrace", "t"),
            token("q", 1, "ReceiveTokenTrace", "t", p=1),
        ),
    )
    assert [row["kind"] for row in found.rows] == ["send", "internal", "receive"]
    assert found.reasons() == [
        "log0:2: field 'Body.Token': was generated before; its receives belong to that one"
    ]


def test_a_token_received_before_it_is_generated_is_a_circle(read):
    records = [token("p", 1, "ReceiveTokenTrace", "t"), token("p", 2, "GenerateTokenTrace", "t")]
    found = read("tokens", lines(*records))
    assert [row["kind"] for row in found.rows] == ["internal", "send"]
    assert "p#1, p#2 are causes of one another, in a circle" in found.reasons()[0]
    assert found.stamps.ordered_pairs == 1


@pytest.mark.parametrize(
    ("record", "field"),
    [
        ({"Tag": "x"}, "TracerIdentity"),
        ({"TracerIdentity": "p", "VectorClock": {"p": 1}}, "Tag"),
        ({"TracerIdentity": "p", "Tag": "x", "VectorClock": {"q": 1}}, "VectorClock"),
        ({"TracerIdentity": "p", "Tag": "ReceiveTokenTrace", "VectorClock": {"p": 1}}, "Body.Token"),
        (["a list"], None),
    ],
)
def test_a_token_record_that_is_none_is_quarantined_with_its_field(read, record, field):
    found = read("tokens", lines(token("q", 1, "x"), record))
    assert len(found.rows) == 1
    assert [(q.line, q.field, q.imported) for q in found.quarantined] == [(2, field, False)]


def test_a_line_that_was_cut_is_quarantined(read):
    found = read("tokens", lines(token("p", 1, "a")) + '{"TracerIdentity": "p", "Tag"')
    assert len(found.rows) == 1
    assert "the file may have been cut here" in found.reasons()[0]


def test_raft_messages_without_ids_are_matched_where_unique(read, fixture_text):
    found = read("etcd-raft", fixture_text("raft.ndjson"))
    assert found.quarantined == []
    assert found.counts == [
        {
            "sends": 5,
            "receives": 3,
            "lost": 2,
            "self_sends": 1,
            "uniquely_matched": 2,
            "ambiguous_sends": 2,
            "ambiguous_receives": 1,
        }
    ]
    kinds = [(row["kind"], row["message"]) for row in found.rows]
    assert kinds == [
        ("internal", None),
        ("send", "1@2"),
        ("send", "1@3"),
        ("receive", "1@3"),
        ("receive", "1@2"),
        ("internal", None),
        ("internal", None),
        ("internal", None),
        ("send", "1@9"),
    ]
    assert found.rows[7]["attributes"]["ambiguous"] == "one of 2 equal sends and 1 receives"
    assert [row["to"] for row in found.rows if row["kind"] != "send"] == [None] * 6
    assert found.rows[0]["time"] == 10_000_000_001
    fates = causality.check_delivery(found.table)
    assert (fates.lost, fates.never_sent) == (1, 0)


def test_equal_messages_of_which_none_arrived_are_all_lost(read):
    message = {"from": "1", "to": "2", "type": "Beat"}
    found = read("etcd-raft", lines(raft("SendBeat", "1", **message), raft("SendBeat", "1", **message)))
    assert [row["message"] for row in found.rows] == ["1@1", "1@2"]
    assert causality.check_delivery(found.table).lost == found.counts[0]["lost"] == 2


def test_messages_nobody_sent_are_received_all_the_same(read):
    message = {"from": "1", "to": "2", "type": "Beat"}
    found = read("etcd-raft", lines(raft("ReceiveBeat", "2", **message), raft("ReceiveBeat", "2", **message)))
    assert causality.check_delivery(found.table).never_sent == 2


def test_in_fifo_order_the_second_receive_is_of_the_second_send(read):
    message = {"from": "1", "to": "2", "type": "Beat"}
    events = [raft("SendBeat", "1", **message)] * 2 + [raft("ReceiveBeat", "2", **message)] * 3
    found = read("etcd-raft", lines(*events), match="fifo")
    assert [row["message"] for row in found.rows] == ["1@1", "1@2", "1@1", "1@2", "1@2"]
    assert causality.check_delivery(found.table).duplicated == 1


def test_raft_messages_are_matched_in_fifo_order_only_when_told(read, fixture_text):
    found = read("etcd-raft", fixture_text("raft.ndjson"), match="fifo")
    assert [row["message"] for row in found.rows[5:8]] == ["1@6", "1@7", "1@6"]
    assert causality.check_delivery(found.table).lost == 2


@pytest.mark.parametrize(
    ("record", "field"),
    [
        ({"ts": 1.0}, "event"),
        ({"event": {"name": "Ready"}}, "event.nid"),
        ({"event": {"nid": "1"}}, "event.name"),
        (raft("SendVote", "1"), "event.msg"),
        (raft("SendVote", "1", **{"from": "2", "to": "3"}), "event.msg.from"),
        (raft("ReceiveVote", "1", **{"from": "2", "to": "3"}), "event.msg.to"),
    ],
)
def test_a_raft_record_that_is_none_is_quarantined_with_its_field(read, record, field):
    found = read("etcd-raft", lines(raft("Ready", "1"), record))
    assert len(found.rows) == 1
    assert [(q.line, q.field) for q in found.quarantined] == [(2, field)]


def test_our_own_rows_may_leave_seq_to_the_file(read, fixture_text):
    found = read("jsonl", fixture_text("events.jsonl"))
    assert found.quarantined == []
    assert [(row["process"], row["seq"]) for row in found.rows] == [("p", 1), ("q", 1), ("q", 2), ("q", 3)]
    assert [row["relevant"] for row in found.rows] == [False, False, False, True]
    assert found.rows[3]["causes"] == [{"process": "p", "seq": 1}]
    assert found.stamps.vector("q", 2, "run") == found.rows[2]["clock"]


def test_rows_around_a_bad_one_are_numbered_without_gaps(read):
    found = read(
        "jsonl",
        lines(
            {"process": "p", "seq": 1, "kind": "internal", "label": "a"},
            {"process": "p", "seq": 2, "kind": "vanished"},
            {"process": "p", "seq": 3, "kind": "internal", "label": "c"},
            {
                "process": "q",
                "seq": 1,
                "kind": "internal",
                "causes": [{"process": "p", "seq": 3}],
                "label": "d",
            },
            {
                "process": "q",
                "seq": 2,
                "kind": "internal",
                "causes": [{"process": "p", "seq": 2}],
                "label": "e",
            },
        ),
    )
    assert found.causes() == {"a": set(), "c": set(), "d": {"c"}, "e": set()}
    assert found.stamps.vector("q", 1) == {"p": 2, "q": 1}
    assert [(q.line, q.field, q.imported) for q in found.quarantined] == [
        (2, "kind", False),
        (5, "causes", True),
    ]


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"kind": "internal"}, "process"),
        ({"process": "p", "kind": "receive"}, "message"),
        ({"process": "p", "kind": "send", "message": "m"}, "to"),
        ({"process": "p", "seq": 0, "kind": "internal"}, "seq"),
        ({"process": "p", "seq": 1, "kind": "internal", "colour": "red"}, "colour"),
        ({"process": "q", "seq": 1, "kind": "internal"}, "seq"),
        ({"process": "p", "kind": "send", "message": "once", "to": []}, "message"),
    ],
    ids=[
        "nobody",
        "receive of nothing",
        "send to nobody",
        "seq 0",
        "unknown",
        "an event twice",
        "sent twice",
    ],
)
def test_a_row_that_is_no_event_is_quarantined_with_its_field(read, row, field):
    good = {"process": "q", "seq": 1, "kind": "send", "message": "once", "to": ["p"]}
    found = read("jsonl", lines(good, row))
    assert len(found.rows) == 1
    assert [(q.line, q.field, q.imported) for q in found.quarantined] == [(2, field, False)]


@pytest.mark.parametrize("others", [[], ["q"]], ids=["its own cause", "a circle of causes"])
def test_causes_in_a_circle_are_left_out_and_named(read, others):
    ring = ["p", *others]
    rows = [
        {"process": p, "kind": "internal", "causes": [{"process": ring[i - 1], "seq": 1}]}
        for i, p in enumerate(ring)
    ]
    found = read("jsonl", lines(*rows))
    assert all(row["causes"] is None for row in found.rows)
    said = "p#1 is its own cause" if not others else "p#1, q#1 are causes of one another, in a circle"
    assert all(said in reason for reason in found.reasons()) and len(found.reasons()) == len(ring)
    assert found.stamps.ordered_pairs == 0
