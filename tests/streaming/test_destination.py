"""The pure core of causal delivery in a stream, against a count of what had been delivered before what."""

import itertools
import pickle
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from happened.core.errors import CausalityError
from happened.ordering import able, create
from happened.ordering.capabilities import Listens
from happened.ordering.listening import Listener
from happened.streaming import paged, reached
from happened.streaming.destination import DEAD, DELIVERED, LATE, VIOLATED, Destination, Head
from happened.streaming.paged import Numbers, PagedMap
from happened.streaming.reached import Arrival


class Pages(dict):
    """A page store that counts."""

    reads = writes = 0

    def read(self, number):
        self.reads += 1
        return self[number]

    def write(self, number, data):
        self.writes += 1
        self[number] = data

    def remove(self, number):
        del self[number]


@pytest.fixture(autouse=True)
def small_pages(monkeypatch):
    monkeypatch.setattr(paged, "PAGE", 4)
    monkeypatch.setattr(reached, "GENERATION", 4)
    monkeypatch.setattr(paged, "DRAWER", 300)  # some pages


def in_batches(kind, batches, *, remember=10**6, now=0):
    """Outcomes of each batch, by a Destination that is made anew from the store for each."""
    store, head, outcomes = Pages(), Head(), []
    for batch in batches:
        destination = Destination(kind, store, head, remember=remember)
        outcomes.append(destination.arrive([(arrival, str(arrival.name)) for arrival in batch], now))
        head = destination.flush()
    return outcomes, head, store


def cut(items, ends):
    places = [0, *sorted(end % (len(items) + 1) for end in ends), len(items)]
    return [items[a:b] for a, b in itertools.pairwise(places)]


@st.composite
def listed(draw):
    """Messages with lists of causes, shuffled, some twice, in random batches."""
    n = draw(st.integers(1, 24))
    messages = []
    for k in range(n):
        causes = draw(st.lists(st.integers(0, k - 1), max_size=3, unique=True)) if k else []
        messages.append(Arrival(f"m{k}", tuple(f"m{c}" for c in causes), ()))
    arriving = messages + draw(st.lists(st.sampled_from(messages), max_size=8))
    return messages, draw(st.permutations(arriving)), draw(st.lists(st.integers(0, 40), max_size=6))


@given(listed())
@settings(max_examples=300, deadline=None)
def test_whatever_the_batches_every_message_comes_once_after_its_causes_in_the_order_of_one_batch(case):
    messages, arriving, ends = case
    outcomes, head, _ = in_batches("ids", cut(arriving, ends))
    order = [outcome.row for outcome in itertools.chain(*outcomes)]
    assert sorted(order) == sorted(message.name for message in messages)
    for message in messages:
        assert all(order.index(want) < order.index(message.name) for want in message.wants)
    assert [o.number for o in itertools.chain(*outcomes)] == list(range(1, len(order) + 1))
    (whole,), _, _ = in_batches("ids", [arriving])
    assert order == [outcome.row for outcome in whole]
    assert head.held == 0 and head.delivered == len(messages)


def history(protocol, seed, n=4, steps=60):
    """What the others send to process n - 1, which sends nothing, and what had happened before each send."""
    dice = random.Random(seed)
    machines = [create(protocol, me, n) for me in range(n - 1)]
    everybody = "multicast" not in machines[0].facts.assumes.casts
    flying, arriving = [], []
    past, known = {}, [set() for _ in machines]  # the oracle: what was sent or delivered before a send

    def perform(me, effects):
        for effect in effects:
            if not hasattr(effect, "to"):
                known[me] |= {(effect.sender, effect.clock)} | past[effect.sender, effect.clock]
            elif effect.to == n - 1:
                arriving.append(effect.message)
            else:
                flying.append((effect.to, effect.message))

    for _ in range(steps):
        if dice.random() < 0.4 or not flying:
            me = dice.randrange(n - 1)
            others = [p for p in range(n) if p != me]
            to = others if everybody else dice.sample(others, dice.randint(1, n - 1))
            clock, effects = machines[me].multicast(to, b"")
            past[me, clock] = frozenset(known[me])
            known[me].add((me, clock))
            perform(me, effects)
        else:
            to, message = flying.pop(dice.randrange(len(flying)))
            perform(to, machines[to].receive(message))
    return arriving, past


