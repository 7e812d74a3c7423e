"""Every kind of bad input is named in the result; none is swallowed, none takes the rest down with it.

One trace holds a computation for each fault and one that is sound; it is analysed whole and cut into epochs.
Faults of logs go through `happened import` first.
"""

import contextlib
import io
import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from causality import traces
from happened.causality import encode
from happened.causality.analysis import TABLES, analyse
from happened.causality.stamps import stamp_computation
from happened.cli import main
from happened.core.errors import TraceFormatError
from happened.report.page import write_report
from happened.spark.event_rows import read_events
from happened.spark.log_import import run as import_on_spark
from happened.spark.pipeline import analyze_path
from happened.trace import SCHEMA, read
from happened.trace.readers import Options
from spark.test_analyze import same, write

FIXTURES = Path(__file__).parents[1] / "fixtures"
MODES = {"whole": {}, "cut": {"whole_events": 20, "epoch_events": 10}}
SOUND = 8  # events of the sound computation: it stays whole


def conversation(computation, messages=16):
    """p and q answer one another."""
    chains = {"p": [], "q": []}
    for number in range(messages):
        sender, receiver = ("q", "p") if number % 2 else ("p", "q")
        chains[sender].append(
            {"kind": "send", "message": f"m{number}", "to": [receiver], "time": 100 * number}
        )
        chains[receiver].append({"kind": "deliver", "message": f"m{number}", "time": 100 * number + 50})
    return traces.number(chains, computation)


def event(rows, process, seq):
    return next(row for row in rows if (row["process"], row["seq"]) == (process, seq))


def shared_identity(rows):
    """Another p, with events of its own."""
    return [*rows, *({**row, "kind": "internal"} for row in rows[:5])]


def own_cause(rows):
    event(rows, "p", 4)["causes"] = [{"process": "p", "seq": 4}]
    return rows


def circle_of_causes(rows):
    event(rows, "p", 3)["causes"] = [{"process": "q", "seq": 12}]
    return rows


def delivered_before_it_was_sent(rows):
    """q delivers at the beginning what p sends at the end, having heard of that delivery."""
    event(rows, "p", 15)["message"] = event(rows, "q", 1)["message"]
    event(rows, "p", 1)["message"] = event(rows, "q", 15)["message"]
    return rows


def absent_cause(rows):
    event(rows, "p", 4)["causes"] = [{"process": "nobody", "seq": 7}]
    return rows


def sent_twice(rows):
    event(rows, "p", 3)["message"] = event(rows, "p", 1)["message"]
    return rows


QUARANTINED = {
    shared_identity: r"(names an event twice|two different rows share one seq).*'p'",
    own_cause: r"cycle.*\bp#4\b",
    circle_of_causes: r"cycle.*\b[pq]#\d",
    delivered_before_it_was_sent: r"cycle.*\b[pq]#\d",
    absent_cause: r"p#4 names the cause nobody#7, which is not in the trace",
    sent_twice: r"m0.* sent (before|2 times)",
}
"""Each fault, and what its computation is put aside with."""


def backward_clocks(rows):
    """Vector clocks as they should be, but one of q forgets what it knew; and times that count down.

    So every delivery seems to precede its send, and no offset mends that.
    """
    (c,) = encode(traces.table(rows))
    vectors = stamp_computation(c)
    for e in range(c.events):
        clock = {name: int(n) for name, n in zip(c.process_names, vectors[e], strict=True) if n}
        rows[c.row[e]]["clock"] = clock
    event(rows, "q", 10)["clock"] = {"q": 10, "p": 2}
    for row in rows:
        row["time"] = -row["time"]
    return rows


