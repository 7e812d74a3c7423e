"""Traces and tables in an object store: a real one, on loopback."""

import gzip
import pickle
import socket
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from causality import traces
from happened import trace
from happened.cli import main
from happened.core.errors import CausalityError, TraceFormatError
from happened.trace import TraceWriter
from happened.trace import store as stores
from happened.trace.atomic import UNFINISHED, whole_directory, whole_file
from happened.trace.reader import open_part, read_part
from happened.trace.store import StorePath, any_path, files_below, remove_tree, size_of
from object_store import BUCKET, SECRET


@pytest.fixture(autouse=True)
def connect_anew():
    """Each test has connections of its own: they remember the environment they were made in."""
    stores._connected.cache_clear()
    yield
    stores._connected.cache_clear()


@pytest.fixture
def events(dice):
    return traces.table(traces.busy(dice))


def names_below(path):
    return [file.name for file in files_below(path)]


# Names


@pytest.mark.parametrize("given", ["run/trace", "/tmp/x", "a:b/c", "./ftp://x", ""])
def test_what_is_no_url_is_a_local_path(given):
    assert any_path(given) == Path(given)
    assert any_path(Path(given)) == Path(given)


def test_a_file_url_is_a_local_path():
    assert any_path("file:///tmp/a%20b") == Path("/tmp/a b")
    with pytest.raises(CausalityError, match="another host"):
        any_path("file://tmp/x")


def test_a_url_is_a_path_with_the_names_of_pathlib():
    path = any_path("s3a://bucket/run/computation=a%2Fb/part.json.gz?region=eu-west-1")
    assert path == any_path("s3://bucket//run/computation=a%2Fb/part.json.gz?region=eu-west-1")
    assert str(path) == "s3://bucket/run/computation=a%2Fb/part.json.gz?region=eu-west-1"
    assert any_path(str(path)) == any_path(path) == path
    assert (path.name, path.suffix) == ("part.json.gz", ".gz")
    assert path.parent.parent == any_path("s3://bucket/run?region=eu-west-1")
    assert path.parent / "part.json.gz" == path.with_name("x").with_name("part.json.gz") == path
    assert path.relative_to(path.parent.parent).parts == ("computation=a%2Fb", "part.json.gz")
    assert any_path("s3://bucket").parent == any_path("s3://bucket/")
    assert path.hadoop_url == "s3a://bucket/run/computation=a%2Fb/part.json.gz"
    assert sorted([path / "a" / "b", path / "a-b"]) == [path / "a" / "b", path / "a-b"]


def test_a_url_that_became_a_path_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for use in (trace.locate, TraceWriter, any_path):
        with pytest.raises(CausalityError, match="give the URL as text"):
            use(Path("s3a://bucket/run"))
    with pytest.raises(CausalityError, match="give the URL as text"), whole_directory(Path("s3://bucket/x")):
        pass
    assert not [*tmp_path.iterdir()]


def test_a_path_pickles_without_its_connection(bucket):
    path = any_path(bucket) / "name"
    path.write_text("ä")
    assert len(pickle.dumps(path)) < 400
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer).read_text() == 'ä')"
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(path), capture_output=True)
    assert done.stdout == b"True\n", done.stderr


# What is there


def test_files_are_written_read_listed_and_removed(bucket):
    root = any_path(bucket)
    assert not root.exists() and not [*root.iterdir()] and not files_below(root)
    for name in ("b/two", "a", "b/c/three"):
        (root / name).write_bytes(name.encode() * 3)
    assert [*root.iterdir()] == [root / "a", root / "b"]
    assert files_below(root) == [root / "a", root / "b" / "c" / "three", root / "b" / "two"]
    assert [*root.rglob("t*")] == [root / "b/c/three", root / "b/two"]
    assert [*root.glob("t*")] == []
    assert (root / "a").is_file() and (root / "b").is_dir() and not (root / "b").is_file()
    assert size_of(root / "b/two") == 15
    with (root / "b/two").open() as file:
        file.seek(5)
        assert file.read(5) == b"b/two"
    with pytest.raises(FileNotFoundError):
        (root / "none").read_bytes()
    with pytest.raises(FileNotFoundError):
        (root / "none").unlink()
    (root / "none").unlink(missing_ok=True)
    (root / "a").unlink()
    remove_tree(root / "b")
    remove_tree(root / "b")
    assert not files_below(root)


# Whole or not there


class Broken(Exception):
    pass


