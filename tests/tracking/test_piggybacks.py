"""Piggybacks on the wire, snapshots, and everything a tracker must refuse."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import effort
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.core.lanes import lanes
from happened.tracking import create, protocols
from happened.tracking.piggyback import decode
from tracking.computations import Computation

TRACKERS = [name for name in protocols() if name != "direct"]


def busy(name, n, seed, steps=300):
    fifo = protocols()[name].fifo_links
    return Computation([create(name, me, n) for me in range(n)]).run(
        random.Random(seed), steps, fifo=fifo, relevant=0.15
    )


@pytest.mark.parametrize("n", [2, 3, 17, 64])
@pytest.mark.parametrize("name", TRACKERS)
def test_a_piggyback_comes_back_as_it_went(name, n, seed):
    made = busy(name, n, seed, steps=120)
    for piggyback in made.sent:
        data = piggyback.encode()
        assert made.trackers[0].decode(data) == piggyback._replace(forced=None)
        assert (piggyback.bits + 7) // 8 == len(data)


@pytest.mark.parametrize("name", [name for name in TRACKERS if "prime" not in name and name != "matrix"])
def test_no_message_costs_more_than_a_full_vector_plus_n_bits(name, seed):
    n = 20
    made = busy(name, n, seed)
    for piggyback in made.sent:
        highest = max((value for _, value in piggyback.items()), default=0)
        full = 9 + n * highest.bit_length()
        assert piggyback.bits <= full + n


def test_a_few_entries_of_many_are_listed(seed):
    made = busy("p2", 50, seed)
    assert max(piggyback.entries for piggyback in made.sent) == 1
    assert max(piggyback.bits for piggyback in made.sent) < 9 + 50


@pytest.mark.long
@pytest.mark.sampled
@settings(max_examples=effort.samples(1500))
@given(st.binary(max_size=60), st.integers(1, 80), st.booleans())
def test_arbitrary_bytes_are_refused_or_are_a_piggyback(data, n, columns):
    try:
        piggyback = decode(data, lanes(n), columns=columns)
    except RemoteProtocolError:
        return
    assert decode(piggyback.encode(), lanes(n), columns=columns) == piggyback


GENUINE = {
    name: [piggyback.encode() for piggyback in busy(name, 6, 3).sent if piggyback.entries][-20:]
    for name in TRACKERS
}


@pytest.mark.long
@pytest.mark.sampled
@settings(max_examples=effort.samples(1500))
@given(st.sampled_from(TRACKERS), st.data())
def test_a_damaged_piggyback_is_refused_with_nothing_changed_or_survived(name, data):
    damaged = bytearray(data.draw(st.sampled_from(GENUINE[name])))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    tracker = create(name, 0, 6)
    tracker.relevant()
    before = tracker.snapshot()
    try:
        tracker.on_receive(1, tracker.decode(bytes(damaged)))
    except RemoteProtocolError:
        assert tracker.snapshot() == before
        return
    tracker.relevant()
    tracker.on_send(2)
    tracker.restore(tracker.snapshot())


@pytest.mark.parametrize("name", [name for name in TRACKERS if name != "lamport"])
def test_news_of_our_own_future_is_refused(name):
    """1 has heard of two events of 0; a 0 that has produced none must not believe it."""
    ahead, behind, gossip = create(name, 0, 3), create(name, 0, 3), create(name, 1, 3)
    ahead.relevant()
    ahead.relevant()
    gossip.on_receive(0, ahead.on_send(1))
    forged = gossip.on_send(2)
    before = behind.snapshot()
    with pytest.raises(RemoteProtocolError, match="never produced"):
        behind.on_receive(1, forged)
    assert behind.snapshot() == before


def test_columns_that_say_their_sender_lacks_its_own_values_are_refused():
    tracker, peer = create("p1-prime", 0, 3), create("p1-prime", 1, 3)
    peer.relevant()
    genuine = peer.on_send(0)
    with pytest.raises(RemoteProtocolError, match="lacks its own"):
        tracker.on_receive(2, genuine._replace(columns=genuine.columns | genuine.present << 2))


@pytest.mark.long
@pytest.mark.parametrize("name", protocols())
def test_a_snapshot_restores_everything(name, seed):
    dice = random.Random(seed)
    fifo = protocols()[name].fifo_links
    made = Computation([create(name, me, 4) for me in range(4)])
    for _ in range(40):
        try:
            made.run(dice, 5, fifo=fifo)
        except LocalProtocolError:  # direct: an event is due before sending
            made.relevant(dice.randrange(4))
        fresh = [create(name, me, 4) for me in range(4)]
        for tracker, twin in zip(made.trackers, fresh, strict=True):
            twin.restore(tracker.snapshot())
            assert twin.snapshot() == tracker.snapshot()
        made.trackers = fresh
    if "vector" in protocols()[name].tells:
        assert {event: stamp.vector() for event, stamp in made.stamps.items()} == made.vectors()


@pytest.mark.parametrize("name", protocols())
def test_a_bad_snapshot_is_refused_and_changes_nothing(name):
    tracker = create(name, 0, 3)
    tracker.relevant()
    good = tracker.snapshot()
    state = json.loads(good)
    bad = [b"", b"[]", b"null", b"\xff", b"[" * 100_000, good[:-1], create(name, 1, 3).snapshot()]
    bad += [create(name, 0, 4).snapshot(), create("p1" if name != "p1" else "p3", 0, 3).snapshot()]
    for key, value in state.items():
        wrong = [None, "x", -1, [value]]
        if isinstance(value, list):
            wrong += [value[:-1], [*value[:-1], -1], [*value[:-1], 1 << 63], [*value[:-1], None]]
        if key != "untold":  # any JSON value says yes or no
            bad += [json.dumps(state | {key: other}).encode() for other in wrong]
    for data in bad:
        with pytest.raises(LocalProtocolError, match="not a snapshot"):
            tracker.restore(data)
        assert tracker.snapshot() == good


@pytest.mark.parametrize("name", protocols())
def test_callers_who_break_the_rules_are_told(name):
    with pytest.raises(LocalProtocolError, match="no process 3"):
        create(name, 3, 3)
    tracker = create(name, 0, 3)
    for nobody in (0, 3, -1):
        with pytest.raises(LocalProtocolError, match="no messages"):
            tracker.on_send(nobody)
        with pytest.raises(LocalProtocolError, match="no messages"):
            tracker.on_receive(nobody, create(name, 1, 3).on_send(0))
    with pytest.raises(RemoteProtocolError, match="not a"):
        tracker.on_receive(1, "news")
    with pytest.raises(RemoteProtocolError, match="not a"):
        tracker.on_receive(1, create(name, 1, 4).on_send(0))
    with pytest.raises(LocalProtocolError, match="options"):
        create(name, 0, 3, colour="blue")


def test_unknown_names_and_senseless_options_are_refused():
    with pytest.raises(LocalProtocolError, match="no tracking protocol is called 'hope'"):
        create("hope", 0, 2)
    for bad in ("p2:x", "p2:0", "p2:"):
        with pytest.raises(LocalProtocolError):
            create(bad, 0, 2)
    with pytest.raises(LocalProtocolError, match="FIFO"):
        create("p1", 0, 2, fifo=True, reset_once=True)


def test_direct_refuses_to_send_what_no_event_of_its_own_tells():
    zero, one = create("direct", 0, 3), create("direct", 1, 3)
    zero.relevant()
    one.on_receive(0, zero.on_send(1))
    with pytest.raises(LocalProtocolError, match="produce a relevant event"):
        one.on_send(2)
    one.relevant()
    assert one.on_send(2).items() == [(1, 1)]
