"""Logs with vector clocks: ShiViz, GoVector, Peterson's ring. Causes come from the clocks."""

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causality.traces import table, wild
from happened import causality
from happened.core.errors import TraceFormatError
from happened.trace.readers import FORMATS, Draft, Options, Source
from happened.trace.writer import table_from_rows

GOVECTOR = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"


def log(*events):
    """GoVector text of (host, clock, event) triples."""
    return "".join(f"{host} {json.dumps(clock)}\n{event}\n" for host, clock, event in events)


def test_a_log_that_begins_with_its_own_expression(read, fixture_text):
    found = read("shiviz", fixture_text("greeting.log"))
    assert found.quarantined == []
    assert found.causes() == {
        "says hello": set(),
        "hears bob": {"answers"},
        "hears alice": {"says hello"},
        "answers": set(),
    }
    assert [row["attributes"]["line"] for row in found.rows] == ["3", "5", "7", "9"]
    assert found.stamps.vector("alice", 2) == {"alice": 2, "bob": 2}


@pytest.mark.parametrize("group", ["(?<", "(?P<"], ids=["JavaScript", "Python"])
def test_a_delimiter_separates_and_names_runs(read, fixture_text, group):
    regex = r"(?<time>\S+) (?<event>.*)\n(?<host>\w+) (?<clock>{.*})".replace("(?<", group)
    found = read("shiviz", fixture_text("two-runs.log"), regex=regex, delimiter="^=== (?<trace>.*) ===$")
    assert found.quarantined == []
    runs = {(row["computation"], row["process"], row["seq"]) for row in found.rows}
    assert runs == {("log0#first", "alice", 1), ("log0#first", "bob", 1), ("log0#second", "alice", 1)}
    assert found.rows[0]["attributes"] == {"line": "2", "time": "10:00"}


def test_a_log_may_begin_with_its_delimiter_too(read):
    text = f"{GOVECTOR}\n^= (?<trace>.*)$\n= one\n" + log(("p", {"p": 1}, "a"))
    found = read("shiviz", text)
    assert found.quarantined == []
    assert [(row["computation"], row["attributes"]["line"]) for row in found.rows] == [("log0#one", "4")]


def test_runs_without_a_name_are_numbered_and_the_same_name_twice_is_told_apart(read):
    text = "--\n" + log(("p", {"p": 1}, "a")) + "--\n" + log(("p", {"p": 1}, "b"))
    found = read("shiviz", text, regex=GOVECTOR, delimiter="^--$")
    assert [row["computation"] for row in found.rows] == ["log0#1", "log0#2"]
    found = read("shiviz", text, regex=GOVECTOR, delimiter="^(?<trace>--)$")
    assert [row["computation"] for row in found.rows] == ["log0#--", "log0#-- (2)"]


def test_hosts_may_be_out_of_file_order(read):
    found = read("shiviz", log(("p", {"p": 2}, "second"), ("p", {"p": 1}, "first")))
    assert [(row["seq"], row["label"]) for row in found.rows] == [(2, "second"), (1, "first")]
    assert found.counts == [{"hosts_out_of_file_order": 1}]
    assert found.quarantined == []


def test_a_wrong_expression_says_how_many_lines_matched_and_shows_the_first_that_did_not(read):
    text = log(("p", {"p": 1}, "a"), ("p", {"p": 2}, "b")) + "garbage\n"
    with pytest.raises(TraceFormatError, match=r"matches 0 of 5 lines; .* line 1: 'p \{\"p\": 1\}'"):
        read("shiviz", text, regex=r"(?<host>\d+) (?<clock>{.*})\n(?<event>.*)")
    found = read("shiviz", text)
    assert len(found.rows) == 2
    assert found.reasons() == [
        "log0:5: field 'regex': does not match the regular expression; 4 of 5 lines do"
    ]
    assert found.quarantined[0].text == "garbage"


@pytest.mark.parametrize(
    ("regex", "said"),
    [("(?<host>", "is no regular expression"), (r"(?<host>\S+) (?<clock>.*)", "has no group event")],
)
def test_an_expression_that_cannot_be_used_is_refused(read, regex, said):
    with pytest.raises(TraceFormatError, match=said):
        read("shiviz", log(("p", {"p": 1}, "a")), regex=regex)


@pytest.mark.parametrize(
    ("clock", "said"),
    [
        ('{"p": 1', "is not JSON"),
        ('{"q": 1}', "has no count of p's own events"),
        ('{"p": 1.5}', "counts 1.5 events of p"),
        ('{"p": -1}', "counts -1 events of p"),
        ('{"p": true}', "counts True events of p"),
    ],
)
def test_a_clock_that_is_none_is_quarantined(read, clock, said):
    text = log(("p", {"p": 1}, "fine")) + f"p {clock}\nbroken\n"
    found = read("shiviz", text, regex=r"(?<host>\S*) (?<clock>{.*)\n(?<event>.*)")
    assert [row["label"] for row in found.rows] == ["fine"]
    assert [(q.line, q.field) for q in found.quarantined] == [(3, "clock")]
    assert said in found.quarantined[0].reason


def test_two_processes_of_one_identity_are_named(read):
    found = read(
        "shiviz",
        log(
            ("p", {"p": 1}, "one"),
            ("p", {"p": 1}, "other"),
            ("p", {"p": 2}, "one goes on"),
            ("p", {"p": 2}, "other goes on"),
            ("q", {"p": 1, "q": 1}, "hears one of them"),
        ),
    )
    assert "two processes share the identity p" in found.reasons()[0]
    assert found.quarantined[0].line == 3
    assert found.stamps.vector("p", 4) == {"p": 4}  # all imported, in file order
    assert found.causes()["hears one of them"] == set()  # which of them cannot be known
    assert any("not unique" in reason for reason in found.reasons())


