"""DataFrames in, DataFrames out: what is asked of a frame is answered of its rows, wherever they are from."""

import gc
import logging
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

import happened
import happened.spark as hs
from causality import traces
from happened.causality.analysis import TABLES, analyse
from happened.core.errors import CausalityError, TraceFormatError
from happened.spark import library, workspace
from happened.spark.phases import TAG
from happened.spark.pipeline import analyze_path
from happened.spark.storage import TRACE
from happened.spark.versions import tags_of
from happened.trace import SCHEMA
from happened.trace.store import any_path
from spark.test_analyze import wild_rows, write

NULLABLE = StructType([StructField(field.name, field.dataType) for field in TRACE])


def frame_of(spark, rows):
    rows = [{"computation": "", "relevant": False} | row for row in rows]
    return spark.createDataFrame([tuple(row.get(name) for name in SCHEMA.names) for row in rows], NULLABLE)


def arrow_of(frame, name):
    return pa.Table.from_pylist([row.asDict(recursive=True) for row in frame.collect()], schema=TABLES[name])


def rows_of(frame, name):
    return traces.rows_of(arrow_of(frame, name), name)


def expected_rows(rows, name, **options):
    return traces.rows_of(analyse(traces.table(rows), **options).table(name), name)


@pytest.fixture(scope="module")
def rows(module_seed):
    return wild_rows(module_seed, 60, computation="c", skew=30)


@pytest.fixture(scope="module")
def events(spark, rows):
    return frame_of(spark, rows)


def test_all_tables_totals_and_the_report_are_those_of_the_kernels(rows, events):
    expected = analyse(traces.table(rows))
    with hs.analyze(events) as analysis:
        assert set(analysis.tables) == {*TABLES} <= {*dir(analysis)}
        for name in TABLES:
            assert rows_of(getattr(analysis, name), name) == traces.rows_of(expected.table(name), name), name
        summary = analysis.summary()
        for name in summary.keys() & expected.totals.keys():
            assert name == "necessary_units_mean" or summary[name] == expected.totals[name], name
        assert summary["events"] == len(rows) and summary["complete"] is False
        assert analysis.report().startswith("<!doctype html>")
        assert analysis._repr_html_().startswith('<iframe srcdoc="&lt;!doctype html')
        assert f"{len(rows):,} events" in repr(analysis)
        with pytest.raises(AttributeError, match="nothing"):
            analysis.nothing  # noqa: B018
        with pytest.raises(CausalityError, match="it has quarantine, "):
            analysis.table("nothing")


def test_a_filtered_or_rewritten_frame_is_analysed_as_it_is_and_not_as_the_files_behind_it(
    spark, tmp_path, rows
):
    write(rows, tmp_path / "trace")
    events = hs.read_trace(spark, tmp_path / "trace")
    chosen = [row for row in rows if row["computation"] in ("c1", "c2")]
    some = events.where(F.col("computation").isin("c1", "c2"))
    assert hs.analyze(some, questions=["stamp"]).summary()["events"] == len(chosen) < len(rows)
    assert rows_of(hs.stamp(some), "stamps") == expected_rows(chosen, "stamps")
    renamed = some.where("kind <> 'internal'").select(
        "computation", F.concat(F.lit("x"), "process").alias("process"), "kind", "message", "seq", "time"
    )
    derived = renamed.withColumn("kind", F.lit("internal")).withColumn("seq", F.col("seq") * 0 + 1)
    ones = [
        {"computation": computation, "process": f"x{process}", "seq": 1, "kind": "internal"}
        for computation, process in {
            (row["computation"], row["process"]) for row in chosen if row["kind"] != "internal"
        }
    ]
    one_each = derived.dropDuplicates(["computation", "process"])
    assert rows_of(hs.stamp(one_each), "stamps") == expected_rows(ones, "stamps")


@pytest.mark.parametrize(
    "function, table",
    [
        ("stamp", "stamps"),
        ("predecessors", "predecessors"),
        ("violations", "violations"),
        ("messages", "messages"),
        ("necessary", "necessary"),
        ("skew", "skew"),
        ("measures", "measures"),
        ("verify_clocks", "clocks"),
        ("verify_trackers", "trackers"),
    ],
)
def test_each_question_is_a_function_and_asks_no_other(monkeypatch, rows, events, function, table):
    asked = []
    original = library.answer
    monkeypatch.setattr(
        library, "answer", lambda laid, asking: asked.append(asking.questions) or original(laid, asking)
    )
    frame = getattr(hs, function)(events)
    assert rows_of(frame, table) == expected_rows(rows, table)
    assert len(asked) == 1 and len(asked[0]) == 1
    hs.release(frame)


