"""Whether tables can be written is said before they are worked out, and nothing is written if one cannot."""

import pytest

import happened.spark as hs
from happened.core.errors import CausalityError
from happened.spark import library
from spark.test_library import expected_rows, rows_of

ROWS = [
    {"process": "p", "seq": 1, "kind": "send", "message": "m", "to": ["q"], "computation": "c"},
    {"process": "q", "seq": 1, "kind": "deliver", "message": "m", "computation": "c"},
]


@pytest.fixture(scope="module")
def events(spark):
    columns = ["process", "seq", "kind", "message", "to", "computation"]
    rows = [tuple(row.get(name) for name in columns) for row in ROWS]
    schema = "process string, seq long, kind string, message string, to array<string>, computation string"
    return spark.createDataFrame(rows, schema)


@pytest.fixture
def schema(spark, tmp_path):
    spark.sql(f"create schema written_test location '{tmp_path / 'warehouse'}'")
    yield "written_test"
    spark.sql("drop schema written_test cascade")


@pytest.fixture
def no_work(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the analysis was begun")

    monkeypatch.setattr(library, "Workspace", refuse)


@pytest.mark.parametrize(
    "into, format, mode, said",
    [
        ("{folder}/new", "delta", "error", r"no such format, 'delta'; give its jar to the session"),
        ("{folder}/new", "avro", "error", r"no such format, 'avro'; give its jar to the session"),
        ("{folder}/new", "csv", "error", r"csv cannot hold the column \w+ of \w+, array.*; write parquet"),
        (
            "{folder}/new",
            "parquet",
            "replace",
            "mode can be error, overwrite, append or ignore; not 'replace'",
        ),
        ("nowhere", "parquet", "append", "nowhere: there is no such schema in the catalog; create it"),
        ("no_catalog.nowhere", "parquet", "append", "no_catalog.nowhere: there is no such schema"),
        ("{schema}", "delta", "overwrite", r"no such format, 'delta'"),
        ("{folder}/old", "parquet", "error", r'old/violations exists already; .* mode="overwrite"'),
        ("{schema}", "parquet", "error", r"written_test.violations exists already"),
    ],
)
def test_what_cannot_be_written_is_said_before_the_work(
    spark, tmp_path, schema, no_work, events, into, format, mode, said
):
    spark.range(1).write.save(str(tmp_path / "old" / "violations"))
    spark.range(1).write.saveAsTable(f"{schema}.violations")
    place = into.format(folder=tmp_path, schema=schema)
    with pytest.raises(CausalityError, match=said):
        hs.analyze(events, questions=["order", "stamp"], into=place, format=format, mode=mode)
    assert not (tmp_path / "new").exists()


def test_nothing_is_written_if_one_of_the_tables_is_there(spark, tmp_path, events):
    with hs.analyze(events, questions=["order"]) as analysis:
        last = analysis.tables[-1]
        spark.range(1).write.save(str(tmp_path / "out" / last))
        with pytest.raises(CausalityError, match=f"{last} exists already"):
            analysis.write(tmp_path / "out")
        assert [path.name for path in (tmp_path / "out").iterdir()] == [last]
        with pytest.raises(CausalityError, match="no such format"):
            analysis.write(tmp_path / "other", format="delta")
        assert not (tmp_path / "other").exists()


def test_an_analysis_writes_where_it_was_told(spark, tmp_path, schema, events):
    with hs.analyze(events, questions=["stamp"], into=tmp_path / "out", format="orc") as analysis:
        assert analysis.stamps.count() == 2
    stamps = expected_rows(ROWS, "stamps")
    assert rows_of(spark.read.orc(str(tmp_path / "out" / "stamps")), "stamps") == stamps
    for mode in ("error", "overwrite"):
        hs.analyze(events, questions=["stamp"], into=schema, mode=mode).close()
        assert rows_of(spark.table(f"{schema}.stamps"), "stamps") == stamps


def test_an_analysis_that_cannot_be_written_after_all_leaves_nothing(tmp_path, events, monkeypatch):
    def fail(*_):
        raise CausalityError("the disk is full")

    monkeypatch.setattr(library, "write_tables", fail)
    with pytest.raises(CausalityError, match="the disk is full"):
        hs.analyze(events, questions=["stamp"], into=tmp_path / "out", io="direct", work=tmp_path / "work")
    assert not any((tmp_path / "work").iterdir())
