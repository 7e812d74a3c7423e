"""The model of spans: for each kind and combination the order it has, and on random traces the order that a
brute-force reading of its rules gives, no more and no less."""

from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from happened import causality, trace
from happened.trace.readers import Options
from happened.trace.readers.span_drafts import Instance, Span, span_id
from happened.trace.readers.spans import assemble
from happened.trace.writer import table_from_rows
from oracles.span_order import order_of


def drafts(spans):
    for number, span in enumerate(spans, start=1):
        parent = span.get("parent")
        half = span.get("half", False)
        facts = {"task.id": span["task"]} if span.get("task") is not None else {}
        if span.get("key") is not None:
            facts |= {"messaging.destination.name": "q", "messaging.kafka.message.key": span["key"]}
        yield Span(
            "t",
            parent if half else span["name"],
            Instance(span["at"], span["at"]),
            span["name"],
            span.get("kind", ""),
            span.get("start"),
            span.get("end"),
            facts,
            (span_id("t", parent),) if parent else (),
            tuple(span_id("t", link) for link in span.get("links", ())),
            shared=half or span.get("kind") == "server",
        ).draft("log", number)


class Model:
    def __init__(self, spans, **options):
        self.assembly = assemble(drafts(spans), Options(**options))
        self.rows = self.assembly.rows
        self.table = table_from_rows(self.rows)
        trace.validate(self.table)
        (self.computation,) = causality.encode(self.table)
        self.stamps = causality.stamp([self.computation])
        self.place = {}
        for row in self.rows:
            name, what = row["label"].split(" ")[0], row["attributes"]["event"]
            if what in ("start", "end"):
                self.place[name, what] = (row["process"], row["seq"])

    def order(self):
        return {
            (a, b)
            for a, b in permutations(self.place, 2)
            if self.stamps.happened_before(self.place[a], self.place[b])
        }

    def kinds(self):
        return {(row["label"], row["kind"]) for row in self.rows}

    def row(self, label):
        (row,) = (row for row in self.rows if row["label"] == label)
        return row


def span(name, at, start=None, end=None, parent=None, **more):
    return {"name": name, "at": at, "start": start, "end": end, "parent": parent, **more}


def letters(text):
    """`a<b` as ((a, start), (b, …)): small letters are starts, capitals ends."""
    return tuple((letter.lower(), "end" if letter.isupper() else "start") for letter in text)