def test_violations_of_one_order_and_stamps_of_one_form(rows, events):
    found = hs.violations(events, order="causal")
    all_of_them = analyse(traces.table(rows)).table("violations")
    causal = all_of_them.filter(pa.compute.equal(all_of_them["order_name"], "causal"))
    assert causal.num_rows
    assert rows_of(found, "violations") == traces.rows_of(causal, "violations")
    sparse = hs.stamp(events, timestamps="sparse")
    assert rows_of(sparse, "stamps") == expected_rows(rows, "stamps", timestamps="sparse")
    hs.release(found, sparse)
    with pytest.raises(CausalityError, match="order can be fifo, causal, total"):
        hs.violations(events, order="casual")
    with pytest.raises(CausalityError, match="timestamps can be"):
        hs.stamp(events, timestamps="all")


@pytest.mark.slow  # frames are laid down in files, and these are cut as any
def test_a_frame_cut_into_epochs(spark, seed):
    rows = wild_rows(seed, 6, prefix="w", skew=40)
    with hs.analyze(frame_of(spark, rows), whole_events=1, epoch_events=40) as analysis:
        assert analysis.stamps.select("epoch").distinct().count() > 1
        for name in TABLES.keys() - {"epochs", "stamps"}:
            assert rows_of(analysis.table(name), name) == expected_rows(rows, name), name


def test_columns_by_other_names_in_structs_and_maps_and_times_as_timestamps(spark):
    frame = spark.sql("""
        select named_struct('service.name', who, 'n', cast(n as int)) as resource, map('verb', what) as tags,
            id as `span id`, timestamp_seconds(n) as ts, timestamp_ntz'1970-01-01 00:00:01' as plain,
            if(what = 'send', array(7), null) as peers
        from values (5, 1, 'send', 'm'), (7, 1, 'deliver', 'm') as t(who, n, what, id)
    """)
    columns = {
        "process": "resource.service.name",
        "seq": "resource.n",
        "kind": "tags.verb",
        "message": "span id",
        "to": "peers",
        "time": "ts",
        "label": F.lit("all"),
    }
    with hs.analyze(frame, columns=columns, questions=["messages", "epochs"]) as analysis:
        (row,) = analysis.messages.collect()
        assert (row.sender, row.receiver, row.fate, row.latency) == ("5", "7", "delivered", 0)
        assert {row.clock_time for row in analysis.times.collect()} == {1_000_000_000}
    plain = hs.read_trace(spark, _view(frame), columns | {"time": "plain"})
    assert plain.schema["time"].dataType.simpleString() == "bigint"
    assert {row.time for row in plain.collect()} == {1_000_000_000}


def _view(frame):
    frame.createOrReplaceTempView("spans_of_a_test")
    return "spans_of_a_test"


@pytest.mark.parametrize(
    "sql, columns, said",
    [
        (
            "'p' as service, 1 as seq, 'send' as kind",
            {},
            "process.*has service, seq, kind; say which",
        ),
        (
            "'p' as service, 1 as seq, 'send' as kind",
            {"process": "servise"},
            "to 'servise'.*has service",
        ),
        ("'p' as process, '1' as seq, 'send' as kind", {}, "seq.*is string, needs bigint; cast it"),
        ("'p' as process, 1 as seq, 'send' as kind, 1.5D as time", {}, "time.*double.*or a timestamp"),
        ("'p' as process, 1 as seq, 'send' as kind", {"proces": "process"}, "proces.*no column of a trace"),
        ("'p' as process, 'q' as process, 1 as seq, 'send' as kind", {}, "several columns of this name"),
    ],
)
def test_a_frame_that_is_no_trace_is_refused_by_us_with_what_to_do(spark, sql, columns, said):
    with pytest.raises(TraceFormatError, match=said):
        hs.stamp(spark.sql(f"select {sql}"), columns=columns)


def test_columns_that_nothing_looks_at_need_not_fit(spark):
    frame = spark.sql(
        "select 'p' as process, 1L as seq, 'internal' as kind, 7 as attributes, 2L as control_bytes"
    )
    assert hs.stamp(frame).count() == 1


def test_rows_that_are_no_events_are_quarantined_and_lines_that_are_no_json_with_the_reason(spark, tmp_path):
    good = '{"process": "p", "seq": 1, "kind": "internal"}'
    (tmp_path / "t.jsonl").write_text(f'{good}\nnonsense\n{{"process": "q", "seq": 0, "kind": "internal"}}\n')
    analysis = hs.analyze(hs.read_trace(spark, str(tmp_path / "t.jsonl")), questions=["stamp"])
    whole = analyze_path(spark, tmp_path / "t.jsonl", tmp_path / "out", questions=["stamp"])
    assert analysis.summary() == whole and whole["quarantined"] == 2
    reasons = {row.reason for row in analysis.quarantine.collect()}
    assert reasons == {row.reason for row in spark.read.parquet(str(tmp_path / "out/quarantine")).collect()}
    analysis.close()


