"""The commands that ask a trace: exit code, stdout, stderr, JSON."""

import json

import pytest

from happened.cli import main

LINES = """\
{"process": "web", "seq": 1, "kind": "send", "message": "order", "to": ["bank"], "time": 1000, "label":"POST"}
{"process": "web", "seq": 2, "kind": "internal", "time": 2000}
{"process": "web", "seq": 3, "kind": "deliver", "message": "paid", "time": 9000}
{"process": "bank", "seq": 1, "kind": "deliver", "message": "order", "time": 4000}
{"process": "bank", "seq": 2, "kind": "send", "message": "paid", "to": ["web"],"time": 8000,"label":"charge"}
{"process": "cat", "seq": 1, "kind": "internal", "time": 500}
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.jsonl").write_text(LINES)

    def asked(*words):
        try:
            code = main(["ask", *words])
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    return asked


def test_why(run):
    code, out, err = run("why", "t.jsonl", "paid")
    assert (code, err) == (0, "")
    assert (
        out
        == """\
web#3 deliver paid  +8 µs
├─ web#1 send “POST”  +0 ns  before it there, 1 event between, 8 µs earlier (the first event there)
└─*bank#2 send “charge”  +7 µs  sent its message, 1 µs earlier

why so late: 8 µs since web#1
  +0 ns  web#1 send “POST”
  +3 µs  bank#1 deliver order  its message arrived, 3 µs
  +7 µs  bank#2 send “charge”  then, 4 µs
  +8 µs  web#3 deliver paid    its message arrived, 1 µs
"""
    )


def test_why_as_json(run):
    code, out, _ = run("why", "t.jsonl", "paid", "--json", "--depth", "1")
    answer = json.loads(out)
    assert code == 0 and answer["event"]["event"] == "web#3"
    assert [cause["end"] for cause in answer["causes"]] == ["first", "depth"]
    assert [step["event"]["time"] for step in answer["late"]] == [1000, 4000, 8000, 9000]


def test_nothing_before_it(run):
    assert run("why", "t.jsonl", "cat#1") == (0, "cat#1 internal  +0 ns\nnothing happened before it\n", "")


@pytest.mark.parametrize(
    "words, said",
    [
        (("POST", "web#3"), "web#1 happened before web#3\n"),
        (("web#3", "POST"), "web#1 happened before web#3\n"),
        (("web#2", "web#2"), "web#2 and web#2 are one event\n"),
        (
            ("web#2", "bank#2"),
            "concurrent: the newest event of web that bank#2 knows of is web#1, and web#2 knows of no event "
            "of bank\n",
        ),
    ],
)
def test_path(run, words, said):
    code, out, err = run("path", "t.jsonl", *words)
    assert (code, err) == (0, "") and out.startswith(said)
    relation = json.loads(run("path", "t.jsonl", *words, "--json")[1])["relation"]
    assert (relation == "concurrent") == said.startswith("concurrent")


def test_past_and_future(run):
    assert run("past", "t.jsonl", "charge") == (
        0,
        """\
2 events in the past of charge
  bank                                1
  web                                 1

  +0 ns  web#1 send “POST”
  +3 µs  bank#1 deliver order