@pytest.mark.parametrize("protocol", able(Listens))
def test_frames_of_every_protocol_that_listens_are_delivered_after_their_causal_past(protocol, seed):
    dice = random.Random(seed)
    weak = "chains" in create(protocol, 0, 2).facts.description  # promises less than causal order
    waited = 0
    for run in range(20):
        messages, past = history(protocol, dice.random())
        listener = Listener(protocol, 3, 4)
        sent = [Arrival(*listener.hear(message)) for message in messages]
        arrivals = sent + dice.sample(sent, len(sent) // 3)
        dice.shuffle(arrivals)
        outcomes, head, _ = in_batches("clocks", cut(arrivals, [dice.randrange(30) for _ in range(3)]))
        order = [outcome.row for outcome in itertools.chain(*outcomes)]
        assert sorted(order) == sorted(str(arrival.name) for arrival in sent)
        assert head.held == 0
        waited += order != [str(a.name) for a in dict.fromkeys(arrivals)]
        for sender, clock in (arrival.name for arrival in sent if not weak):
            before = {str(cause) for cause in past[sender, clock]} & set(order)
            assert before <= set(order[: order.index(str((sender, clock)))]), (run, sender, clock)
    assert waited


def patient(kind, arrivals):
    destination = Destination(kind, Pages(), remember=100)
    out = [destination.arrive([(arrival, str(arrival.name))], now) for now, arrival in arrivals]
    return destination, list(itertools.chain(*out))


def short(outcomes):
    return [(outcome.row, outcome.status, outcome.cause) for outcome in outcomes]


def test_a_message_whose_cause_never_came_is_released_in_time_and_what_it_held_up_follows():
    m = {name: Arrival(name, after, ()) for name, after in {"b": ("a",), "c": ("b",), "d": ("c",)}.items()}
    destination, out = patient("ids", [(0, m["d"]), (5, m["c"]), (10, m["b"])])
    assert out == []
    assert destination.expire(99, 100, release=True) == []
    # d and c are due; what they wait for is here and waits itself: only b lacks something that is not here.
    assert destination.expire(105, 100, release=True) == []
    assert short(destination.expire(110, 100, release=True)) == [
        ("b", VIOLATED, "a"),
        ("c", DELIVERED, None),
        ("d", DELIVERED, None),
    ]
    late = destination.arrive([(Arrival("a", (), ()), "a")], 200)
    assert short(late) == [("a", LATE, None)]
    assert destination.arrive([(Arrival("a", (), ()), "a")], 201) == []
    assert destination.held == 0 and destination.next_timer(201, 100) == 0


def test_the_timer_of_what_is_due_and_still_waits_is_in_the_future_and_not_in_every_batch():
    a, b = Arrival("a", ("b",), ()), Arrival("b", ("x",), ())
    destination, _ = patient("ids", [(0, a), (1000, b)])
    assert destination.next_timer(1000, 800) == 1100
    assert destination.expire(1100, 800, release=True) == []  # b is here and not due
    assert destination.next_timer(1100, 800) == 1200
    assert destination.next_timer(500, 800) == 800


@pytest.mark.parametrize("kind", ["ids", "clocks"])
def test_skipped_causes_are_remembered_up_to_a_number(kind):
    store, head = Pages(), Head()
    for k in range(40):
        name, cause = (f"m{k}", f"c{k}") if kind == "ids" else ((k, 2), (k, 1))
        destination = Destination(kind, store, head, remember=10)
        destination.arrive([(Arrival(name, (cause,), (name,)), "m")], 0)
        assert len(destination.expire(100, 100, release=True)) == 1
        head = destination.flush()
    late = [(Arrival(f"c{k}" if kind == "ids" else (k, 1), (), ((k, 1),)), "c") for k in range(40)]
    out = Destination(kind, store, head, remember=10).arrive(late, 200)
    assert sum(outcome.status == LATE for outcome in out) == 10


def test_dead_letters_take_with_them_what_waits_for_them():
    m = {name: Arrival(name, after, ()) for name, after in {"b": ("a",), "c": ("b",), "x": ("y",)}.items()}
    destination, _ = patient("ids", [(0, m["b"]), (90, m["c"]), (95, m["x"])])
    assert short(destination.expire(100, 100, release=False)) == [("b", DEAD, "a"), ("c", DEAD, "b")]
    assert destination.held == 1 and destination.oldest == 95


def test_two_messages_that_wait_for_each_other_do_not_wait_for_ever():
    a, b = Arrival("a", ("b",), ()), Arrival("b", ("a",), ())
    destination, _ = patient("ids", [(0, a), (1, b)])
    assert destination.expire(150, 100, release=True) == []
    assert short(destination.expire(200, 100, release=True)) == [("a", VIOLATED, "b"), ("b", LATE, None)]


@pytest.mark.parametrize("release, status", [(True, VIOLATED), (False, DEAD)])
def test_of_what_is_given_up_together_causes_come_first(release, status):
    """b is a cause of a, and both are here; x never comes."""
    a, b, c = Arrival("a", ("x", "b"), ()), Arrival("b", ("x",), ()), Arrival("c", ("a", "b"), ())
    destination, _ = patient("ids", [(0, c), (0, a), (0, b)])
    out = short(destination.expire(100, 100, release=release))
    assert out[:2] == [("b", status, "x"), ("a", status, "x")]
    assert out[2:] == [("c", DELIVERED, None) if release else ("c", DEAD, "a")]


def test_of_frames_that_are_given_up_together_causes_come_first():
    third, second = Arrival((0, 2), ((0, 1), (1, 1)), ((0, 2),)), Arrival((1, 1), ((0, 1),), ((1, 1),))
    destination, _ = patient("clocks", [(0, third), (0, second)])
    assert short(destination.expire(100, 100, release=True)) == [
        ("(1, 1)", VIOLATED, (0, 1)),
        ("(0, 2)", VIOLATED, (0, 1)),
    ]


def test_what_lacks_something_waits_also_for_a_cause_that_is_here_and_for_twice_as_long_at_most():
    a, b = Arrival("a", ("x", "b"), ()), Arrival("b", ("y",), ())
    destination, _ = patient("ids", [(0, a), (50, b)])
    assert destination.expire(100, 100, release=True) == []
    assert short(destination.expire(150, 100, release=True)) == [("b", VIOLATED, "y"), ("a", VIOLATED, "x")]
    destination, _ = patient("ids", [(0, a), (150, b)])
    assert destination.expire(199, 100, release=True) == []
    assert short(destination.expire(200, 100, release=True)) == [("a", VIOLATED, "x")]
    assert short(destination.expire(250, 100, release=True)) == [("b", VIOLATED, "y")]


def test_what_became_deliverable_by_giving_up_its_cause_is_no_violation_and_what_is_behind_it_goes_too():
    """c is due, and waits for b, which is not, and which waits for a; z comes from nowhere."""
    wants = {"c": ("z", "b"), "b": ("a",), "a": ("x",)}
    since = {"c": 0, "b": 50, "a": 0}
    destination, _ = patient("ids", [(since[name], Arrival(name, wants[name], ())) for name in wants])
    assert short(destination.expire(100, 100, release=True)) == [
        ("a", VIOLATED, "x"),
        ("b", DELIVERED, None),
        ("c", VIOLATED, "z"),
    ]


@given(listed(), st.sampled_from(["ids", "clocks"]), st.booleans(), st.data())
@settings(max_examples=200, deadline=None)
def test_what_is_given_up_comes_after_those_of_its_causes_that_are_here(case, kind, release, data):
    """Clocks: every message has a sender of its own. What is dead takes its followers with it."""
    _, arriving, _ = case
    if kind == "clocks":
        arriving = [
            Arrival((int(m.name[1:]), 1), tuple((int(w[1:]), 1) for w in m.wants), ((int(m.name[1:]), 1),))
            for m in arriving
        ]
    lost = data.draw(st.sets(st.sampled_from([m.name for m in arriving]), max_size=4))
    arriving = [m for m in arriving if m.name not in lost]
    destination = Destination(kind, Pages(), remember=10**6)
    out = [o for m in arriving for o in destination.arrive([(m, m.name)], 0)]
    out += destination.expire(10, 10, release=release)
    order = [outcome.row for outcome in out]
    assert sorted(order) == sorted({m.name for m in arriving}) and destination.held == 0
    for message in arriving if release else ():
        assert all(order.index(want) < order.index(message.name) for want in set(message.wants) - lost)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ids", "clocks"])
def test_a_hundred_thousand_that_each_lack_something_and_wait_for_one_another_are_given_up_in_a_minute(
    monkeypatch, kind
):
    monkeypatch.setattr(paged, "PAGE", 512)
    monkeypatch.setattr(reached, "GENERATION", 8192)
    count = 100_000

    def name(lane, k):
        return (lane, k) if kind == "clocks" else f"{lane}-{count - k:07}"

    chain = [
        Arrival(name(0, k), (name(1, k), name(0, k - 1)), (name(0, k),)[: kind == "clocks"])
        for k in range(2, count + 2)
    ]
    chain.reverse()
    destination = Destination(kind, Pages(), remember=65536)
    destination.arrive([(arrival, arrival.name) for arrival in chain], 0)
    began = time.monotonic()
    out = destination.expire(10, 10, release=True)
    assert time.monotonic() - began < 60
    assert [outcome.row for outcome in out] == [arrival.name for arrival in reversed(chain)]


def test_a_sender_that_goes_on_without_a_lost_message_may_still_bring_it_late_and_once():
    def m(clock, *wants):
        return Arrival((0, clock), wants, ((0, clock),))

    third, second, first = m(9, (0, 5)), m(5, (0, 2)), m(2)
    destination, _ = patient("clocks", [(0, third)])
    assert short(destination.expire(100, 100, release=True)) == [("(0, 9)", VIOLATED, (0, 5))]
    # Even the one that only the lost one knew of is not taken for a duplicate.
    out = destination.arrive([(each, str(each.name)) for each in (second, first, first, second, third)], 101)
    assert short(out) == [("(0, 5)", LATE, None), ("(0, 2)", LATE, None)]


def test_ids_are_forgotten_as_stated_and_no_sooner():
    messages = [Arrival(f"m{k}", (), ()) for k in range(100)]
    _, head, store = in_batches("ids", cut(messages, range(0, 100, 7)), remember=32)
    assert len(store) <= 32 // 4 + 1 and len(head.directories) < 500
    destination = Destination("ids", store, head, remember=32)
    for arrival in messages[-32:]:
        assert destination.arrive([(arrival, "")], 0) == []
    assert short(destination.arrive([(messages[0], "m0")], 0)) == [("m0", DELIVERED, None)]


def test_a_batch_touches_the_pages_it_needs_and_no_others(monkeypatch):
    monkeypatch.setattr(paged, "DRAWER", 0)
    held = [Arrival(f"h{k:04}", (f"c{k:04}",), ()) for k in range(400)]
    _, head, store = in_batches("ids", [held])
    assert head.held == 400 and len(store) >= 100
    store.reads = store.writes = 0
    destination = Destination("ids", store, head, remember=100)
    out = destination.arrive([(Arrival("c0200", (), ()), "c")], 0)
    head = destination.flush()
    assert [outcome.row for outcome in out] == ["c", "h0200"] and head.held == 399
    assert store.reads <= 3 and store.writes <= 3


def test_a_destination_of_which_little_is_known_has_no_pages_but_in_its_head(monkeypatch):
    monkeypatch.setattr(paged, "DRAWER", 2000)
    chain = [Arrival(f"m{k}", (f"m{k - 1}",), ()) for k in range(30, 0, -1)]
    outcomes, head, store = in_batches("ids", [chain[:10], chain[10:], [Arrival("m0", (), ())]])
    assert [len(out) for out in outcomes] == [0, 0, 31] and store.writes == store.reads == 0
    assert len(head.directories) < 2200


@given(
    st.lists(
        st.tuples(st.sampled_from(["new", "again", "remove", "flush"]), st.integers(0, 200)), max_size=60
    )
)
@settings(max_examples=200, deadline=None)
def test_a_page_is_in_the_drawer_or_in_the_store_and_never_in_both(steps):
    store, numbers, model, kept = Pages(), Numbers(), {}, {}
    drawer = paged.Drawer(store, numbers, kept)
    for step, (what, size) in enumerate(steps):
        number = sorted(model)[size % len(model)] if model else None
        if what == "new":
            number = numbers.next()
        if what in ("new", "again") and number is not None:
            model[number] = bytes([step]) * size
            drawer.write(number, model[number])
        elif what == "remove" and number is not None:
            drawer.remove(number)
            del model[number]
        elif what == "flush":
            kept = drawer.flush()
            assert sum(map(len, kept.values())) <= paged.DRAWER
            assert not kept.keys() & store.keys() and kept.keys() | store.keys() == model.keys()
            drawer = paged.Drawer(store, numbers, kept)
        assert {number: drawer.read(number) for number in model} == model


def test_a_state_is_read_and_one_of_another_version_refused_by_name():
    store = Pages({1: b"".join(reached.digest(f"m{k}") for k in range(3))})
    waiting = ("m9", "m10"), (7, ("m10", ("m9",), ()), "m10")
    store[2] = pickle.dumps([waiting])
    head = Head(3, 1, 7, 0, pickle.dumps((1, 2, ([(1, 3)], [], 0), [(("m9", "m10"), 2)], {})))
    destination = Destination("ids", store, head, remember=32)
    assert destination.arrive([(Arrival("m1", (), ()), "again")], 8) == []
    out = destination.arrive([(Arrival("m9", ("m2",), ()), "m9")], 9)
    assert short(out) == [("m9", DELIVERED, None), ("m10", DELIVERED, None)] and out[-1].number == 5
    head = destination.flush()
    again = Destination("ids", store, head, remember=32)
    assert again.arrive([(Arrival(f"m{k}", (), ()), "again") for k in (0, 1, 2, 9, 10)], 10) == []
    newer = head._replace(directories=pickle.dumps((2, *pickle.loads(head.directories)[1:])))
    with pytest.raises(
        CausalityError, match="holds messages in format version 2, and this happened reads 1: resume with"
    ):
        Destination("ids", store, newer, remember=32)


STEPS = st.tuples(st.sampled_from(["put", "pop", "take", "flush"]), st.integers(0, 30), st.integers(0, 30))


@given(st.lists(STEPS))
@settings(max_examples=200, deadline=None)
def test_a_paged_map_is_a_sorted_dict(steps):
    store, numbers, model = Pages(), Numbers(), {}
    pages = PagedMap(store, numbers, [])
    for what, a, b in steps:
        if what == "put":
            pages.put((a,), b)
            model[a,] = b
        elif what == "pop" and (a,) in model:
            pages.pop((a,))
            del model[a,]
        elif what == "take":
            taken = sorted((k, v) for k, v in model.items() if (a,) <= k < (b,))
            assert pages.pop_between((a,), (b,)) == taken
            model = {k: v for k, v in model.items() if not (a,) <= k < (b,)}
        elif what == "flush":
            pages = PagedMap(store, numbers, pages.flush())
        assert ((a,) in pages) == ((a,) in model) and pages.get((b,)) == model.get((b,))
        assert pages.first_from((a,)) == min(((k, v) for k, v in model.items() if k >= (a,)), default=None)
    assert list(pages.items()) == sorted(model.items())
    directory = pages.flush()
    assert set(store) == {number for _, number in directory}


def test_of_ten_thousand_senders_one_is_missed_and_the_others_are_not_held_up():
    sent = [Arrival((s, 1), (), ((s, 1),)) for s in range(10_000)]
    replies = [Arrival((s, 2), ((s, 1), ((s + 1) % 10_000, 1)), ((s, 2),)) for s in range(10_000)]
    arriving = [each for each in sent if each.name != (4321, 1)] + replies
    random.Random(1).shuffle(arriving)
    outcomes, head, store = in_batches("clocks", [arriving[:7000], arriving[7000:]])
    assert sum(map(len, outcomes)) == 19_997 and head.held == 2
    destination = Destination("clocks", store, head, remember=100)
    assert sorted(missing for _, missing in destination.pending()) == [[(4321, 1)], [(4321, 1)]]
    released = destination.arrive([(Arrival((4321, 1), (), ((4321, 1),)), "")], 0)
    assert len(released) == 3


@pytest.mark.slow
def test_a_million_held_messages_wait_in_pages_and_go_in_order(monkeypatch):
    monkeypatch.setattr(paged, "PAGE", 512)
    monkeypatch.setattr(reached, "GENERATION", 8192)
    million = 1_000_000
    chain = [Arrival((0, k), ((0, k - 1),), ((0, k),)) for k in range(2, million + 2)]
    random.Random(1).shuffle(chain)
    _, head, store = in_batches("clocks", cut(chain, range(0, million, million // 4)))
    assert head.held == million and million / 512 <= len(store) < 4 * million / 512
    assert len(head.directories) < 500_000
    store.reads = store.writes = 0
    destination = Destination("clocks", store, head, remember=100)
    late = Arrival((0, million + 2), ((0, million + 1),), ((0, million + 2),))
    assert destination.arrive([(late, "")], 0) == []
    head = destination.flush()
    assert store.reads + store.writes < 5  # one more costs a page, not all
    destination = Destination("clocks", store, head, remember=100)
    out = destination.arrive([(Arrival((0, 1), (), ((0, 1),)), "(0, 1)")], 0)
    assert [outcome.row for outcome in out[1:-1]] == [f"(0, {k})" for k in range(2, million + 2)]
    assert destination.flush().held == 0


@pytest.mark.parametrize("release, status", [(True, VIOLATED), (False, DEAD)])
def test_a_message_is_given_up_although_a_delivered_cause_of_it_was_forgotten(release, status):
    """It is parked under the other cause, and that one never comes."""
    pages, head = Pages(), Head()
    for now, arrivals in enumerate([[("a", ()), ("m", ("a", "b"))], [(f"x{n}", ()) for n in range(50)]]):
        destination = Destination("ids", pages, head, remember=8)
        destination.arrive([(Arrival(name, wants, ()), (name,)) for name, wants in arrivals], now)
        head = destination.flush()
    destination = Destination("ids", pages, head, remember=8)
    assert [(o.row, o.status) for o in destination.expire(10_000, 1000, release=release)] == [
        (("m",), status)
    ]
    assert (destination.held, list(destination.pending())) == (0, [])


def test_two_copies_of_a_message_of_which_one_came_after_a_cause_was_forgotten_are_delivered_once():
    pages, head = Pages(), Head()
    copies = [("m", ("a", "b"))]
    for now, arrivals in enumerate([[("a", ()), *copies], [(f"x{n}", ()) for n in range(50)], copies]):
        destination = Destination("ids", pages, head, remember=8)
        destination.arrive([(Arrival(name, wants, ()), (name,)) for name, wants in arrivals], now)
        head = destination.flush()
    destination = Destination("ids", pages, head, remember=8)
    assert [o.row for o in destination.expire(10_000, 1000, release=True)] == [("m",)]
    assert (destination.held, list(destination.pending())) == (0, [])


def test_what_a_message_that_was_given_up_had_waited_for_is_late_also_where_nobody_named_it():
    """(1, 7) is after (2, 3), by way of (0, 6), which never comes; (2, 8) is after both, and names (1, 7)."""
    destination = Destination("clocks", Pages(), remember=100)
    arrivals = [Arrival((1, 7), ((0, 6),), ((1, 7),)), Arrival((2, 8), ((1, 7),), ((2, 8),))]
    assert not destination.arrive([(arrival, arrival.name) for arrival in arrivals], 0)
    given_up = destination.expire(10, 10, release=True)
    assert [(o.row, o.status) for o in given_up] == [((1, 7), VIOLATED), ((2, 8), DELIVERED)]
    late = Arrival((2, 3), (), ((2, 3),))
    outcomes = destination.arrive([(late, late.name), (late, late.name)], 20)
    assert [(o.row, o.number, o.status) for o in outcomes] == [((2, 3), 3, LATE)]
    assert destination.duplicates == 1


@pytest.mark.parametrize("protocol", able(Listens))
def test_whatever_is_given_up_all_that_arrives_is_delivered_once(protocol, seed):
    dice = random.Random(seed)
    statuses = set()
    for run in range(20):
        messages, _ = history(protocol, dice.random())
        listener = Listener(protocol, 3, 4)
        sent = [Arrival(*listener.hear(message)) for message in messages]
        arriving = dice.sample(sent, len(sent) * 4 // 5)
        arriving += dice.sample(arriving, len(arriving) // 4)
        destination, outcomes = Destination("clocks", Pages(), remember=10**6), []
        for now, batch in enumerate(cut(arriving, [dice.randrange(60) for _ in range(4)])):
            outcomes += destination.arrive([(arrival, arrival.name) for arrival in batch], now)
            outcomes += destination.expire(now, 1, release=True)
        outcomes += destination.expire(10, 1, release=True)
        assert sorted(o.row for o in outcomes) == sorted({arrival.name for arrival in arriving}), run
        assert destination.held == 0
        statuses |= {outcome.status for outcome in outcomes}
    assert statuses == {DELIVERED, VIOLATED, LATE}


def test_a_late_message_is_delivered_once_also_when_one_of_two_skips_over_it_is_forgotten():
    def given_up(sender, *wants):
        arrival = Arrival((sender, 1), wants, ((sender, 1),))
        destination.arrive([(arrival, arrival.name)], 0)
        assert len(destination.expire(10, 10, release=True)) == 1

    destination = Destination("clocks", Pages(), remember=2)
    late = Arrival((0, 3), (), ((0, 3),))
    given_up(1, (0, 5))
    given_up(2, (0, 9))
    assert [o.status for o in destination.arrive([(late, "late")], 20)] == [LATE]
    given_up(3, (4, 1))  # a third, and the first is forgotten
    assert destination.arrive([(late, "late")], 20) == []