def test_an_empty_frame_has_empty_tables(spark):
    with hs.analyze(frame_of(spark, []).limit(0)) as analysis:
        assert analysis.summary()["events"] == 0
        assert all(analysis.table(name).count() == 0 for name in TABLES)


def test_a_trace_is_read_from_a_path_a_url_or_a_table(spark, tmp_path, rows):
    write(rows, tmp_path / "trace")
    by_path = hs.read_trace(spark, str(tmp_path / "trace"))
    assert by_path.columns == SCHEMA.names
    by_url = hs.read_trace(spark, (tmp_path / "trace").as_uri())
    by_path.createOrReplaceTempView("some_events")
    assert by_path.count() == by_url.count() == hs.read_trace(spark, "some_events").count() == len(rows)
    with pytest.raises(TraceFormatError, match="no such file or directory"):
        hs.read_trace(spark, "neither_table_nor_file")


def test_spark_writes_the_tables_to_a_directory_or_a_schema_of_the_catalog(spark, tmp_path, rows, events):
    spark.sql(f"create schema causality_test location '{tmp_path / 'warehouse'}'")
    try:
        with hs.analyze(events, questions=["stamp", "order"]) as analysis:
            analysis.write(tmp_path / "out", format="orc")
            with pytest.raises(CausalityError, match=r'exists already; .*mode="overwrite"'):
                analysis.write(tmp_path / "out", format="orc")
            analysis.write(tmp_path / "out", format="orc", mode="overwrite")
            analysis.write("causality_test")
            with pytest.raises(CausalityError, match="no such schema in the catalog"):
                analysis.write("nowhere_at_all")
            with pytest.raises(CausalityError, match="has no such format"):
                analysis.write(tmp_path / "more", format="papyrus")
        orc = spark.read.orc(str(tmp_path / "out" / "stamps"))
        assert rows_of(orc, "stamps") == expected_rows(rows, "stamps")
        assert rows_of(spark.table("causality_test.violations"), "violations") == expected_rows(
            rows, "violations"
        )
    finally:
        spark.sql("drop schema causality_test cascade")


def test_what_lies_under_work_goes_when_nothing_can_need_it(spark, tmp_path, rows, events):
    analysis = hs.analyze(events, questions=["order"], io="direct", work=tmp_path)
    (folder,) = tmp_path.iterdir()
    assert not (folder / "trace").exists()
    assert "<td>causal violations</td>" in analysis._repr_html_()
    with pytest.raises(CausalityError, match="analyse without questions="):
        analysis.report()
    del analysis
    gc.collect()
    assert not any(tmp_path.iterdir())
    # A join holds no reference to the frames it was made of: the answer outlives them.
    joined = events.join(hs.stamp(events, io="direct", work=tmp_path), ["computation", "process", "seq"])
    gc.collect()
    assert joined.count() == len(rows)
    with hs.analyze(events, questions=["order"], io="direct", work=str(tmp_path)) as analysis:
        assert analysis.violations.count()
    with pytest.raises(CausalityError, match="was closed"):
        analysis.table("violations")
    frame = hs.skew(events, io="direct", work=tmp_path)
    hs.release(frame)
    assert len([*tmp_path.iterdir()]) == 1
    with pytest.raises(CausalityError, match="only frames that an analysis returned"):
        hs.release(frame.limit(1))
    for left in [*workspace._kept]:
        if left.folder.parent == tmp_path:
            left.close()
    assert not any(tmp_path.iterdir())


def test_a_frame_is_shuffled_once_for_all_questions_and_forgotten_with_its_frames(spark, rows, monkeypatch):
    """Spark keeps what was laid down as long as the frame lives, and answers as long as theirs do."""
    laid = []
    original = workspace.lay_down
    monkeypatch.setattr(workspace, "lay_down", lambda rows: laid.append(original(rows)) or laid[-1])
    events = frame_of(spark, rows)
    stamps, early = hs.stamp(events), hs.violations(events)
    assert len(laid) == 1 and laid[0].is_cached
    packed = stamps._happened_kept._packed
    assert packed.is_cached
    derived = stamps.join(early, "computation")
    expected = derived.count()
    del stamps, early
    gc.collect()
    assert not packed.storageLevel.useMemory
    assert derived.count() == expected, "computed again"
    again = laid.pop()
    del events, derived
    gc.collect()
    assert not again.storageLevel.useMemory


def test_listeners_see_rows_bytes_and_quarantined_rows_of_a_question(spark, rows, monkeypatch):
    seen = {}
    events = frame_of(spark, [*rows, {**rows[0], "kind": "nothing"}])
    original = type(events).observe

    def observed(frame, name, *metrics):
        return original(frame, seen.setdefault(name, Observation(name)), *metrics)

    monkeypatch.setattr(type(events), "observe", observed)
    with pytest.warns(UserWarning, match="1 row"):
        hs.analyze(events, questions=["stamp"])
    told = seen["happened stamp"].get
    assert told["rows"] > len(rows) and told["bytes"] > 0 and told["quarantined"] == 1