@pytest.fixture(scope="module")
def bad_trace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad") / "trace"
    rows = conversation("sound", SOUND // 2)
    for spoil in (*QUARANTINED, backward_clocks):
        rows += spoil(conversation(spoil.__name__))
    rows += [
        {"computation": "sound", "process": "p", "seq": 0, "kind": "internal"},
        {"computation": "sound", "process": "p", "seq": 9, "kind": "whispered"},
        {"computation": "sound", "process": "p", "seq": 9, "kind": "send", "message": "aimless"},
    ]
    write(rows, folder)
    return folder


@pytest.fixture(scope="module")
def analysed(spark, bad_trace, tmp_path_factory):
    """By mode, where the answers are and their summary."""
    folder = tmp_path_factory.mktemp("answers")
    return {
        mode: (folder / mode, analyze_path(spark, bad_trace, folder / mode, **options, finish=write_report))
        for mode, options in MODES.items()
    }


@pytest.fixture(params=MODES)
def answers(request, analysed):
    return analysed[request.param]


def reasons(out):
    found = {}
    for row in pq.read_table(out / "quarantine").to_pylist():
        found.setdefault(row["computation"], []).append(row["reason"])
    return found


@pytest.mark.parametrize("spoil", QUARANTINED, ids=lambda spoil: spoil.__name__)
def test_what_cannot_be_is_put_aside_with_its_reason(answers, spoil):
    out, _ = answers
    named = reasons(out)[spoil.__name__]
    assert any(re.search(QUARANTINED[spoil], reason) for reason in named), named
    assert spoil.__name__ in (out / "report.html").read_text()


def test_a_computation_put_aside_is_in_no_table(answers):
    out, _ = answers
    aside = {spoil.__name__ for spoil in QUARANTINED} - {absent_cause.__name__}
    for name in TABLES.keys() - {"quarantine"}:
        assert not aside & {*pq.read_table(out / name)["computation"].to_pylist()}, name


def test_rows_that_are_no_events_are_put_aside_one_by_one(answers):
    out, _ = answers
    assert sorted(reasons(out)["sound"]) == [
        "p#0: seq is not a number from 1",
        "p#9: send without destinations",
        "p#9: unknown kind whispered",
    ]


def test_the_sound_computation_is_analysed_as_if_it_were_alone(answers):
    out, _ = answers
    expected = analyse(traces.table(conversation("sound", SOUND // 2)))
    for name in TABLES.keys() - {"quarantine"}:
        found = pq.read_table(out / name, filters=[("computation", "=", "sound")])
        assert traces.rows_of(found, name) == traces.rows_of(expected.table(name), name), name


def test_backward_clocks_are_named(answers):
    out, summary = answers
    faults = {
        (row["computation"], row["process"], row["seq"], row["fault"])
        for row in pq.read_table(out / "clocks").to_pylist()
    }
    forgotten = ("backward_clocks", "q", 10)
    assert faults == {(*forgotten, "regression"), (*forgotten, "mismatch")}
    assert (summary["clock_regressions"], summary["clock_mismatches"]) == (1, 1)


def test_backward_times_are_counted_and_said_to_be_beyond_correction(answers):
    out, summary = answers
    assert summary["receives_before_sends"] == 16
    assert summary["receives_before_sends_corrected"] > 0
    assert summary["times_backwards"] == 2 * 15
    skew = pq.read_table(out / "skew", filters=[("computation", "=", "backward_clocks")])
    assert skew["feasible"].to_pylist() == [False, False]
    assert skew["backwards"].to_pylist() == [15, 15]


def test_which_computations_are_cut_is_no_part_of_the_answer(analysed):
    assert analysed["whole"][1] == analysed["cut"][1]


@pytest.fixture
def damaged(tmp_path):
    write(conversation("sound"), tmp_path / "trace")
    part = tmp_path / "trace" / "part-1.parquet"

    def damage(how):
        whole = part.read_bytes()
        part.write_bytes(
            {
                "cut off": whole[: len(whole) // 2],
                "empty": b"",
                "overwritten": whole[:4] + b"\xff" * 400 + whole[404:],
            }[how]
        )
        return part

    return damage


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["cut off", "empty", "overwritten"])
def test_a_truncated_part_is_an_error_that_names_it(spark, tmp_path, damaged, how, mode):
    part = damaged(how)
    with pytest.raises(TraceFormatError, match=re.escape(part.name)):
        analyze_path(spark, tmp_path / "trace", tmp_path / "out", **MODES[mode])
    assert [path.name for path in tmp_path.iterdir()] == ["trace"]


def test_lines_cut_off_are_put_aside(spark, tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"process": "p", "seq": 1, "kind": "internal"}\n{"process": "p", "seq": 2, "ki')
    summary = analyze_path(spark, path, tmp_path / "out")
    assert (summary["events"], summary["quarantined"]) == (1, 1)
    (reason,) = reasons(tmp_path / "out")[""]
    assert 'is not JSON: {"process": "p", "seq": 2, "ki' in reason


@pytest.mark.parametrize("mode", MODES)
def test_lines_that_lack_what_every_event_needs_are_put_aside(spark, tmp_path, mode):
    """They are objects with fields of a trace, so they come as far as Arrow, whose casts refuse nulls."""
    path = tmp_path / "trace.jsonl"
    lines = [
        '{"process": "p", "seq": 1, "kind": "internal"}',
        '{"seq": 1, "kind": "internal"}',
        '{"process": null, "seq": 2, "kind": "internal"}',
        '{"process": "q", "kind": "internal"}',
        '{"process": "q", "seq": 1}',
    ]
    path.write_text("\n".join(lines))
    summary = analyze_path(
        spark, path, tmp_path / "out", **MODES[mode] | ({"whole_events": 0} if MODES[mode] else {})
    )
    assert (summary["events"], summary["quarantined"]) == (1, 4)
    assert sorted(reasons(tmp_path / "out")[""]) == [
        "?#1: no process",
        "?#2: no process",
        "q#1: unknown kind null",
        "q#: seq is not a number from 1",
    ]


@pytest.mark.parametrize("field", ["process", "message", "computation", "clock"])
def test_half_a_surrogate_pair_is_put_aside(spark, tmp_path, field):
    """JSON lets it stand alone; no string in a table can hold it."""
    path = tmp_path / "trace.jsonl"
    odd = {
        "process": "q",
        "seq": 1,
        "kind": "internal",
        field: {"\ud83d": 1} if field == "clock" else "\ud83d",
    }
    sound = {"process": "\U0001f600", "seq": 1, "kind": "internal"}
    path.write_text("\n".join(map(json.dumps, (sound, odd))))
    summary = analyze_path(spark, path, tmp_path / "out")
    assert (summary["events"], summary["quarantined"]) == (1, 1)
    with pytest.raises(TraceFormatError, match="surrogate"):
        read(path)


def test_an_empty_trace_is_a_report_of_nothing(spark, tmp_path):
    write([], tmp_path / "trace")
    summary = analyze_path(spark, tmp_path / "trace", tmp_path / "out", finish=write_report)
    assert {value for value in summary.values() if value} == set()
    assert all(pq.read_table(tmp_path / "out" / name).num_rows == 0 for name in TABLES)
    assert "causal order undecided: no deliveries to judge" in (tmp_path / "out" / "report.html").read_text()


def test_a_trace_that_is_partitioned_by_computation_has_all_its_events(spark, tmp_path):
    """Of such files only Spark knows the computation, which is no column. Numbers stay the names they are:
    of the one that is cut, and of one that is not."""
    rows = conversation("1") + conversation("01", SOUND) + conversation("sound", SOUND)
    table = write(rows, tmp_path / "plain")
    folder = tmp_path / "trace"
    read_events(spark, tmp_path / "plain").write.partitionBy("computation").parquet(str(folder))
    assert not [*folder.glob("*.parquet")]
    summary = analyze_path(spark, folder, tmp_path / "out", whole_events=20, epoch_events=10)
    same(table, tmp_path / "out", summary)
    assert (summary["events"], summary["computations"]) == (64, 3)


def test_parts_in_plain_directories_are_no_trace(spark, tmp_path):
    """Spark does not look there: the answer would be that of an empty trace."""
    write(conversation("sound"), tmp_path / "monday")
    with pytest.raises(TraceFormatError, match="no trace here"):
        read_events(spark, tmp_path)


def stored_as(path, **types):
    """The same rows in one part, with columns of other types."""
    table = pa.concat_tables([pq.read_table(part) for part in sorted(path.glob("*.parquet"))])
    for name, type in types.items():
        at = table.schema.get_field_index(name)
        column = pa.nulls(len(table), type) if pa.types.is_null(type) else table[name].cast(type)
        table = table.set_column(at, name, column)
    for part in path.glob("*.parquet"):
        part.unlink()
    pq.write_table(table, path / "part-0.parquet")


@pytest.mark.parametrize(
    ("column", "type"),
    [
        ("time", pa.float64()),
        ("time", pa.timestamp("us")),
        ("time", pa.string()),
        ("seq", pa.uint64()),
        ("seq", pa.string()),
        ("relevant", pa.int8()),
        ("label", pa.int64()),
        ("clock", pa.map_(pa.string(), pa.float64())),
    ],
    ids=str,
)
def test_a_column_of_another_type_is_named_before_anything_is_read(spark, tmp_path, column, type):
    """No mode gets so far that it would matter."""
    write(conversation("sound"), tmp_path / "trace")
    stored_as(tmp_path / "trace", **{column: type})
    found = rf"part-0\.parquet: field '{column}': is {re.escape(str(type).rstrip('>'))}.*, needs "
    with pytest.raises(TraceFormatError, match=found + re.escape(str(SCHEMA.field(column).type))):
        read_events(spark, tmp_path / "trace")


def test_a_column_that_is_empty_in_some_parts_only_is_named(spark, tmp_path):
    write(conversation("sound"), tmp_path / "trace")
    rows = pq.read_table(tmp_path / "trace" / "part-1.parquet")
    at = rows.schema.get_field_index("causes")
    pq.write_table(rows.set_column(at, "causes", pa.nulls(len(rows))), tmp_path / "trace" / "part-1.parquet")
    with pytest.raises(TraceFormatError, match=r"part-1\.parquet: field 'causes': is null in some parts"):
        read_events(spark, tmp_path / "trace")


def test_types_that_hold_the_same_values_are_read_whole_and_cut(spark, tmp_path):
    """Narrow integers, dictionaries, columns without any value, and what nobody looks at."""
    table = write(conversation("small", 8) + conversation("large"), tmp_path / "trace")
    stored_as(
        tmp_path / "trace",
        seq=pa.int32(),
        time=pa.timestamp("ns"),
        process=pa.dictionary(pa.int32(), pa.string()),
        message=pa.large_string(),
        causes=pa.null(),
        clock=pa.null(),
        control_entries=pa.int64(),
        control_bytes=pa.null(),
    )
    summary = analyze_path(spark, tmp_path / "trace", tmp_path / "out", **MODES["cut"])
    same(table, tmp_path / "out", summary)
    assert (summary["events"], summary["computations"]) == (48, 2)


def with_nulls():
    """Inside what is a list: a cause that is none, and a destination that is none."""
    rows = conversation("nulls")
    event(rows, "p", 4)["causes"] = [None, {"process": "q", "seq": 1}]
    aimless = {"process": "p", "seq": 17, "kind": "send", "message": "late", "to": [None, "q"]}
    return rows, [*rows, {"computation": "nulls", **aimless}]


@pytest.mark.slow
def test_a_cause_without_a_process_is_none_whatever_processes_are_called(spark, tmp_path):
    """NUL stands for what a cause does not say; it may be the name of a process too."""
    rows = conversation("nul")
    for row in rows:
        row["process"] = "\0" if row["process"] == "q" else row["process"]
        row["to"] = row.get("to") and ["\0" if name == "q" else name for name in row["to"]]
    event(rows, "p", 4)["causes"] = [{"process": None, "seq": 9}, {"process": "\0", "seq": 99}]
    table = write(rows, tmp_path / "trace")
    expected = analyse(table)
    analyze_path(spark, tmp_path / "trace", tmp_path / "out", **MODES["cut"])
    assert sorted(reasons(tmp_path / "out")["nul"]) == [
        "p#4 names the cause \0#99, which is not in the trace",
        "p#4 names the cause None#9, which is not in the trace",
    ]
    for name in ("stamps", "predecessors"):
        found = traces.rows_of(pq.read_table(tmp_path / "out" / name), name)
        assert found == traces.rows_of(expected.table(name), name), name


def test_a_null_in_a_list_is_put_aside(spark, tmp_path):
    rows, given = with_nulls()
    no_cause = "p#4 names the cause None#None, which is not in the trace"
    expected = analyse(traces.table(rows))
    assert [row["reason"] for row in expected.table("quarantine").to_pylist()] == [no_cause]
    write(given, tmp_path / "trace")
    summary = analyze_path(spark, tmp_path / "trace", tmp_path / "out", **MODES["cut"])
    assert sorted(reasons(tmp_path / "out")["nulls"]) == ["p#17: to holds a null", no_cause]
    assert (summary["events"], summary["quarantined"]) == (32, 2)
    for name in ("stamps", "violations", "predecessors"):
        found = traces.rows_of(pq.read_table(tmp_path / "out" / name), name)
        assert found == traces.rows_of(expected.table(name), name), name


LOGS = {
    "two processes share an identity": (
        'a {"a":1}\nsays\na {"a":2}\nasks\na {"a":2}\nshouts\na {"a":3}\nleaves\nb {"b":1, "a":2}\nhears\n',
        {},
        "event 2 of a is also on line 3, with other content (1 in all): two processes share the identity a",
    ),
    "a clock runs backwards": (
        'a {"a":1}\nsays\na {"a":2}\nasks\nb {"b":1, "a":2}\nhears\nb {"b":2, "a":1}\nforgets\n',
        {},
        "the clock of b runs backwards: it knew 2 events of a, then 1",
    ),
    "several runs and no delimiter": (
        (FIXTURES / "two-runs.log").read_text(),
        {"regex": r"\S+ (?<event>.*)\n(?<host>\w+) (?<clock>.*)"},
        "alice begins again at 1 (it has 2 beginnings): several runs in one file",
    ),
    "the end is missing": (
        (FIXTURES / "greeting.log").read_text()[:-9],
        {},
        "does not match the regular expression; 6 of 7 lines do",
    ),
    "some lines do not match": (
        'a {"a":1}\nsays\n# a remark\na {"a":2}\nasks\n',
        {},
        "does not match the regular expression; 4 of 5 lines do | # a remark",
    ),
}
"""What a log holds, how it is read, and what `happened import` says about it."""


def import_log(path, text, **options):
    """Run `happened import` on a log; its exit code, what it said, and where the trace is."""
    path.write_text(text)
    given = [argument for name, value in options.items() for argument in (f"--{name}", value)]
    out = path.with_suffix("")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        code = main(["import", str(path), "--format", "shiviz", *given, "--out", str(out)])
    return code, said.getvalue(), out


@pytest.fixture(scope="module")
def analysed_logs(spark, tmp_path_factory):
    """All logs imported, one by one, and analysed together: by log what the import said; the answers."""
    folder = tmp_path_factory.mktemp("logs")
    imports = {}
    (folder / "trace").mkdir()
    for number, (fault, (text, options, _)) in enumerate(LOGS.items()):
        imports[fault] = import_log(folder / f"log-{number}.log", text, **options)
        for part in (imports[fault][2] / "trace").glob("*.parquet"):
            shutil.copy(part, folder / "trace" / f"{number}-{part.name}")
    summary = analyze_path(spark, folder / "trace", folder / "out")
    assert summary["quarantined"] == 0
    return imports, folder / "out"


@pytest.mark.parametrize("fault", LOGS)
def test_a_fault_of_a_log_is_named_and_what_is_left_is_analysed(analysed_logs, fault):
    imports, out = analysed_logs
    code, said, place = imports[fault]
    assert code == 0
    assert LOGS[fault][2] in said
    imported = json.loads((place / "import.json").read_text())
    assert imported["quarantined"] > 0
    (name,) = {*read(place)["computation"].to_pylist()}
    of = [("computation", "=", name)]
    assert pq.read_table(out / "stamps", filters=of).num_rows == imported["events"] > 0
    assert pq.read_table(out / "quarantine", filters=of).num_rows == 0
    wrong_clocks = {"mismatch", "regression"} & {
        *pq.read_table(out / "clocks", filters=of)["fault"].to_pylist()
    }
    assert bool(wrong_clocks) == (fault != "some lines do not match")


def test_a_wrong_regular_expression_says_what_it_matched(spark, tmp_path):
    wrong = r"(?<host>\d{9}) (?<clock>{.*})\n(?<event>.*)"
    says = "matches 0 of 4 lines; the first that does not is line 1: "
    text = 'a {"a":1}\nsays\na {"a":2}\nasks\n'
    log = tmp_path / "events.log"
    code, said, _ = import_log(log, text, regex=wrong)
    assert code == 2
    assert says in said
    assert """'a {"a":1}'""" in said
    with pytest.raises(TraceFormatError, match=says):
        import_on_spark(spark, [log], tmp_path / "spark", options=Options(regex=wrong))


def test_the_command_says_it_all_and_ends_with_a_code(command, capfd, tmp_path, bad_trace, damaged):
    """A trace full of faults, a truncated one, one without events, one that is not there."""
    write([], tmp_path / "nothing")
    damaged("cut off")
    given = [bad_trace, tmp_path / "trace", tmp_path / "nothing", tmp_path / "nowhere-at-all"]
    outs = [str(tmp_path / f"answers-{number}") for number in range(len(given))]
    codes = [command(["analyze", str(trace), "--out", out]) for trace, out in zip(given, outs, strict=True)]
    assert codes == [2, 2, 3, 2]
    said = capfd.readouterr()
    assert "causal order holds" in said.out
    assert "causal order undecided: no deliveries to judge" in said.out
    assert re.search(r"quarantined +\d{3}\n", said.out)
    assert "part-1.parquet" in said.err
    assert "nowhere-at-all: no such file or directory" in said.err
    assert "Traceback" not in said.err
