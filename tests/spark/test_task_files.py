"""What tasks leave on disk: the same files when one runs twice, where the driver meant them to be."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from causality import traces
from happened import trace
from happened.causality.analysis import EVERYTHING, TABLES, analyse
from happened.causality.names import hashes
from happened.causality.stamps import MOST_CELLS
from happened.causality.written import Whole
from happened.spark import one_pass, sizes
from happened.spark.log_import import run as import_on_spark
from happened.spark.one_pass import pass_over
from happened.spark.pipeline import analyze_path
from happened.spark.sizes import MOST_FILES, survey
from happened.spark.splits import splits_of
from happened.spark.tasks import HERE
from happened.trace import locate
from happened.trace.atomic import whole_directory
from spark.test_analyze import wild_rows, write


def answers(out):
    return {name: traces.rows_of(pq.read_table(out / name), name) for name in TABLES if (out / name).exists()}


def test_a_task_that_runs_twice_leaves_one_set_of_rows(spark, tmp_path, seed):
    """As Spark does after a lost executor, or with speculation: in splits, and after a shuffle."""
    table = write(wild_rows(seed, 9, computation="c", skew=50), tmp_path / "trace")
    pq.write_table(table, tmp_path / "one.parquet")
    expected = analyse(table)
    for way, path in {"in place": tmp_path / "one.parquet", "across": tmp_path / "trace"}.items():
        whole = Whole(tmp_path / way, "full", EVERYTHING)
        splits = splits_of(locate(path), rows=1)
        found = survey(spark, splits, tmp_path / way / ".work", tmp_path / way / "quarantine", 1000)
        assert (found.large, found.crossing_events > 0) == ([], way == "across")
        first, _ = pass_over(spark, found, whole, [], 1)
        once = answers(whole.out)
        again, _ = pass_over(spark, found, whole, [], 1)
        assert again == first == expected.totals, way
        assert answers(whole.out) == once, way
        assert once["stamps"] == traces.rows_of(expected.table("stamps"), "stamps")


def test_a_task_that_was_thought_dead_does_not_spoil_a_second_pass(spark, tmp_path, seed):
    """It still writes what the first pass wants of it, when the second has written its own."""
    stray = {"process": "stray", "seq": 1, "kind": "deliver", "message": "never sent"}  # whatever the seed
    table = write([*wild_rows(seed, 9, prefix="w"), stray], tmp_path / "trace")
    splits = splits_of(locate(tmp_path / "trace"), rows=1)
    found = survey(spark, splits, tmp_path / "work", tmp_path / "quarantine", 1)
    whole = Whole(tmp_path / "out", "full", EVERYTHING)
    stores = [tmp_path / "work" / "large-0000"]
    _, (large,) = pass_over(spark, found, whole, stores, 1, True)
    assert large.events == table.num_rows
    assert {path.parent.name for path in large.files} == {"edges-again"}, "no message lay in doubt"
    before = {path: path.read_bytes() for path in [*large.files, *large.fates]}
    late = one_pass._Pass(found, whole, stores, 1, True)
    for number in range(len(splits)):
        late.emit(number)
    assert {path: path.read_bytes() for path in before} == before


def test_a_directory_to_fill_is_the_same_from_every_working_directory(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with whole_directory(Path("answers/run")) as folder:
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert folder.is_absolute()
        (folder / "part").touch()
    assert [*(tmp_path / "answers").iterdir()] == [tmp_path / "answers" / "run"]
    assert (tmp_path / "answers" / "run" / "part").exists()


def test_relative_paths_are_those_of_the_driver(spark, tmp_path, monkeypatch):
    """The workers of this session started elsewhere, as those of a cluster do. Whole files and pieces."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        event = f'{{"computation": "{name}", "process": "p", "seq": 1, "kind": "internal"}}\n'
        Path(f"{name}.jsonl").write_text(event + "\n" * (100 if name == "b" else 0))
    files = [Path("a.jsonl"), Path("b.jsonl")]
    done = import_on_spark(spark, files, Path("out"), format="jsonl", piece_bytes=120)
    assert (done.summary["events"], done.summary["quarantined"]) == (2, 0)
    assert sorted(trace.read(tmp_path / "out")["computation"].to_pylist()) == ["a", "b"]