CASES = {
    # name: spans, what is before what, what is concurrent. Small letters are starts, capitals are ends.
    "a span of a thread that never ended": (
        [span("a", "x", 10, 20, task="1"), span("b", "x", 30, None, task="1")],
        ["Ab"],
        [],
    ),
    "a span of a thread that ended before it started": (
        [
            span("a", "x", 10, 20, task="1"),
            span("b", "x", 30, 25, task="1"),
            span("c", "x", 40, 50, task="1"),
        ],
        ["Ab", "Ac"],
        ["bc", "Bc"],
    ),
    "a synchronous call": (
        [span("c", "front", 10, 20, kind="client"), span("s", "back", 110, 115, "c", kind="server")],
        ["cs", "sS", "SC", "cC"],
        [],
    ),
    "a call that the client gave up": (  # it took longer there than here, so nobody waited for its end
        [span("c", "front", 10, 20, kind="client"), span("s", "back", 110, 125, "c", kind="server")],
        ["cs", "cC", "sS"],
        ["CS", "Cs"],
    ),
    "a call within one instance": (
        [span("c", "x", 10, 20, kind="client"), span("s", "x", 12, 18, "c", kind="server")],
        ["cs", "SC"],
        [],
    ),
    "a message through a queue": (
        [span("p", "shop", 10, 20, kind="producer"), span("c", "mail", 15, 18, "p", kind="consumer")],
        ["pc", "pP", "cC"],
        ["Pc", "PC"],
    ),
    "a message that a consumer links to": (
        [span("p", "shop", 10, 20, kind="producer"), span("c", "mail", 50, 60, links=["p"], kind="consumer")],
        ["pc"],
        ["Pc", "PC"],
    ),
    "a batch of two messages": (
        [
            span("p", "a", 1, 2, kind="producer"),
            span("q", "b", 1, 2, kind="producer"),
            span("c", "mail", 50, 60, links=["p", "q"], kind="consumer"),
        ],
        ["pc", "qc"],
        ["pq", "PQ", "Pc", "Qc"],
    ),
    "one message to two groups": (
        [
            span("p", "a", 1, 2, kind="producer"),
            span("c", "mail", 50, 60, "p", kind="consumer"),
            span("d", "bill", 50, 60, "p", kind="consumer"),
        ],
        ["pc", "pd"],
        ["cd", "CD"],
    ),
    "an internal step": (
        [span("p", "x", 1, 9), span("c", "x", 2, 5, "p", kind="internal")],
        ["pc", "CP"],
        [],
    ),
    "two steps one after the other": (
        [span("p", "x", 1, 9), span("a", "x", 2, 4, "p"), span("b", "x", 5, 8, "p")],
        ["pa", "Ab", "BP"],
        [],
    ),
    "two steps at once": (
        [span("p", "x", 1, 9), span("a", "x", 2, 6, "p"), span("b", "x", 5, 8, "p")],
        ["pa", "pb", "AP", "BP"],
        ["ab", "AB", "aB", "Ab"],
    ),
    "two steps at once and one after both": (
        [
            span("p", "x", 1, 9),
            span("a", "x", 2, 4, "p"),
            span("b", "x", 3, 5, "p"),
            span("c", "x", 6, 8, "p"),
        ],
        ["Ac", "Bc", "CP"],
        ["ab", "AB"],
    ),
    "a second call after the first": (  # what the first did is in the past of the second
        [
            span("p", "x", 1, 99, kind="server"),
            span("a", "x", 2, 40, "p", kind="client"),
            span("s", "y", 7, 20, "a", kind="server"),
            span("b", "x", 50, 90, "p", kind="client"),
            span("r", "z", 7, 20, "b", kind="server"),
        ],
        ["Sr", "sb", "Ab", "RP"],
        [],
    ),
    "a detached step": (  # by the clock it shares with its parent it ended later
        [span("p", "x", 1, 9), span("d", "x", 2, 15, "p"), span("a", "x", 3, 4, "p")],
        ["pd", "AP"],
        ["DP", "Pd", "da", "Da"],
    ),
    "equal times": ([span("p", "x", 1, 9), span("a", "x", 2, 4, "p"), span("b", "x", 4, 8, "p")], [], ["ab"]),
    "two handlers of one instance": (
        [span("a", "x", 1, 5, kind="server"), span("b", "x", 3, 9, kind="server")],
        [],
        ["ab", "Ab", "AB"],
    ),
    "two handlers, one after the other, of whose threads nothing is said": (
        [span("a", "x", 1, 5, kind="server"), span("b", "x", 8, 9, kind="server")],
        [],
        ["Ab", "ab"],
    ),
    "two handlers of one thread": (
        [span("a", "x", 1, 5, kind="server", task="7"), span("b", "x", 8, 9, kind="server", task="7")],
        ["Ab"],
        [],
    ),
    "two handlers that share an event loop": (
        [span("a", "x", 1, 5, kind="server", task="7"), span("b", "x", 3, 9, kind="server", task="7")],
        [],
        ["ab", "AB"],
    ),
    "a thread of another instance": (
        [span("a", "x", 1, 5, kind="server", task="7"), span("b", "y", 8, 9, kind="server", task="7")],
        [],
        ["Ab"],
    ),
    "a span without times": (
        [span("p", "x", 1, 9), span("u", "x", None, None, "p"), span("a", "x", 2, 3, "p")],
        ["pu", "pa", "AP"],
        ["ua", "UP", "Ua"],
    ),
    "a span that never ended": (
        [span("p", "x", 1, None), span("a", "x", 2, 3, "p"), span("b", "x", 5, 6, "p")],
        ["pa", "pb"],
        ["AP", "ab"],
    ),
    "a callee without its client's span": (
        [span("p", "x", 1, 9, kind="server"), span("s", "y", 102, 105, "p", kind="server")],
        ["ps", "SP"],
        [],
    ),
    "a link that is no message": (
        [span("a", "x", 1, 9), span("b", "y", 5, 6, links=["a"])],
        ["ab"],
        ["Ab", "AB"],
    ),
    "a child that began before its parent": (  # what is recorded wins over the clock
        [span("p", "x", 5, 9), span("c", "x", 3, 7, "p")],
        ["pc", "CP"],
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_order_of_each_combination(name):
    spans, before, concurrent = CASES[name]
    order = Model(spans).order()
    assert order == order_of(spans)
    for pair in before:
        assert letters(pair) in order, pair
    for a, b in map(letters, concurrent):
        assert (a, b) not in order and (b, a) not in order, (a, b)


def test_an_untimed_span_orders_nothing_by_time():
    """Two requests, the second with an untimed callee: the end of all does not come before the beginning."""
    spans = [span("a", "A", 1000, 1500), span("b", "B", 2000, 2100, "a")]
    spans += [span("c", "A", 9000, 9500), span("d", "B", None, None, "c")]
    order = Model(spans).order()
    assert (("c", "start"), ("b", "start")) not in order
    assert (("c", "start"), ("d", "start")) in order


def test_calls_and_returns_are_messages_with_one_send_and_one_delivery():
    spans, _, _ = CASES["a synchronous call"]
    model = Model(spans)
    assert model.kinds() == {("c", "send"), ("s", "deliver"), ("s (end)", "send"), ("c (end)", "deliver")}
    assert model.row("c")["to"] == ["back"]
    assert model.row("s (end)")["to"] == ["front"]
    assert causality.check_order([model.computation]).deliveries == 2


def test_recorded_and_implied_edges_are_told_apart():
    spans, _, _ = CASES["two steps at once and one after both"]
    model = Model(spans)
    assert model.row("a")["attributes"]["edge"] == "parent"
    assert model.row("c")["attributes"]["edge"] == "parent sequence"
    (cause,) = [f"{c['process']}#{c['seq']}" for c in model.row("p (end)")["causes"] or []] or [None]
    assert cause is None or cause in model.row("p (end)")["attributes"]["implied"]
    implied = {row["label"]: row["attributes"].get("implied") for row in model.rows}
    recorded = [
        cause
        for row in model.rows
        for cause in row["causes"] or ()
        if f"{cause['process']}#{cause['seq']}" not in (row["attributes"].get("implied") or "")
    ]
    assert implied["c"] is not None  # it waited for b, on another lane
    assert all((cause["process"], cause["seq"]) == model.place["p", "start"] for cause in recorded)


def test_a_message_read_and_then_processed_is_delivered_once():
    spans = [
        span("p", "shop", 1, 2, kind="producer"),
        span("poll", "mail", 10, 20, links=["p"], kind="consumer"),
        span("process", "mail", 12, 18, "poll", links=["p"], kind="consumer"),
    ]
    model = Model(spans)
    assert model.row("poll")["kind"] == "receive"
    assert model.row("process")["kind"] == "deliver"
    found = causality.check_delivery([model.computation])
    assert (found.messages, found.deliveries, found.duplicated, found.lost) == (1, 1, 0, 0)


def queue_of(first, second, at="bill", keys=("42", "42")):
    """shop sends created, then cancelled; `at` handles them at these times."""
    return [
        span("created", "shop", 1, 2, kind="producer", key=keys[0]),
        span("cancelled", "shop", 5, 6, kind="producer", key=keys[1]),
        span("on-created", at, first, first + 3, "created", kind="consumer", key=keys[0]),
        span("on-cancelled", at, second, second + 3, "cancelled", kind="consumer", key=keys[1]),
    ]


@pytest.mark.parametrize(
    ("spans", "violations"),
    [
        (queue_of(20, 30), 0),
        (queue_of(30, 20), 1),
        (queue_of(30, 20, keys=("42", "43")), 0),  # other keys are in no order
        (queue_of(20, 20), 0),  # equal times order nothing
        (queue_of(20, 21), 0),  # handled at once, but taken in order
    ],
)
def test_a_queue_keeps_the_order_of_a_key(spans, violations):
    model = Model(spans)
    found = causality.check_order([model.computation])
    assert (found.deliveries, found.violations) == (2, violations)
    if violations:
        (witness,) = found.witnesses
        assert (witness.early, witness.overtaken) == ("t:cancelled cancelled", "t:created created")
        assert witness.process == "bill~[q/42]"


def test_a_call_out_of_a_handler_goes_through_no_queue():
    """bill handles a message of the key after it was called by one who handles another of that key: the call
    is no message of the key, neither where it arrives nor where it leaves.
    """
    spans = [
        span("p", "shop", 1, 2, kind="producer", key="42"),
        span("c", "mail", 10, 19, "p", kind="consumer", key="42"),
        span("s", "bill", 12, 14, "c", kind="server"),
        span("q", "mail", 30, 31, kind="producer", key="42"),
        span("d", "bill", 40, 41, "q", kind="consumer", key="42"),
    ]
    model = Model(spans)
    order = model.order()
    assert not {letters("sd"), letters("cq"), letters("cd")} & order
    assert model.row("s")["process"] == "bill"
    assert model.row("d")["process"] == "bill~[q/42]"


def test_what_a_handler_hands_on_is_not_in_the_channel_that_it_took_from():
    """Where a producer's span is missing, its parent is a handler, whose channel is another matter."""
    spans = [
        span("p", "shop", 1, 2, kind="producer", key="42"),
        span("c", "mail", 10, 19, "p", kind="consumer", key="42"),
        span("d", "bill", 12, 14, "c", kind="consumer"),
        span("e", "bill", 15, 16, "c", kind="consumer", key="7"),
    ]
    model = Model(spans)
    assert [model.row(name)["process"] for name in "de"] == ["bill", "bill~[q/7]"]


def test_with_clock_order_an_instance_is_one_sequence():
    spans, _, _ = CASES["two handlers of one instance"]
    model = Model(spans, clock_order=True)
    assert {row["process"] for row in model.rows} == {"x"}
    assert [row["label"] for row in sorted(model.rows, key=lambda row: row["seq"])] == [
        "a", "b", "a (end)", "b (end)",
    ]  # fmt: skip
    assert model.row("b")["attributes"]["edge"] == "clock"


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_with_clock_order_what_is_timed_is_in_the_clock_s_order_unless_causes_forbid_it(seed):
    spans = random_spans(seed)
    model, plain = Model(spans, clock_order=True), Model(spans)
    assert plain.order() <= model.order()
    times = {
        (each["name"], what): (each["at"], each[what])
        for each in spans
        for what in ("start", "end")
        if each[what] is not None
    }
    for a, b in permutations(times, 2):
        if times[a][0] == times[b][0] and times[a][1] < times[b][1]:
            assert (a, b) in model.order() or (b, a) in model.order()


def random_spans(seed):
    """Up to nine spans of two or three instances whose times, kinds and tasks may contradict one another."""
    dice = Random(seed)
    spans = []
    for number in range(dice.randint(1, 9)):
        start = dice.choice([None, *range(12)]) if dice.random() < 0.3 else dice.randint(0, 30)
        end = None if start is None or dice.random() < 0.1 else start + dice.choice([0, 1, 2, 4, 9, 20])
        new = span(f"s{number}", dice.choice("xyz"[: dice.choice((1, 2, 3))]), start, end)
        new["kind"] = dice.choice(["", "internal", "client", "server", "producer", "consumer"])
        new["task"] = dice.choice([None, None, None, "1", "2"])
        others = [each["name"] for each in spans]
        if others and dice.random() < 0.8:
            new["parent"] = dice.choice(others)
        if others and dice.random() < 0.2:
            new["links"] = [dice.choice(others)]
        spans.append(new)
    dice.shuffle(spans)
    return spans


@settings(max_examples=250)
@given(st.integers(0, 2**32))
def test_random_traces_have_the_order_of_the_rules(seed):
    spans = random_spans(seed)
    assert Model(spans).order() == order_of(spans)


@pytest.mark.parametrize("links", [["p", "q"], ["q", "p"]])
def test_a_batch_hands_its_messages_over_at_once(links):
    """In which order it names them tells nothing: two of one key are in the order in which they were sent."""
    sent = [
        span("p", "shop", 1, 2, kind="producer", key="k"),
        span("q", "shop", 5, 6, kind="producer", key="k"),
    ]
    batch = span("c", "bill", 50, 60, links=links, kind="consumer", key="k")
    assert causality.check(Model([*sent, batch]).table).holds


@pytest.mark.parametrize("links", [["p", "q"], ["q", "p"]])
def test_a_contradicted_clock_upstream_does_not_make_the_order_of_links_count(links):
    """y starts before its parent x by one clock, and both send to one channel: that order is left out."""
    spans = [
        span("x", "edge", 10, 40, kind="producer", key="other"),
        span("y", "edge", 9, 30, "x", kind="producer", key="other"),
        span("call", "edge", 11, 20, "y", kind="client"),
        span("order", "shop", 100, 120, "call", kind="server"),
        span("p", "shop", 101, 102, "order", kind="producer", key="k"),
        span("q", "shop", 105, 106, "order", kind="producer", key="k"),
        span("c", "bill", 150, 160, links=links, kind="consumer", key="k"),
    ]
    assert causality.check(Model(spans).table).holds


def test_a_batch_may_have_a_message_that_one_of_an_earlier_batch_led_to():
    """r was sent by the handler of a batch after p; q came after that; then a batch names r before p."""
    spans = [
        span("p", "shop", 1, 2, kind="producer", key="k"),
        span("q", "shop", 5, 6, kind="producer", key="k"),
        span("b", "mail", 10, 20, links=["p"], kind="consumer", key="k"),
        span("c", "mail", 30, 40, links=["q"], kind="consumer", key="k"),
        span("r", "mail", 35, 36, "c", kind="producer", key="k"),
        span("d", "bill", 50, 60, links=["r", "q", "p"], kind="consumer", key="k"),
    ]
    assert causality.check(Model(spans).table).holds


def test_what_comes_after_a_batch_may_still_come_too_late():
    spans = [
        span("p", "shop", 1, 2, kind="producer", key="k"),
        span("q", "shop", 5, 6, kind="producer", key="k"),
        span("r", "shop", 7, 8, kind="producer", key="k"),
        span("c", "bill", 50, 60, links=["r", "p"], kind="consumer", key="k"),
        span("d", "bill", 70, 80, links=["q"], kind="consumer", key="k"),
    ]
    found = causality.check(Model(spans).table)
    assert [(w.early, w.overtaken) for w in found.witnesses] == [("t:r r", "t:q q")]
