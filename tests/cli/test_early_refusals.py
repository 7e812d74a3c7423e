"""What is refused before Spark is started, and in words."""

import re
from pathlib import Path

import pytest

from happened import tracking
from happened.cli import main
from happened.core.errors import CausalityError, LocalProtocolError
from happened.sim.run import Parameters, simulate
from happened.trace import TraceWriter


@pytest.mark.parametrize("options", ["", "--only order", "--only stamp", "--rebuild"])
def test_a_missing_trace_and_an_existing_directory(tmp_path, capsys, monkeypatch, options):
    def start(master=None, brief=False):
        raise AssertionError("Spark was started")

    monkeypatch.setattr("happened.spark.session.session", start)
    assert main(["analyze", str(tmp_path / "nothing"), "--out", str(tmp_path / "out"), *options.split()]) == 2
    assert "no such file or directory" in capsys.readouterr().err
    (tmp_path / "trace").mkdir()
    assert main(["analyze", str(tmp_path / "trace"), "--out", str(tmp_path), *options.split()]) == 2
    assert "exists already" in capsys.readouterr().err


def test_options_a_tracker_does_not_have():
    with pytest.raises(LocalProtocolError, match=r"p1 does not take these options: .*'b'"):
        tracking.create("p1:3", 0, 4)


def test_a_chat_with_oneself(capsys):
    assert main(["node", "chat", "alice", "--peer", "alice=127.0.0.1:7001", "--plaintext"]) == 2
    assert "that is you" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        "analyze trace --out URL",
        "analyze URL --out out",
        "analyze trace --only order --out URL",
        "analyze trace --rebuild --out URL",
        "simulate --messages 5 --out URL",
        "compare --messages 5 --out URL",
        "compare --trackers p1 --messages-each 5 --out URL",
        "advise trace --out URL",
        "import trace/events.jsonl --master local[2] --out URL",
        "topology show graph.yaml --svg URL",
        "node keys shared URL",
        "node keys authority --pki URL",
    ],
)
@pytest.mark.parametrize("url", ["s3a://bucket/x", "s3://bucket/x", "ftp://host/x"])
def test_a_url_never_becomes_a_local_directory(tmp_path, capsys, monkeypatch, words, url):
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / "events.jsonl").write_text('{"process": "p", "seq": 1, "kind": "internal"}\n')
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
    }.items():
        monkeypatch.setenv(name, value)
    assert main(words.replace("URL", url).split()) == 2
    takes_urls = words.split()[0] in ("analyze", "import")
    reason = "cannot be reached at http" if takes_urls else ": this command"
    reason = "is no storage I know" if url.startswith("ftp") else reason
    assert re.search(reason, capsys.readouterr().err)
    assert [path.name for path in tmp_path.iterdir()] == ["trace"]


def test_a_simulation_called_with_a_url_as_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CausalityError, match="give the URL as text"):
        simulate(Parameters(seed=1, protocol="ks", processes=3, messages=3), Path("s3a://bucket/run"))
    assert not [*tmp_path.iterdir()]


EVENT = '{"process": "p", "seq": 1, "kind": "internal"}\n'


@pytest.mark.parametrize(
    "words",
    [
        "analyze t.jsonl --local --out t.jsonl",
        "analyze t.jsonl --out t.jsonl",
        "analyze answers/trace --out answers",
        "analyze answers/stamps --rebuild --out answers",
        "import t.jsonl --out t.jsonl",
        "export answers/trace --to trace --out ../here/answers",
    ],
)
def test_force_does_not_replace_what_is_read(tmp_path, capsys, monkeypatch, words):
    monkeypatch.setattr("happened.spark.session.session", None)
    here = tmp_path / "here"
    for name in ("answers/stamps", "answers/trace"):
        (here / name).mkdir(parents=True)
    with TraceWriter(here / "answers" / "trace") as writer:
        writer.append(process="p", seq=1, kind="send", message="m", to=["q"])
        writer.append(process="q", seq=1, kind="deliver", message="m")
    (here / "t.jsonl").write_text(
        '{"process": "p", "seq": 1, "kind": "send", "message": "m", "to": ["q"]}\n'
        '{"process": "q", "seq": 1, "kind": "deliver", "message": "m"}\n'
    )
    monkeypatch.chdir(here)
    before = sorted(here.rglob("*"))
    assert main([*words.split(), "--force"]) == 2
    assert "is or holds the input" in capsys.readouterr().err
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize(
    "words",
    [
        "analyze t.jsonl --local --out answers --report nowhere/page.html",
        "view t.jsonl --out nowhere/page.html",
        "export t.jsonl --to shiviz --out nowhere/x.log",
    ],
)
def test_a_directory_that_is_not_there_is_named(tmp_path, capsys, monkeypatch, words):
    (tmp_path / "t.jsonl").write_text(EVENT)
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    said = capsys.readouterr().err
    assert f"{words.split()[-1]}: there is no directory nowhere; make it" in said
    assert [path.name for path in tmp_path.iterdir()] == ["t.jsonl"]


def test_commands_that_start_spark_say_so(tmp_path, capsys, monkeypatch):
    def start(master=None, brief=False):
        raise LocalProtocolError("Spark was started")

    monkeypatch.setattr("happened.spark.session.session", start)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.jsonl").write_text(EVENT)
    assert main(["analyze", "t.jsonl", "--rebuild", "--out", "out"]) == 2
    assert "rebuilding on Spark (local[*])" in capsys.readouterr().err
    assert main(["advise", "t.jsonl", "--master", "local[1]"]) == 2
    told = capsys.readouterr().err
    assert "replaying on Spark (local[1])" in told and "--local replays the trace in this process" in told
