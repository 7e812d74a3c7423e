"""Buckets of a stream, without Spark: what they say is what the batch says, and what they keep goes away."""

import random
from collections import Counter
from itertools import product

import pyarrow as pa
import pytest

from causality.test_live import early, event, pairs, random_rows, stamps, table
from happened.causality.analysis import analyse
from happened.causality.live import Rules
from happened.spark.live import bucket as buckets
from happened.spark.live.bucket import Bucket

QUESTIONS = ["stamp", "predecessors", "order"]
TOTALS = (
    "events", "computations", "messages", "lost", "duplicated", "misdelivered", "never_sent",
    "deliveries_judged", "causal_violations", "fifo_violations", "lost_causes", "fifo_lost_causes",
    "reduction_edges", "ordered_pairs", "concurrent_pairs",
)  # fmt: skip


class Pages(dict):
    """A store that counts what is asked of it, and how many bytes that moves."""

    def __init__(self):
        super().__init__()
        self.calls, self.moved = 0, 0

    def _count(self, data):
        self.calls, self.moved = self.calls + 1, self.moved + len(data)
        return data

    def read(self, page):
        return self._count(self[page])

    def write(self, page, data):
        self[page] = self._count(data)

    def remove(self, page):
        self.calls += 1
        del self[page]


class Stream:
    """One bucket, packed and unpacked after every batch as Spark does it."""

    def __init__(self, **rules):
        self.rules, self.pages, self.head = Rules(**{"retire": 1000} | rules), Pages(), None
        self.told, self.totals = [], Counter()

    def _do(self, what):
        bucket = Bucket(self.pages, self.head, self.rules)
        answers = what(bucket)
        self.head = bucket.close(answers)
        self.told.append(answers)
        self.totals.update(answers.totals)
        size = sum(map(len, self.pages.values())) + len(self.head or b"")
        assert self.totals["state_bytes"] == size
        return answers

    def arrive(self, rows, now=0):
        return self._do(lambda bucket: bucket.arrive(table(rows), now))

    def expire(self, now):
        return self._do(lambda bucket: bucket.expire(now))

    def end(self, now=0):
        return self._do(lambda bucket: bucket.end(now))

    def rows(self, name, computation=None):
        found = [row for answers in self.told for part in answers.tables[name] for row in part.to_pylist()]
        return [row for row in found if computation is None or row["computation"] == computation]


def computations(dice, most=6, steps=50):
    rows = []
    for k in range(dice.randint(1, most)):
        made = random_rows(dice, steps=dice.randint(1, steps))
        rows += [row | {"computation": f"c{k}", "relevant": False} for row in made]
    return rows