def test_a_line_repeated_is_counted_once(read):
    found = read("shiviz", log(*[("p", {"p": n}, "e") for n in (1, 2, 2, 3)]))
    assert len(found.rows) == 3
    assert found.reasons() == ["log0:5: repeats line 3; counted once"]
    assert not found.quarantined[0].imported


def test_runs_without_a_delimiter_are_named_with_what_to_do(read):
    run = [("p", {"p": 1}, "a"), ("p", {"p": 2}, "b")]
    found = read("shiviz", log(*run, *run))
    assert len(found.rows) == 4
    assert "p begins again at 1 (it has 2 beginnings): several runs in one file" in found.reasons()[0]
    assert "--delimiter" in found.reasons()[0]
    assert found.quarantined[0].line == 5
    assert found.table.num_rows == 4


def test_a_clock_that_runs_backwards_is_named(read):
    events = [("q", {"q": 1}, "-"), ("q", {"q": 2}, "-"), ("p", {"p": 1, "q": 2}, "a"), ("p", {"p": 2}, "b")]
    found = read("shiviz", log(*events))
    assert found.reasons() == [
        "log0:7: field 'clock': the clock of p runs backwards: it knew 2 events of q, then 0 (1 times)"
    ]
    assert found.stamps.vector("p", 2) == {"p": 2, "q": 2}


def test_missing_events_cost_precision_and_not_truth(read):
    found = read(
        "shiviz",
        log(
            ("p", {"p": 3}, "a"),
            ("p", {"p": 6}, "b"),
            ("q", {"q": 1, "p": 5}, "c"),
            ("q", {"q": 2, "r": 1}, "d"),
        ),
    )
    assert found.causes() == {"a": set(), "b": set(), "c": {"a"}, "d": set()}
    reasons = " ".join(found.reasons())
    assert "the log begins with event 3 of p" in reasons
    assert "event 6 of p follows 3" in reasons
    assert "knows of event 5 of p, which is not in the log" in reasons
    assert "knows of event 1 of r" in reasons
    assert all(q.imported for q in found.quarantined)


def test_clocks_that_know_of_each_other_are_a_circle(read):
    found = read("shiviz", log(("p", {"p": 1, "q": 1}, "a"), ("q", {"p": 1, "q": 1}, "b")))
    assert found.causes() == {"a": set(), "b": set()}
    assert ["p#1, q#1 are causes of one another, in a circle" in reason for reason in found.reasons()] == [
        True,
        True,
    ]
    assert found.stamps.concurrent_pairs == 1


def test_the_ring_s_messages_are_paired_by_number(read, fixture_text):
    found = read("peterson", fixture_text("ring.trace"))
    assert found.quarantined == []
    assert len(found.rows) == 6  # round-done is none
    sent = [(row["process"], row["message"], row["to"]) for row in found.rows if row["kind"] == "send"]
    assert sent == [("0", "1", ["1"]), ("1", "2", ["2"])]
    assert found.stamps.vector("2", 1) == {"0": 2, "1": 3, "2": 1}


def test_a_ring_whose_receives_have_no_number_has_causes_only(read):
    found = read("peterson", "0 1,0 send1 4 9\n1 1,1 recv1 4\nnonsense\n1 1,0 relay\n")
    assert [row["kind"] for row in found.rows] == ["internal", "internal"]
    assert found.causes() == {"send1 4 9": set(), "recv1 4": {"send1 4 9"}}
    assert [q.line for q in found.quarantined] == [3, 4]


def random_log(seed):
    """A random computation's events with exact clocks, hosts interleaved at random."""
    random = Random(seed)
    events = table(wild(random))
    stamps = causality.stamp(events)
    chains = {}
    for row in events.to_pylist():
        clock = stamps.vector(row["process"], row["seq"])
        chains.setdefault(row["process"], []).append((row["process"], clock, f"event {row['seq']}"))
    lines = []
    while any(chains.values()):
        lines.append(chains[random.choice([host for host in chains if chains[host]])].pop(0))
    return lines, stamps


@settings(max_examples=150)
@given(st.integers(0, 2**32).map(random_log))
def test_causes_read_off_exact_clocks_give_these_clocks_again(logged):
    lines, stamps = logged
    text = log(*lines)
    reader = FORMATS["shiviz"]
    source = Source("log", enumerate(text.splitlines(keepends=True), start=1), "")
    drafts = list(reader.parse(source, Options()))
    assert all(isinstance(draft, Draft) for draft in drafts)
    assembly = reader.assemble(drafts, Options())
    assert assembly.quarantined == []
    again = causality.stamp(table_from_rows(assembly.rows))
    assert again.ordered_pairs == stamps.ordered_pairs
    for host, clock, event in lines:
        assert again.vector(host, int(event.split()[1])) == clock


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_expression_need_match_no_more_than_a_part_of_a_line(read, end):
    lines = ['12:00 a {"a":1} begin [info]', '12:01 b {"b":1, "a":1} follow [info]', "no event at all"]
    found = read("shiviz", end.join(lines) + end, regex=r"(?<host>\w) (?<clock>{.*}) (?<event>\w+)")
    assert found.causes() == {"begin": set(), "follow": {"begin"}}
    assert [q.line for q in found.quarantined] == [3]


def test_clocks_may_be_escaped_as_tla_prints_them(read):
    text = 'a "{\\"a\\":1}" begin\nb "{\\"b\\":1, \\"a\\":1}" follow\n'
    found = read("shiviz", text, regex=r"(?<host>\w) (?<clock>\".*\") (?<event>\w+)")
    assert found.causes() == {"begin": set(), "follow": {"begin"}}
    assert found.quarantined == []