def test_a_failed_analysis_leaves_nothing(monkeypatch, tmp_path, events):
    def fail(*arguments, **options):
        raise TraceFormatError("broken")

    monkeypatch.setattr(library, "analyze_splits", fail)
    with pytest.raises(TraceFormatError):
        hs.stamp(events, io="direct", work=tmp_path)
    assert not any(tmp_path.iterdir())


def test_at_the_end_of_the_interpreter_the_rest_goes(tmp_path):
    code = """
import sys
from pathlib import Path
from happened.spark import workspace
workspace.is_on_this_machine = lambda spark: True
place = workspace.Workspace(None, sys.argv[1])
place.keep()
(place.folder / "x").write_text("x")
assert any(Path(sys.argv[1]).iterdir())
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)
    assert not any(tmp_path.iterdir())


def test_on_other_machines_work_must_be_given_and_be_seen_by_all(spark, tmp_path, monkeypatch, events):
    monkeypatch.setattr(workspace, "is_on_this_machine", lambda spark: False)
    with pytest.raises(CausalityError, match="give work="):
        hs.stamp(events, io="direct")
    with pytest.raises(CausalityError, match=r"io=.direct"):
        hs.stamp(events, work=tmp_path)
    original = workspace.stream_part

    def elsewhere(path, tables):  # what is written on a machine with another disk
        return original(Path(str(path) + ".elsewhere"), tables)

    monkeypatch.setattr(workspace, "stream_part", elsewhere)
    with pytest.raises(CausalityError, match=r"wrote \d+ parts .* of which this process sees 0: give work="):
        workspace.write_trace(library.as_events(events), tmp_path / "trace", tmp_path / "quarantine")


def test_answers_in_a_store_are_read_by_tasks(spark, store, bucket, rows, monkeypatch):
    for name, value in store.environment.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    folder = any_path(bucket) / "stamps"
    table = analyse(traces.table(rows)).table("stamps")
    workspace.write_part(folder, "one", table.slice(0, 7))
    workspace.write_part(folder, "two", table.slice(7))
    assert rows_of(workspace.read_rows(spark, folder, TABLES["stamps"]), "stamps") == expected_rows(
        rows, "stamps"
    )


def test_jobs_say_which_question_and_which_pass_in_descriptions_tags_and_the_log(spark, caplog, events):
    context = spark.sparkContext
    context.setJobDescription("mine")
    tags_now, add_tag, remove_tag = tags_of(spark)
    add_tag("mine")
    seen = []

    def progress(what):
        if not what.startswith("stamped"):  # told by a thread that starts no jobs
            seen.append((what, context.getLocalProperty("spark.job.description"), tags_now()))

    with caplog.at_level(logging.INFO, "happened"):
        hs.analyze(
            events.where("computation = 'c3'"),
            questions=["order"],
            whole_events=1,
            epoch_events=100,
            progress=progress,
            io="direct",
        )
    assert [what for what, _, _ in seen][:3] == [
        "laying down the frame",
        "reading",
        "looking at what there is",
    ]
    for what, description, tags in seen:
        assert description == f"happened order: {what}"
        assert tags >= {"mine", TAG, f"happened order: {what}".replace(",", "")}
    assert context.getLocalProperty("spark.job.description") == "mine"
    assert tags_now() == {"mine"}
    assert "order: looking at what there is" in caplog.messages
    assert any(re.fullmatch(r"order: looking at what there is took \d+\.\d s", m) for m in caplog.messages)
    assert re.fullmatch(r"order: [\d,]+ events, 0 rows quarantined", caplog.messages[-1])
    context.setJobDescription(None)
    remove_tag("mine")


def test_the_names_are_lazy_and_a_missing_package_is_said(tmp_path):
    code = """
import sys
import happened.spark as hs
assert "pyspark" not in sys.modules and "pyarrow" not in sys.modules
assert set(hs.__all__) <= set(dir(hs))
sys.modules["pyspark"] = None
try:
    hs.stamp
except ImportError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == (
        "happened.spark.stamp cannot be used: pyspark is not installed; install it with: "
        "pip install 'happened[spark]'"
    )


def test_nothing_but_one_function_asks_for_what_spark_connect_has_not():
    root = Path(happened.__file__).parent / "spark"
    only_classic = re.compile(r"sparkContext|SparkContext|py4j|\.rdd\b|_jvm|_jdf|_jsc|\._sc\b|parallelize")
    found = {
        f"{path.relative_to(root)}: {line.strip()}"
        for path in root.rglob("*.py")
        for line in path.read_text().splitlines()
        if path.name != "versions.py" and only_classic.search(line)
    }
    assert not found