def shuffled(rows, dice):
    """Some rows twice; in any order, or nearly in order."""
    arriving = rows + dice.sample(rows, len(rows) // 5)
    dice.shuffle(arriving)
    if dice.random() < 0.5:
        place = {(row["computation"], row["process"], row["seq"]): k for k, row in enumerate(rows)}

        def about(row):
            return place[row["computation"], row["process"], row["seq"]] + dice.uniform(0, 12)

        arriving.sort(key=about)
    return arriving


def violations_by_closure(rows):
    """(order, process, early event) by the definition: happened-before as a closed set of pairs."""
    here = {(row["process"], row["seq"]): row for row in rows}
    send = {row["message"]: key for key, row in here.items() if row["kind"] in ("send", "unordered")}
    first = {}
    for key in sorted(here):
        row = here[key]
        if row["kind"] == "deliver":
            first.setdefault((row["message"], row["process"]), key)
    before = {key: {(key[0], key[1] - 1)} & here.keys() for key in here}
    for (message, _), key in first.items():
        if message in send and here[send[message]]["kind"] == "send":
            before[key].add(send[message])
    for key, row in here.items():
        before[key] |= {(cause["process"], cause["seq"]) for cause in row.get("causes") or ()}
    past = {}

    def past_of(key):
        if key not in past:
            past[key] = set()
            past[key] = set().union(before[key], *(past_of(each) for each in before[key]))
        return past[key]

    found = set()
    ordered = [m for m, key in send.items() if here[key]["kind"] == "send"]
    for m, other in product(ordered, ordered):
        if send[other] not in past_of(send[m]):
            continue
        for to in {*here[send[m]]["to"]} & {*here[send[other]]["to"]}:
            mine, others = first.get((m, to)), first.get((other, to))
            if mine and others and mine < others:
                found.add(("causal", to, f"{to}#{mine[1]}"))
                if send[m][0] == send[other][0]:
                    found.add(("fifo", to, f"{to}#{mine[1]}"))
    return found


@pytest.mark.parametrize("large", [8, 2048], ids=["small ones become large", "all are small"])
def test_streamed_answers_are_those_of_the_batch_and_of_the_definition(large, seed, monkeypatch):
    monkeypatch.setattr(buckets, "LARGE", large)
    monkeypatch.setattr(buckets, "PAGE_ROWS", 10)
    dice, seen = random.Random(seed), Counter()
    for _ in range(40):
        rows = computations(dice)
        arriving = shuffled(rows, dice)
        stream, now = Stream(), 0
        while arriving:
            size = dice.randint(1, 30)
            stream.arrive(arriving[:size], now)
            arriving = arriving[size:]
        stream.end()
        assert not stream.pages and stream.head is None
        whole = analyse(table(rows), questions=QUESTIONS)
        for name in {row["computation"] for row in rows}:
            mine = [row for row in rows if row["computation"] == name]

            def of(table, name=name, whole=whole):
                return [row for row in whole.table(table).to_pylist() if row["computation"] == name]

            names = {row["p"]: row["process"] for row in stream.rows("processes", name)}
            assert len(names) == len(stream.rows("processes", name))
            numbers = {row["p"]: row["process"] for row in of("processes")}
            assert stamps(stream.rows("stamps", name), names) == stamps(of("stamps"), numbers)
            assert len(stream.rows("stamps", name)) == len(mine)
            assert pairs(stream.rows("predecessors", name)) == pairs(of("predecessors"))
            found = early(stream.rows("violations", name), "early_event")
            assert found == early(of("violations"), "early_event") == violations_by_closure(mine)
            assert early(stream.rows("lost_causes", name), "lost") == early(of("lost_causes"), "lost")
            seen["violations"] += len(found)
        counted = {name: stream.totals[name] for name in TOTALS}
        wanted = {name: whole.totals[name] for name in TOTALS}
        assert counted == wanted
        assert stream.totals["duplicates"] == len(rows) // 5
        assert all(stream.totals[name] == 0 for name in ("held", "live", "quarantined", "state_bytes"))
    assert seen["violations"]


def pair(name, first=1):
    """Two messages, delivered in the order sent."""
    rows = [
        event("a", 1, "send", "m1", to=["b"]),
        event("a", 2, "send", "m2", to=["b"]),
        event("b", 1, "deliver", "m1"),
        event("b", 2, "deliver", "m2"),
    ]
    return [row | {"computation": name} for row in rows[first - 1 :]]


def test_a_batch_costs_what_came_and_not_what_is_kept():
    stream, costs = Stream(retire=10**9), []
    for batch in range(60):
        before = stream.pages.calls, stream.pages.moved
        stream.arrive([row for k in range(50) for row in pair(f"c{batch}-{k}")], now=batch)
        costs.append((stream.pages.calls - before[0], stream.pages.moved - before[1]))
    assert costs[-1][0] <= costs[1][0] and costs[-1][1] <= 1.05 * costs[1][1]
    assert stream.totals["live"] == 3000
    assert len(stream.head) / 3000 < 20  # the only thing that is read whole


def test_rows_of_old_computations_touch_their_pages_alone():
    stream = Stream(retire=10**9)
    for batch in range(30):
        stream.arrive([row for k in range(100) for row in pair(f"c{batch}-{k}")[:3]], now=batch)
    before = stream.pages.calls
    stream.arrive([pair("c3-7")[3], pair("c20-1")[3]], now=99)
    assert stream.pages.calls - before == 3  # two pages are read, and one is written
    assert stream.totals["events"] == 30 * 300 + 2


def test_computations_are_finished_after_silence_and_what_is_kept_goes():
    stream = Stream(retire=1600)
    stream.arrive(pair("complete") + pair("cut")[:3], now=0)
    stream.arrive(pair("later"), now=1000)
    assert stream.expire(1500).totals["live"] == 0
    read = stream.pages.calls
    done = stream.expire(1700)
    assert done.totals["live"] == -2 and done.totals["lost"] == 1
    assert stream.pages.calls - read == 2  # the page of both is read, for one is open, and removed
    stream.expire(2700)
    assert not stream.pages and stream.head is None
    assert stream.totals["live"] == stream.totals["state_bytes"] == 0


def test_a_computation_that_gets_rows_lives_on():
    stream = Stream(retire=1600)
    stream.arrive(pair("c")[:2], now=0)
    stream.arrive(pair("c")[2:3], now=1500)
    assert stream.expire(1700).totals["live"] == 0
    stream.arrive(pair("c")[3:], now=3000)
    assert stream.expire(10_000).totals["lost"] == 0
    assert stream.totals["events"] == 4 and stream.head is None


@pytest.mark.parametrize("large", [8, 2048], ids=["large", "small"])
def test_what_gets_rows_in_every_batch_leaves_no_copies_of_itself(large, monkeypatch):
    monkeypatch.setattr(buckets, "LARGE", large)
    stream = Stream(retire=10**9)
    for batch in range(1, 200):
        stream.arrive([event("a", batch, "internal")], now=batch)
    assert len(stream.pages) == 1
    stream.end()
    assert not stream.pages and stream.head is None and stream.totals["events"] == 199


def test_what_begins_in_the_middle_is_quarantined_by_name():
    """Such as the late rows of a computation that was finished: it must not look like a sound one."""
    stream = Stream(retire=1600)
    stream.arrive(pair("c", first=4), now=0)
    stream.arrive([event("a", 1, "deliver", "m9") | {"computation": "d"}], now=0)
    assert stream.totals["events"] == 0 and stream.totals["held"] == 2
    stream.expire(5000)
    (row,) = stream.rows("quarantine")
    assert row["computation"] == "c" and row["reason"].startswith("b#2 was held too long")
    assert stream.totals["never_sent"] == 1 and stream.totals["quarantined"] == 1


def test_rows_that_come_again_are_counted_and_those_that_differ_are_named():
    stream = Stream()
    rows = pair("c")
    stream.arrive(rows[:2] + rows[:1])
    stream.arrive([rows[0], rows[1] | {"to": ["z"]}, *rows[2:]])
    stream.end()
    assert stream.totals["duplicates"] == 2 and stream.totals["events"] == 4
    (row,) = stream.rows("quarantine")
    assert row["reason"].startswith("a#2 is here twice with different contents")
    assert {row["process"] for row in stream.rows("processes")} == {"a", "b"}


def test_which_of_two_different_rows_counts_does_not_depend_on_their_order():
    one, other = event("a", 1, "internal"), event("a", 1, "send", "m", to=["b"])
    told = []
    for rows in ([one, other, one], [other, one, one]):
        stream = Stream()
        stream.arrive(rows)
        stream.end()
        told.append((stream.rows("stamps"), stream.rows("quarantine"), stream.totals))
    assert told[0] == told[1] and told[0][2]["quarantined"] == 1


@pytest.mark.parametrize("large", [2, 2048], ids=["large", "small"])
def test_a_message_that_is_sent_twice_is_named_and_what_follows_is_not_told(large, monkeypatch):
    monkeypatch.setattr(buckets, "LARGE", large)
    stream = Stream()
    stream.arrive(pair("c")[:1])
    again = [event("b", 1, "send", "m1", to=["a"]), event("b", 2, "internal")]
    stream.arrive([row | {"computation": "c"} for row in again])
    stream.end()
    assert stream.totals["events"] == 1 and stream.totals["quarantined"] == 2
    assert any("sent twice" in row["reason"] for row in stream.rows("quarantine"))


def test_a_cycle_is_quarantined_by_name():
    stream = Stream()
    rows = [event("a", 1, "deliver", "m"), event("a", 2, "send", "m", to=["a"]), event("b", 1, "internal")]
    stream.arrive(rows)
    stream.end()
    named = sorted(row["reason"].split()[0] for row in stream.rows("quarantine"))
    assert named == ["a#1", "a#2"] and stream.totals["events"] == 1


def test_receives_stand_for_deliveries_only_if_that_is_said():
    rows = [event("a", 1, "send", "m", to=["b"]), event("b", 1, "receive", "m")]
    for receives, judged, lost in ((True, 1, 0), (False, 0, 1)):
        stream = Stream(receives=receives)
        stream.arrive(rows)
        stream.end()
        assert (stream.totals["deliveries_judged"], stream.totals["lost"]) == (judged, lost)


def test_an_empty_page_of_rows_is_nothing():
    stream = Stream()
    stream.arrive([])
    assert stream.head is None and not stream.pages and pa.total_allocated_bytes() >= 0


def test_names_are_compared_to_their_last_character():
    """Also one that ends with NUL, which arrays of numpy's own strings cut off."""
    rows = [
        event("p", 1, "send", "m", to=["q"]),
        event("p", 2, "send", "n", to=["q"]),
        event("q", 1, "deliver", "n"),
    ]
    stream = Stream()
    stream.arrive([row | {"computation": "c\0"} for row in rows])
    stream.end()
    assert stream.totals["lost_causes"] == 1


def test_an_unordered_message_that_is_delivered_before_its_send_is_no_cycle():
    stream = Stream()
    stream.arrive([event("p", 1, "deliver", "m"), event("p", 2, "unordered", "m", to=["p"])])
    assert stream.totals["events"] == 0
    stream.end()
    assert (stream.totals["events"], stream.totals["quarantined"]) == (2, 0)


@pytest.mark.parametrize("large", [1, 2048])
def test_receives_without_deliveries_are_not_judged_in_silence(large, monkeypatch):
    monkeypatch.setattr(buckets, "LARGE", large)
    rows = [event("p", 1, "send", "m", to=["q"]), event("q", 1, "receive", "m")]
    stream = Stream()
    stream.arrive(rows)
    stream.end()
    ((told,),) = ([row["reason"] for row in stream.rows("quarantine")],)
    assert "has receives and no deliveries" in told and stream.totals["quarantined"] == 1
    stream = Stream(receives=True)
    stream.arrive(rows)
    stream.end()
    assert not stream.rows("quarantine") and stream.totals["deliveries_judged"] == 1
