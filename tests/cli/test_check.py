"""happened check: exit code, stdout, stderr."""

import json

import pytest

from happened.cli import main

QUESTION = {"process": "alice", "seq": 1, "kind": "send", "message": "question", "to": ["bob", "carol"]}
REPLY = [
    QUESTION,
    {"process": "bob", "seq": 1, "kind": "deliver", "message": "question"},
    {"process": "bob", "seq": 2, "kind": "send", "message": "answer", "to": ["carol"]},
]


def carol(*messages):
    return [
        {"process": "carol", "seq": seq, "kind": "deliver", "message": message}
        for seq, message in enumerate(messages, start=1)
    ]


def recorded(units):
    arrival = {"process": "carol", "seq": 1, "kind": "receive", "message": "answer"}
    later = carol("-", "question", "answer")[1:]
    return [*REPLY, arrival | {"attributes": {"units": units}}, *later]


IN_ORDER = [*REPLY, *carol("question", "answer")]
OVERTAKEN = [*REPLY, *carol("answer", "question")]


@pytest.fixture
def check(tmp_path, capsys):
    def run(rows, *options):
        path = tmp_path / "trace.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        code = main(["check", str(path), *options])
        out, err = capsys.readouterr()
        assert err == ""
        return code, out

    return run


def test_an_ordered_trace_holds(check):
    code, out = check(IN_ORDER)
    assert code == 0
    assert out.startswith("causal order holds: 3 deliveries examined, no violation\n")
    counts = dict(line.split()[:2] for line in out.splitlines()[1:] if not line.startswith("  never"))
    assert counts == {
        "events": "5", "processes": "3", "messages": "2", "deliveries": "3",
        "lost": "0", "duplicated": "0", "misdelivered": "0",
    }  # fmt: skip


def test_a_violation_shows_its_witness(check):
    code, out = check(OVERTAKEN)
    assert code == 1
    assert "causal order VIOLATED: 3 deliveries examined, 1 of them too early" in out
    assert "carol delivered answer before question" in out
    assert "bob#1  deliver question    ← alice#1" in out


@pytest.mark.parametrize(("order", "code"), [("causal", 1), ("fifo", 0), ("total", 3)])
def test_the_order_is_a_choice(check, order, code):
    assert check(OVERTAKEN, "--order", order)[0] == code


def test_no_deliveries_are_undecided(check):
    code, out = check([QUESTION])
    assert code == 3
    assert out.startswith("causal order undecided")


def test_a_lost_message_is_said_and_violates_nothing(check):
    code, out = check(REPLY)
    assert code == 0
    assert "first: question to carol (sent at alice#1)" in out


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (
            carol("question", "answer", "answer")[2],
            "duplicated              1  first: carol#3 deliver answer",
        ),
        (
            {"process": "alice", "seq": 2, "kind": "deliver", "message": "answer"},
            "misdelivered            1  first: alice#2 deliver answer",
        ),
        (
            {"process": "alice", "seq": 2, "kind": "deliver", "message": "rumour"},
            "never sent              1  first: alice#2 deliver rumour",
        ),
    ],
    ids=["twice", "astray", "of nothing"],
)
def test_a_delivery_too_many_is_a_violation(check, extra, said):
    code, out = check([*IN_ORDER, extra])
    assert code == 1
    assert out.startswith("causal order holds")
    assert said in out


def test_necessary_information_without_a_record_of_what_was_carried(check):
    code, out = check(IN_ORDER, "--necessary")
    assert code == 0
    assert "necessary information: 0.33 units per message edge, at most 1, over 3 edges" in out
    assert "was not recorded" in out


@pytest.mark.parametrize(
    ("units", "code", "said"),
    [
        ("question>carol", 0, "carried exactly that on all 1 recorded transmissions"),
        ("", 1, "first missing:   question>carol on answer to carol (#1)"),
        ("question>carol question>bob", 1, "first redundant: question>bob on answer to carol (#1)"),
    ],
    ids=["exact", "too little", "too much"],
)
def test_necessary_information_is_compared_with_what_was_carried(check, units, code, said):
    found, out = check(recorded(units), "--necessary")
    assert found == code
    assert said in out
    assert check(recorded(units))[0] == 0


def test_json_is_one_document(check):
    code, out = check(OVERTAKEN, "--json", "--necessary")
    document = json.loads(out)
    assert code == 1
    assert (document["outcome"], document["holds"], document["violations"]) == ("violated", False, 1)
    witness = document["witness"]
    assert (witness["process"], witness["early"], witness["overtaken"]) == ("carol", "answer", "question")
    assert [(e["process"], e["seq"], e["kind"]) for e in witness["path"]] == [
        ("alice", 1, "send"),
        ("bob", 1, "deliver"),
        ("bob", 2, "send"),
    ]
    assert document["delivery"]["events"] == 5
    assert document["necessary"]["edges"] == 3
    assert document["necessary"]["audit"]["holds"] is None


def test_json_keeps_its_keys_whatever_the_outcome(check):
    documents = [json.loads(check(rows, "--json")[1]) for rows in (IN_ORDER, OVERTAKEN, [QUESTION])]
    assert [document["outcome"] for document in documents] == ["holds", "violated", "undecided"]
    assert len({frozenset(document) for document in documents}) == 1


def test_a_missing_path_says_what_to_try(capsys, tmp_path):
    assert main(["check", str(tmp_path / "nowhere")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert str(tmp_path / "nowhere") in err
    assert "happened simulate" in err


def test_a_bad_trace_says_where(capsys, tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"process": "p", "seq": 1, "kind": "departed"}\n')
    assert main(["check", str(path)]) == 2
    assert f"{path}:1: field 'kind'" in capsys.readouterr().err