def test_a_file_whose_writer_fails_is_not_there(bucket):
    path = any_path(bucket) / "file"
    with pytest.raises(Broken), whole_file(path) as unfinished:
        unfinished.write_text("half")
        raise Broken
    assert not path.exists()
    path.write_text("before")
    with pytest.raises(Broken), whole_file(path) as unfinished:
        unfinished.write_text("half")
        raise Broken
    assert path.read_text() == "before"


def test_pyarrow_itself_would_leave_half_a_file(bucket, store):
    """Why `whole_file` writes to a local file first; if this fails one day, it need not any more."""
    path = any_path(bucket) / "file"
    with (
        pytest.raises(Broken),
        store.filesystem().open_output_stream(f"{path.authority}/{path.key}") as stream,
    ):
        stream.write(b"half")
        raise Broken
    assert path.read_bytes() == b"half"


def test_a_task_that_runs_again_leaves_one_result(bucket):
    path = any_path(bucket) / "part"
    for text in ("first, longer", "second"):
        with whole_file(path) as unfinished:
            unfinished.write_text(text)
    assert names_below(path.parent) == ["part"]
    assert path.read_text() == "second"


def test_a_file_larger_than_one_request_arrives_whole(bucket, dice):
    data = dice.randbytes(23 << 20)
    path = any_path(bucket) / "large"
    path.write_bytes(data)
    assert path.read_bytes() == data


class LosesTheSecondPart(BaseHTTPRequestHandler):
    """The store, but for the second part of an upload."""

    protocol_version = "HTTP/1.1"
    store = ""

    def answer(self):
        chunked = self.headers.get("Transfer-Encoding") == "chunked"
        body = [*self.chunks()] if chunked else self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "partNumber=2" in self.path:
            self.send_response(400)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        connection = HTTPConnection(self.store)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
        connection.request(self.command, self.path, body, headers, encode_chunked=chunked)
        given = connection.getresponse()
        data = given.read()
        self.send_response(given.status)
        for name, value in given.getheaders():
            if name.lower() not in ("transfer-encoding", "date", "server"):
                self.send_header(name, value)
        if given.getheader("Content-Length") is None:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def chunks(self):
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer

    def log_message(self, *args):
        pass


def test_an_upload_that_fails_in_the_middle_leaves_no_object(bucket, store, monkeypatch):
    monkeypatch.setattr(LosesTheSecondPart, "store", store.endpoint.removeprefix("http://"))
    with ThreadingHTTPServer(("127.0.0.1", 0), LosesTheSecondPart) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        through = f"?endpoint_override=http://127.0.0.1:{proxy.server_address[1]}"
        any_path(f"{bucket}/small{through}").write_text("arrives")
        with pytest.raises(CausalityError, match="the store fails"):
            any_path(f"{bucket}/large{through}").write_bytes(bytes(25 << 20))
        proxy.shutdown()
    assert names_below(any_path(bucket)) == ["small"]


def test_a_directory_is_refused_until_it_is_whole(bucket, events):
    out = any_path(bucket) / "run"
    with whole_directory(out) as folder:
        with TraceWriter(folder / "trace") as writer:
            writer.append(process="p", seq=1, kind="internal")
        for early in (out, out / "trace"):
            with pytest.raises(TraceFormatError, match="unfinished; wait for it"):
                trace.read(early)
    assert trace.read(out).num_rows == 1
    assert UNFINISHED not in names_below(out)
    with pytest.raises(CausalityError, match="exists already"), whole_directory(out):
        pass


def test_a_directory_whose_writer_fails_is_not_there(bucket):
    out = any_path(bucket) / "run"
    for _ in range(2):  # and its name can be taken again
        with pytest.raises(Broken), whole_directory(out) as folder:
            (folder / "table" / "part").write_text("half")
            (folder / "file").write_text("half")
            raise Broken
        assert not files_below(out)


def test_a_directory_whose_writer_died_is_refused(bucket):
    out = any_path(bucket) / "run"
    died = whole_directory(out)
    with TraceWriter(died.__enter__() / "trace") as writer:
        writer.append(process="p", seq=1, kind="internal")
    with pytest.raises(TraceFormatError, match="left unfinished"):
        trace.read(out)
    with pytest.raises(CausalityError, match="left unfinished; name another directory"), whole_directory(out):
        pass
    assert main(["check", str(out)]) == 2


def test_local_directories_and_files_are_the_paths_they_were(tmp_path):
    with whole_directory(any_path(f"file://{tmp_path}/out")) as folder:
        assert isinstance(folder, Path)
        (folder / "x").touch()
    assert (tmp_path / "out" / "x").exists()


# Traces