""",
        "",
    )
    code, out, _ = run("future", "t.jsonl", "order", "--limit", "1")
    assert code == 0 and out.startswith("4 events in the future of order\n") and "… 3 more after" in out
    listed = json.loads(run("future", "t.jsonl", "order", "--json")[1])
    assert listed["events"] == len(listed["listed"]) == 4 and listed["processes"] == {"bank": 2, "web": 2}


def test_influenced_is_undecided_where_there_is_one_request(run):
    code, out, _ = run("influenced", "t.jsonl", "web#1")
    assert code == 3 and out == "undecided: the computation without a name is the only request of the trace\n"


def test_influenced_by_clock(run, tmp_path):
    rows = [
        {
            "computation": name,
            "process": "web",
            "seq": 1,
            "kind": "internal",
            "time": at,
            "label": f"GET {name}",
        }
        for at, name in enumerate(("one", "two"))
    ]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run("influenced", "r.jsonl", "two")[:2] == (
        0,
        "two (web#1 internal “GET two”): 0 of 1 other requests influenced it\n",
    )
    code, out, _ = run("influenced", "r.jsonl", "two", "--clock-order")
    assert code == 0 and "later by the clock of the process, 1 ns" in out
    code, out, _ = run("influenced", "r.jsonl", "one", "--clock-order", "--whom")
    assert code == 0 and "1 of 1 other requests it influenced" in out


def test_critical_path(run, tmp_path):
    code, out, _ = run("critical-path", "t.jsonl")
    assert code == 0 and out.startswith("the computation took 8.5 µs:\n")
    answer = json.loads(run("critical-path", "t.jsonl", "--json")[1])
    assert answer["took"] == [8500] and answer["quantiles"]["p99"] == 8500
    (tmp_path / "n.jsonl").write_text('{"process": "a", "seq": 1, "kind": "internal"}\n')
    code, out, err = run("critical-path", "n.jsonl")
    assert (code, out) == (3, "") and err.startswith("happened: undecided: no event has a time")


def test_diff(run, tmp_path):
    assert run("diff", "t.jsonl", "t.jsonl")[:2] == (
        0,
        "no difference: 6 events in common, with the same causes\n",
    )
    lines = LINES.splitlines(keepends=True)
    (tmp_path / "u.jsonl").write_text("".join(line for line in lines if '"cat"' not in line))
    code, out, _ = run("diff", "t.jsonl", "u.jsonl")
    assert code == 0 and out == "5 events in common\n1 only in run 1:\n  cat#1 internal\n"
    (tmp_path / "v.jsonl").write_text('{"process": "z", "seq": 1, "kind": "internal"}\n')
    code, _, err = run("diff", "t.jsonl", "v.jsonl")
    assert code == 2 and "no event in common" in err


@pytest.mark.parametrize("command", ["why", "past", "future", "influenced"])
def test_names_that_are_not_there_and_traces_that_are_not(run, command):
    code, out, err = run(command, "t.jsonl", "wbe#1")
    assert (code, out) == (2, "") and err.startswith("happened: nothing in the trace is called 'wbe#1'")
    assert err.count("\n") == 1
    code, _, err = run(command, "nowhere", "web#1")
    assert code == 2 and "no such file or directory" in err
    assert run(command, "t.jsonl")[0] == 2


def test_quarantined_rows_are_told(run, tmp_path):
    broken = '{"computation": "broken", "process": "x", "seq": 2, "kind": "internal"}\n'
    (tmp_path / "t.jsonl").write_text(LINES + broken)
    code, _, err = run("why", "t.jsonl", "paid")
    assert code == 0
    assert err == "happened: 1 row is quarantined and not looked at; `happened check` says why\n"


def test_an_escape_of_the_terminal_is_not_passed_on(run, tmp_path):
    row = {"process": "\x1b[2J", "seq": 1, "kind": "internal", "label": "a\nb\x07", "time": 1}
    (tmp_path / "t.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(row | {"seq": 2, "time": 5}) + "\n")
    name = "\x1b[2J#2"
    for words in (
        ("why", name),
        ("past", name),
        ("path", name, "\x1b[2J#1"),
        ("critical-path",),
        ("why", "a\nb"),
    ):
        _, out, err = run(words[0], "t.jsonl", *words[1:])
        assert all(letter.isprintable() or letter == "\n" for letter in out + err), (words, out, err)
        assert "a\nb" not in out + err


ARRIVALS = """\
{"process": "web", "seq": 1, "kind": "send", "message": "order", "to": ["bank"], "time": 1000}
{"process": "web", "seq": 2, "kind": "send", "message": "late", "to": ["bank"], "time": 1500}
{"process": "bank", "seq": 1, "kind": "receive", "message": "order", "time": 2000}
{"process": "bank", "seq": 2, "kind": "deliver", "message": "order", "time": 3000}
{"process": "bank", "seq": 3, "kind": "receive", "message": "late", "time": 4000}
"""


def test_why_of_an_arrival_says_that_its_send_is_no_cause(run, tmp_path):
    (tmp_path / "a.jsonl").write_text(ARRIVALS)
    _, out, _ = run("why", "a.jsonl", "bank#1")
    reason = "its send is no cause of it: a message takes effect when it is delivered"
    assert out.splitlines()[1:] == [f"{reason}, by bank#2; ask for that", "nothing happened before it"]
    assert f"{reason}, and this one was not" in run("why", "a.jsonl", "bank#3")[1]
    assert reason not in run("why", "a.jsonl", "bank#2")[1]
    answer = json.loads(run("why", "a.jsonl", "bank#1", "--json")[1])
    assert answer["is_arrival"] and answer["delivery"]["event"] == "bank#2"
    only_arrivals = ARRIVALS.replace("deliver", "internal").replace(
        '"message": "order", "time": 3000', '"time": 3'
    )
    (tmp_path / "b.jsonl").write_text(only_arrivals)
    assert "web#1 send" in run("why", "b.jsonl", "bank#1")[1]  # there a receive is a delivery


def test_the_table_of_a_critical_path_is_aligned_whatever_places_are_called(run, tmp_path):
    (tmp_path / "c.jsonl").write_text(
        '{"process": "p", "seq": 1, "kind": "internal", "time": 1}\n'
        '{"process": "p", "seq": 2, "kind": "internal", "time": 9, "label": "\\u0007"}\n'
    )
    lines = run("critical-path", "c.jsonl")[1].splitlines()
    header, row = (next(line for line in lines if line.startswith(begin)) for begin in ("  where", "  p "))
    assert len(header) == len(row) and header.index("time") + 4 == row.index("8 ns") + 4
