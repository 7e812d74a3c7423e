"""A mapping of fields reads events of any JSON lines or CSV."""

import json

import pytest

from happened import causality
from happened.core.errors import TraceFormatError
from happened.trace.importing import import_files
from happened.trace.readers import Options

CSV = "node,n,what,id,at,extra\na,1,sent,m1,1.5,x\nb,1,rx,m1,2.5,\na,2,step,,3,y\n"
MAP = "process=node,seq=n,kind=what,message=id,time=at:ms"


def test_a_table(read):
    found = read("map", CSV, map=MAP)
    assert found.quarantined == []
    assert [(row["process"], row["seq"], row["kind"], row["message"], row["to"]) for row in found.rows] == [
        ("a", 1, "send", "m1", ["b"]),
        ("b", 1, "receive", "m1", None),
        ("a", 2, "internal", None, None),
    ]
    assert [row["time"] for row in found.rows] == [1_500_000, 2_500_000, 3_000_000]
    assert found.rows[0]["attributes"]["extra"] == "x"
    assert causality.check_delivery(found.table).deliveries == 1


def test_objects_and_what_is_within_them(read):
    lines = [
        {"event": {"nid": "1", "name": "begin"}, "id": "x"},
        {"event": {"nid": "2", "name": "follow"}, "id": "y", "after": ["x"]},
        {"event": {"name": "nobody"}},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"cut'
    found = read("map", text, map="process=event.nid,label=event.name,id=id,parents=after")
    assert found.happened_before("begin", "follow")
    assert [q.line for q in found.quarantined] == [3, 4]
    assert "has no event.nid, which is the process" in found.reasons()[0]


def test_a_row_of_another_width_or_a_number_that_is_none_is_quarantined(read):
    found = read("map", CSV + "a,3\na,x,step,,1,\na,4,step,,soon,\n", map=MAP)
    assert len(found.rows) == 3 and [q.line for q in found.quarantined] == [5, 6, 7]


def test_a_column_that_is_not_there_is_told_once_and_the_rest_is_read(read):
    found = read("map", CSV, map=MAP.replace("message=id", "message=ids"))
    assert [row["process"] for row in found.rows] == ["a", "b", "a"]
    [told] = found.quarantined
    assert (told.line, told.field, told.imported) == (1, "message", True)
    assert told.reason == "--map names 'ids', which is no column; there are node, n, what, id, at, extra"


def test_a_field_that_no_record_has_is_told_once_and_one_that_some_have_is_not(read):
    lines = [{"node": "a", "at": {"ms": 1}, "msg": None}, {"node": "b", "after": ""}, {"node": "a"}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    found = read("map", text, map="process=node,time=at.ms,message=msg,parents=after")
    assert found.quarantined == []
    wrong = "process=node,time=at.us,message=mgs,parents=after"
    found = read("map", text, map=wrong)
    assert [row["process"] for row in found.rows] == ["a", "b", "a"]
    assert [(told.line, told.field, told.imported) for told in found.quarantined] == [
        (1, "time", True),
        (1, "message", True),
    ]
    said = "--map names 'mgs', which no record has; the first has node, at, msg"
    assert found.quarantined[1].reason == said


def test_a_field_that_no_span_has_is_told(read):
    found = read("map-spans", '{"id": "1", "svc": "web"}\n', map="span=id,service=svc,parent=up")
    assert [told.field for told in found.quarantined] == ["parent"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("process", "is no OURS=THEIRS"),
        ("host=h", "is no OURS=THEIRS"),
        ("seq=n", "maps neither process"),
        ("process=p,start=s", "start is no field of events"),
        ("span=s,seq=n", "seq is no field of spans"),
        ("", "say which field is what"),
    ],
)
def test_a_mapping_that_makes_no_sense_is_refused(read, text, said):
    with pytest.raises(TraceFormatError, match=said):
        read("map", CSV, map=text)


@pytest.mark.parametrize(
    ("format", "text", "said"),
    [
        ("otlp", "process=node", "--map of events is --format map, not otlp"),
        ("map", "span=id,service=node", "--map of spans is --format map-spans, not map"),
    ],
)
def test_a_mapping_beside_another_format_is_refused(tmp_path, format, text, said):
    log = tmp_path / "log.csv"
    log.write_text(CSV)
    with pytest.raises(TraceFormatError, match=said):
        import_files([log], tmp_path / "out", format=format, options=Options(map=text))


def test_a_line_that_is_no_object_leaves_the_objects_after_it_alone(read):
    found = read("map", '{"n":"a"}\ngarbage\n{"n":"b"}\n{"n":"c"}\n', map="process=n")
    assert [row["process"] for row in found.rows] == ["a", "b", "c"]
    assert [q.line for q in found.quarantined] == [2] and "is not JSON" in found.reasons()[0]


def test_a_kind_that_is_unknown_is_told_where_there_is_a_message(read):
    lines = '{"n":"a","k":"transmit","m":"1"}\n{"n":"b","k":"rx","m":"1"}\n{"n":"b","k":"retry"}\n'
    found = read("map", lines, map="process=n,kind=k,message=m")
    assert [row["kind"] for row in found.rows] == ["receive", "internal"]
    assert [q.line for q in found.quarantined] == [1]
    assert "k is 'transmit'" in found.reasons()[0] and "publish" in found.reasons()[0]


@pytest.mark.parametrize("seq", ["1.9", "true", '"x"', "[1]", "1e400"])
def test_what_is_no_whole_number_is_named(read, seq):
    found = read(
        "map", f'{{"n":"a","s":{seq}}}\n{{"n":"a","s":"7"}}\n{{"n":"a","s":0}}\n', map="process=n,seq=s"
    )
    assert [row["seq"] for row in found.rows] == [2, 1]
    assert [q.line for q in found.quarantined] == [1] and "no whole number" in found.reasons()[0]


@pytest.mark.parametrize("time", ["true", '"soon"', "1e400", "{}"])
def test_what_is_no_time_is_named(read, time):
    found = read("map", f'{{"n":"a","at":{time}}}\n{{"n":"a","at":2}}\n', map="process=n,time=at:ms")
    assert [row["time"] for row in found.rows] == [2_000_000]
    assert "at is" in found.reasons()[0] and "no time in ms" in found.reasons()[0]


def test_events_numbered_from_nought_are_named_by_their_ids(read):
    lines = '{"n":"a","s":1,"i":"x"}\n{"n":"a","s":0,"i":"w"}\n{"n":"b","s":0,"i":"y","after":"w"}\n'
    found = read("map", lines, map="process=n,seq=s,id=i,parents=after")
    assert not found.quarantined
    assert found.rows[2]["causes"] == [{"process": "a", "seq": 1}]


def test_a_field_that_is_mapped_twice_is_refused(read):
    with pytest.raises(TraceFormatError, match="maps process twice"):
        read("map", "{}", map="process=n,process=k")