def test_parquet_is_read_as_from_a_local_directory(bucket, events, tmp_path):
    for root in (tmp_path, any_path(bucket)):
        with TraceWriter(root / "run" / "trace", batch_rows=7) as writer:
            for row in events.to_pylist(maps_as_pydicts="strict"):
                writer.append(row)
    expected = trace.read(tmp_path / "run")
    assert expected.num_rows == events.num_rows
    url = f"{bucket}/run"
    for given in (url, url.replace("s3://", "s3a://"), f"{url}/trace", any_path(url)):
        assert trace.read(given).equals(expected)
        assert trace.count(given) == events.num_rows
    assert not trace.locate(url).is_complete
    (any_path(url) / "summary.json").write_text('{"complete": true}')
    assert trace.locate(url).is_complete
    with pytest.raises(TraceFormatError, match="already holds a trace"):
        TraceWriter(f"{url}/trace")
    part = trace.locate(url).parts[0]
    assert read_part(part, [0]).equals(expected.slice(0, 7))
    assert open_part(part).metadata.num_rows == 7


def test_a_partitioned_table_is_read_as_from_a_local_directory(bucket, events, tmp_path):
    for number, name in enumerate(["computation=a%2Fb", "computation=__HIVE_DEFAULT_PARTITION__"]):
        for root in (tmp_path / "t", any_path(bucket) / "t"):
            part = root / name / "part.parquet"
            part.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(part) as unfinished:
                pq.write_table(events.drop_columns(["computation"]).slice(number, 1), unfinished)
            (root / "_temporary" / "x.parquet").parent.mkdir(exist_ok=True)
            with whole_file(root / "_temporary" / "x.parquet") as unfinished:
                unfinished.write_text("no part")
    here, there = (trace.read(root, lambda table, place: None) for root in (tmp_path / "t", f"{bucket}/t"))
    assert there.equals(here)
    assert {*there["computation"].to_pylist()} == {"a/b", ""}


def put(bucket, name, data):
    """SeaweedFS 4.48 packs an upload whose name ends in .gz once more, but not a copy that is called so."""
    plain, named = any_path(bucket) / "upload", any_path(bucket) / name
    plain.write_bytes(data)
    plain._filesystem().move(plain._inside(), named._inside())


@pytest.mark.parametrize("suffix", ["jsonl", "json.gz"])
def test_json_lines_are_read_as_from_a_local_file(bucket, events, tmp_path, suffix):
    trace.write_jsonl(events, tmp_path / "t.jsonl")
    data = (tmp_path / "t.jsonl").read_bytes()
    whole, cut = gzip.compress(data), gzip.compress(data)[:-9]
    put(bucket, f"t.{suffix}", whole if suffix.endswith("gz") else data)
    assert trace.read(f"{bucket}/t.{suffix}").equals(trace.read(tmp_path / "t.jsonl"))
    assert trace.count(f"{bucket}/t.{suffix}") == events.num_rows
    trace.write_jsonl(events, f"{bucket}/again.jsonl")
    assert (any_path(bucket) / "again.jsonl").read_bytes() == data
    put(bucket, "cut.json.gz", cut)
    with pytest.raises(TraceFormatError, match=r"s3://.*cut.json.gz: cannot be unpacked"):
        trace.read(f"{bucket}/cut.json.gz")


def test_what_is_wrong_with_a_trace_is_said_with_its_url(bucket):
    (any_path(bucket) / "t" / "part.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(TraceFormatError, match=r"s3://.*/t/part.parquet: not a readable Parquet file"):
        trace.read(f"{bucket}/t")
    with whole_file(any_path(bucket) / "d" / "part.parquet") as unfinished:
        pq.write_table(
            pa.table({"process": ["p"] * 1000, "seq": range(1000), "kind": ["send"] * 1000}), unfinished
        )
        damaged = bytearray(unfinished.read_bytes())
        damaged[4:400] = b"\xff" * 396
        unfinished.write_bytes(damaged)
    with pytest.raises(TraceFormatError, match=r"s3://.*/d/part.parquet: not a readable Parquet file"):
        trace.read(f"{bucket}/d")
    with pytest.raises(TraceFormatError, match="no such file or directory"):
        trace.read(f"{bucket}/nothing")
    (any_path(bucket) / "empty" / "x").write_text("")
    with pytest.raises(TraceFormatError, match="no trace here"):
        trace.read(f"{bucket}/empty")


def test_logs_in_a_store_become_a_trace_in_a_store(bucket, capsys):
    line = '{"process": "p", "seq": 1, "kind": "internal", "computation": "%s"}\n'
    (any_path(bucket) / "a.jsonl").write_text(line % "a")
    put(bucket, "b.jsonl.gz", gzip.compress(line.encode() % b"b"))
    out = f"{bucket}/imported"
    logs = [f"{bucket}/a.jsonl", f"{bucket}/b.jsonl.gz"]
    assert main(["import", *logs, "--out", out]) == 0
    assert f"imported to {out}" in capsys.readouterr().out
    assert trace.read(out).num_rows == 2
    assert names_below(any_path(out)) == ["import.json", "part-000000.parquet", "part-000000.parquet"]
    assert main(["import", *logs, "--out", out]) == 2
    assert "is already there" in capsys.readouterr().err
    assert main(["check", out]) == 3  # no deliveries to judge


# What goes wrong


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://host/x", r"ftp:// is no storage I know; .*file://, s3://, s3a://, gs://, abfss://, hdfs://"),
        ("s3:///x", r"names no bucket; write s3://BUCKET/x"),
        ("s3://", r"names no bucket"),
        ("abfss://account.dfs.core.windows.net/x", "names no container"),
        ("s3://bucket/x?colour=red", r"'colour' is no option of its URL; it may have endpoint_override"),
    ],
)
def test_urls_that_lead_nowhere(url, message):
    with pytest.raises(CausalityError, match=message):
        any_path(url)