def test_a_computation_too_wide_for_a_task_is_large(spark, tmp_path):
    """7,100 processes of one event each need as much as 200,000 events of 250; 7,100 events of one do not.
    Where there are no messages, nobody needs vectors of them."""
    count = 7100
    assert (count - 50) ** 2 < MOST_CELLS < count**2
    shapes = {"wide": count, "narrow": 1, "small": count - 50, "silent": count}
    rows = []
    for name, processes in shapes.items():
        events = count if name != "small" else processes
        chains = {f"p{p}": [{"kind": "internal"}] * (events // processes) for p in range(processes)}
        if name != "silent":
            chains["p0"] = [*chains["p0"][:-1], {"kind": "send", "message": "m", "to": ["p0"]}]
        rows += traces.number(chains, name)
    write(rows, tmp_path / "trace")
    splits = splits_of(locate(tmp_path / "trace"), rows=1)
    found = survey(spark, splits, tmp_path / "store", tmp_path / "quarantine", 200_000)
    assert [(large.name, large.events) for large in found.large] == [("wide", count)]
    numbered = [*enumerate(splits)]
    holders = {name: [n for n, split in numbered if split.may_hold(pa.array([name]))] for name in shapes}
    crossing = {name for name, numbers in holders.items() if len(numbers) > 1 and name != "wide"}
    if not any(found.scattered):
        assert found.crossing_events == sum(
            shapes["small"] if name == "small" else count for name in crossing
        )
    for name in crossing:
        assert all(found.crosses(number, hashes([name])).all() for number in holders[name])
    low = survey(spark, splits, tmp_path / "low", tmp_path / "quarantine", count - 1)
    assert [large.name for large in low.large] == ["narrow", "silent", "wide"]


def test_many_small_files_are_opened_once_and_say_the_same(spark, tmp_path, seed, monkeypatch):
    """The second reader finds their rows in one file; what is no event is told of once."""
    rows = wild_rows(seed, 8, prefix="w", skew=20)
    table = pa.Table.from_pylist(
        [{"computation": "", "relevant": False} | row for row in rows], schema=trace.SCHEMA
    )
    bad = pa.Table.from_pylist([{"computation": "", "process": "p", "seq": 1, "kind": "none"}])
    (tmp_path / "trace").mkdir()
    for number in range(table.num_rows):
        pq.write_table(table.slice(number, 1), tmp_path / "trace" / f"{number:04d}.parquet")
    pq.write_table(bad, tmp_path / "trace" / "bad.parquet")
    splits = splits_of(locate(tmp_path / "trace"), rows=MOST_FILES + 4)
    assert min(len(split.pieces) for split in splits[:-1]) > MOST_FILES
    found = survey(spark, splits, tmp_path / "store", tmp_path / "quarantine", 1)
    assert [len(split.pieces) for split in found.splits[:-1]] == [1] * (len(splits) - 1)
    summary = analyze_path(
        spark,
        tmp_path / "trace",
        tmp_path / "out",
        whole_events=1,
        epoch_events=40,
        split_rows=MOST_FILES + 4,
    )
    expected = analyse(table)
    assert summary["quarantined"] == 1 + expected.totals["quarantined"]
    for name in ("stamps", "messages", "violations"):
        assert answers(tmp_path / "out")[name] == traces.rows_of(expected.table(name), name)


def test_what_a_task_reads_of_names_does_not_grow_with_the_trace(tmp_path, monkeypatch):
    """Of computations in several splits: a task that decides gets a bounded share of all, and a split looks
    up its own."""
    decided, looked_up = [], []
    decide, read_arrays = sizes._decide, sizes.read_arrays

    def deciding(rows, *more):
        decided.append(rows.size)
        return decide(rows, *more)

    def reading(path):
        found = read_arrays(path)
        looked_up.append(found["names"].size)
        return found

    monkeypatch.setattr(sizes, "_decide", deciding)
    monkeypatch.setattr(sizes, "read_arrays", reading)
    most = {}
    for count in (16, 128):
        splits, held = [], []
        for number in range(count):
            held.append([str((number * 60 + k) % (count * 60)) for k in range(70)])  # 10 are in the next too
            chains = {f"p{number}": [{"kind": "internal"}]}
            rows = [row for name in held[-1] for row in traces.number(chains, name)]
            folder = tmp_path / str(count) / str(number)
            folder.mkdir(parents=True)
            pq.write_table(traces.table(rows), folder / "part.parquet")
            splits += splits_of(locate(folder))
        decided.clear()
        store = tmp_path / str(count) / "store"
        found = survey(HERE, splits, store, tmp_path / "quarantine", 200_000)
        assert not any(found.scattered) and found.crossing_events == count * 20
        for number, names in enumerate(held):
            looked_up.clear()
            crosses = found.crosses(number, hashes(names)).tolist()
            assert crosses == [True] * 10 + [False] * 50 + [True] * 10
            assert sum(looked_up) == 20
        most[count] = max(decided)
    assert most[128] < 1.5 * most[16]
