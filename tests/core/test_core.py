"""The vocabulary: sets, lanes, clocks, rosters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from happened.core.clocks import Causality, VectorClock
from happened.core.destinations import pack, unpack
from happened.core.errors import LocalProtocolError, TraceFormatError
from happened.core.lanes import CLOCK_LIMIT, Lanes
from happened.core.roster import Roster

CLOCKS = st.dictionaries(st.integers(0, 3), st.integers(0, 3))


@given(st.sets(st.integers(0, 300)))
def test_a_destination_set_survives_packing(members):
    assert list(unpack(pack(members))) == sorted(members)
    assert pack(members).bit_count() == len(members)


@pytest.mark.long
@given(st.data(), st.sampled_from([1, 2, 10, 63, 64, 65, 130]))
def test_lanes_compare_and_select_like_lists(data, n):
    values = st.lists(st.one_of(st.integers(0, 3), st.integers(0, CLOCK_LIMIT - 1)), min_size=n, max_size=n)
    lanes, a, b = Lanes(n), data.draw(values), data.draw(values)
    packed_a, packed_b = lanes.pack(a), lanes.pack(b)
    assert list(lanes.unpack(packed_a)) == a
    chosen = lanes.spread(lanes.at_least(packed_a, packed_b))
    smaller_is_zero = [x if x >= y else 0 for x, y in zip(a, b, strict=True)]
    assert list(lanes.unpack(packed_a & chosen)) == smaller_is_zero
    lane = data.draw(st.integers(0, n - 1))
    assert lanes.get(packed_a, lane) == a[lane]
    assert list(lanes.unpack(lanes.put(packed_a, lane, 7))) == [*a[:lane], 7, *a[lane + 1 :]]
    few = data.draw(st.dictionaries(st.integers(0, n - 1), st.integers(0, CLOCK_LIMIT - 1), max_size=12))
    assert list(lanes.unpack(lanes.pack_some(few))) == [few.get(lane, 0) for lane in range(n)]


@pytest.mark.long
@given(st.data(), st.sampled_from([1, 2, 10, 63, 64, 65, 130]))
def test_lanes_join_and_subtract_like_lists(data, n):
    values = st.lists(st.one_of(st.integers(0, 3), st.integers(0, CLOCK_LIMIT - 1)), min_size=n, max_size=n)
    lanes, a, b = Lanes(n), data.draw(values), data.draw(values)
    packed_a, packed_b = lanes.pack(a), lanes.pack(b)
    assert list(lanes.unpack(lanes.maximum(packed_a, packed_b))) == [
        max(x, y) for x, y in zip(a, b, strict=True)
    ]
    ahead = [x if x > y else 0 for x, y in zip(a, b, strict=True)]
    assert list(lanes.unpack(lanes.newer(packed_a, packed_b))) == ahead
    assert lanes.beyond(packed_a, packed_b) == max((i for i, x in enumerate(ahead) if x), default=None)
    assert list(lanes.items(packed_a)) == [(i, x) for i, x in enumerate(a) if x]
    assert lanes.occupied(packed_a) == n - a.count(0)
    assert list(Lanes(n + 1).unpack(lanes.widened(packed_a, n + 1))) == [*a, 0]


@given(CLOCKS, CLOCKS)
def test_the_one_comparator_follows_the_definition(a, b):
    def at_most(x, y):
        return all(x.get(p, 0) <= y.get(p, 0) for p in range(4))

    expected = {
        (True, True): Causality.EQUAL,
        (True, False): Causality.BEFORE,
        (False, True): Causality.AFTER,
        (False, False): Causality.CONCURRENT,
    }[at_most(a, b), at_most(b, a)]
    assert VectorClock(a).compare(VectorClock(b)) is expected
    joined = VectorClock(a).join(VectorClock(b))
    assert joined.covers(VectorClock(a))
    assert joined.covers(VectorClock(b))


def test_absent_and_zero_are_one_clock():
    assert VectorClock({1: 0, 2: 5}) == VectorClock({2: 5})
    assert hash(VectorClock({1: 0})) == hash(VectorClock())
    assert VectorClock({2: 5})[7] == 0
    assert VectorClock().tick(3) == VectorClock({3: 1})
    with pytest.raises(ValueError, match="negative"):
        VectorClock({1: -1})


def test_a_roster_grows_and_never_reuses_an_index():
    roster = Roster(["alice", "bob"])
    assert roster.join("carol") == 2
    assert roster.leave("bob") == 1
    assert list(roster) == ["alice", "carol"]
    assert len(roster) == 3
    assert roster.name(1) == "bob"
    assert roster.join("bob") == 3
    with pytest.raises(LocalProtocolError, match="already"):
        roster.join("alice")
    with pytest.raises(LocalProtocolError, match=r"'dave'.*present: alice"):
        roster.index("dave")
    with pytest.raises(LocalProtocolError):
        roster.name(9)


def test_a_trace_error_says_where():
    error = TraceFormatError("not a number", file="x.jsonl", line=3, field="seq")
    assert str(error) == "x.jsonl:3: field 'seq': not a number"
