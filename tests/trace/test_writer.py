"""What a TraceWriter leaves behind, whatever happens to it."""

from pathlib import Path

import pytest

from happened.core.errors import TraceFormatError
from happened.trace import SCHEMA, TraceWriter, read
from trace_columns import others


def internal(seq, process="p"):
    return {"process": process, "seq": seq, "kind": "internal"}


def seqs(path):
    return read(path)["seq"].to_pylist()


def test_every_column_survives(tmp_path):
    event = {
        "computation": "c",
        "process": "p",
        "seq": 1,
        "kind": "send",
        "message": "m",
        "to": ["q", "r"],
        "time": 12,
        "relevant": True,
        "causes": [{"process": "q", "seq": 3}],
        "clock": {"p": 1, "q": 3},
        "label": "hello",
        "attributes": {"units": ""},
        "control_entries": 4,
        "control_bytes": 17,
    }
    event |= others(SCHEMA, event)
    with TraceWriter(tmp_path) as writer:
        writer.append(event)
    assert read(tmp_path).schema == SCHEMA
    assert read(tmp_path).to_pylist(maps_as_pydicts="strict") == [event]


def test_keywords_and_defaults(tmp_path):
    with TraceWriter(tmp_path) as writer:
        writer.append(internal(1), label="from a keyword")
    (row,) = read(tmp_path).to_pylist()
    assert (row["label"], row["relevant"], row["computation"], row["message"]) == (
        "from a keyword",
        False,
        "",
        None,
    )


def test_a_batch_is_readable_before_the_writer_is_closed(tmp_path):
    writer = TraceWriter(tmp_path, batch_rows=2)
    for seq in range(1, 6):
        writer.append(internal(seq))
    assert seqs(tmp_path) == [1, 2, 3, 4]
    writer.flush()
    assert seqs(tmp_path) == [1, 2, 3, 4, 5]
    writer.close()
    assert seqs(tmp_path) == [1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="closed"):
        writer.append(internal(6))


def test_an_exception_keeps_what_was_appended(tmp_path):
    with pytest.raises(RuntimeError), TraceWriter(tmp_path) as writer:
        writer.append(internal(1))
        raise RuntimeError
    assert seqs(tmp_path) == [1]


def test_a_death_while_writing_a_part_leaves_the_parts_before_it(tmp_path, monkeypatch):
    writer = TraceWriter(tmp_path, batch_rows=1)
    writer.append(internal(1))

    def die_halfway(table, path, **options):
        path.write_bytes(b"PAR1 and then nothing")
        raise KeyboardInterrupt

    monkeypatch.setattr("happened.trace.parts.pq.write_table", die_halfway)
    monkeypatch.setattr(Path, "unlink", lambda path, missing_ok=False: None)  # the dead tidy nothing up
    with pytest.raises(KeyboardInterrupt):
        writer.append(internal(2))
    assert len(list(tmp_path.iterdir())) == 2
    assert seqs(tmp_path) == [1]


def test_no_events_are_a_trace_too(tmp_path):
    TraceWriter(tmp_path).close()
    assert read(tmp_path).num_rows == 0


def test_a_trace_is_not_overwritten(tmp_path):
    TraceWriter(tmp_path).close()
    with pytest.raises(TraceFormatError, match="another prefix") as error:
        TraceWriter(tmp_path)
    assert error.value.file == str(tmp_path)
    with TraceWriter(tmp_path, prefix="more") as writer:
        writer.append(internal(1))
    assert seqs(tmp_path) == [1]


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"process": "p", "seq": 1}, "kind"),
        ({"process": "p", "seq": 1, "kind": "internal", "colour": "red"}, "colour"),
        ({"process": "p", "seq": 1, "kind": "departed"}, "kind"),
        ({"process": "p", "seq": "one", "kind": "internal"}, "seq"),
        ({"process": "p", "seq": 1, "kind": "send", "message": "m"}, "to"),
    ],
    ids=["no kind", "unknown column", "unknown kind", "seq is a word", "send to nobody"],
)
def test_a_row_that_is_no_event_is_refused(tmp_path, row, field):
    with pytest.raises(TraceFormatError) as error, TraceWriter(tmp_path, batch_rows=1) as writer:
        writer.append(row)
    assert error.value.field == field