@pytest.mark.parametrize("url", ["s3://key:hidden@bucket/x", "s3://hidden@b/x", "abfss://c:hidden@a/x"])
def test_a_url_with_a_password_is_refused_without_showing_it(url):
    with pytest.raises(CausalityError, match="take them out") as refusal:
        any_path(url)
    assert "hidden" not in str(refusal.value)


def test_a_missing_bucket(bucket):
    path = any_path("s3://no-such-bucket/run")
    for use in (
        path.is_file,
        lambda: trace.read(path),
        lambda: path.write_text(""),
        lambda: [*path.iterdir()],
    ):
        with pytest.raises(
            CausalityError, match=r"s3://no-such-bucket: there is no such bucket at .*; create it"
        ):
            use()


@pytest.mark.parametrize(
    ("name", "value"),
    [("AWS_SECRET_ACCESS_KEY", "wrong-" + SECRET), ("AWS_ACCESS_KEY_ID", "nobody")],
    ids=["another secret", "nobody"],
)
def test_refused_credentials(bucket, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    path = any_path(bucket) / "x"
    for use in (path.exists, path.read_bytes, lambda: path.write_text(""), lambda: [*path.iterdir()]):
        with pytest.raises(
            CausalityError, match=r"refuses these credentials .*; set AWS_ACCESS_KEY_ID"
        ) as told:
            use()
        assert SECRET not in str(told.value)


def test_nobody_is_let_in(bucket):
    with pytest.raises(CausalityError, match="refuses these credentials"):
        any_path(f"{bucket}/x?anonymous=true").exists()


def test_a_store_that_does_not_run(bucket, store):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        path = any_path(f"s3://{BUCKET}/x?endpoint_override={endpoint}")
        begin = time.monotonic()
        for use in (path.exists, lambda: path.write_text("")):
            with pytest.raises(CausalityError, match=rf"cannot be reached at {endpoint}; see that it runs"):
                use()
    assert time.monotonic() - begin < 20


def test_a_store_that_never_answers(bucket, monkeypatch):
    monkeypatch.setattr(stores, "SILENT_SECONDS", 1.0)
    monkeypatch.setattr(stores, "ATTEMPTS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        path = any_path(f"s3://{BUCKET}/x?endpoint_override=127.0.0.1:{silent.getsockname()[1]}&scheme=http")
        begin = time.monotonic()
        with pytest.raises(CausalityError, match="cannot be reached"):
            path.exists()
        assert time.monotonic() - begin < 20


def test_a_filesystem_that_pyarrow_was_built_without(monkeypatch):
    from pyarrow.fs import FileSystem

    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(CausalityError, match=r"cannot open hdfs://; .*Hadoop's libraries"):
        any_path("hdfs://127.0.0.1:1/x").exists()

    class Bare(FileSystem):
        @staticmethod
        def from_uri(uri):
            raise pa.ArrowNotImplementedError("Got GCS URI but Arrow compiled without GCS support")

    monkeypatch.setattr("pyarrow.fs.FileSystem", Bare)
    with pytest.raises(CausalityError, match=r"gs://b: the pyarrow installed here cannot open gs://"):
        any_path("gs://b/x").exists()


@pytest.mark.parametrize("url", ["gs://bucket/a/b", "abfss://box@account.dfs.core.windows.net/a/b"])
def test_other_stores_are_named_as_pyarrow_names_them(url):
    path = any_path(url)
    assert isinstance(path, StorePath) and path.hadoop_url == str(path) == url
    assert path._inside() in ("bucket/a/b", "box/a/b")
