"""Each pattern against what its name promises, over many draws."""

from collections import Counter
from random import Random

import pytest

from happened.sim.workload import PATTERNS, Workload, cast_of, parse_pattern

MEMBERS = [0, 1, 3, 4, 6, 7]  # 2 and 5 have left
ALL = ("unicast", "multicast", "broadcast", "fanout:3", "ring", "client-server:2", "service:2", "clusters:3")


def draws(text, sender, members=MEMBERS, count=2000):
    pattern, rng = parse_pattern(text), Random(7)
    return [pattern(rng, sender, members) for _ in range(count)]


@pytest.mark.parametrize("text", ALL)
@pytest.mark.parametrize("sender", MEMBERS)
def test_destinations_are_distinct_present_and_never_the_sender(text, sender):
    for to in draws(text, sender, count=200):
        assert to and len(to) == len(set(to))
        assert set(to) <= set(MEMBERS) - {sender}


@pytest.mark.parametrize("text", ALL)
def test_alone_there_is_nobody_to_send_to(text):
    assert parse_pattern(text)(Random(1), 4, [4]) == []


def test_multicast_sizes_are_uniform_with_mean_half_the_processes():
    sizes = Counter(len(to) for to in draws("multicast", 0, count=10_000))
    assert sorted(sizes) == [1, 2, 3, 4, 5]
    assert all(1700 < times < 2300 for times in sizes.values())


def test_unicast_reaches_everybody_alike():
    reached = Counter(d for to in draws("unicast", 3, count=10_000) for d in to)
    assert sorted(reached) == [0, 1, 4, 6, 7]
    assert all(1700 < times < 2300 for times in reached.values())


def test_fixed_sizes():
    assert {len(to) for to in draws("fanout:3", 0)} == {3}
    assert {len(to) for to in draws("fanout:9", 0)} == {5}
    assert {len(to) for to in draws("broadcast", 0)} == {5}


def test_the_ring_closes_over_the_present():
    assert [draws("ring", sender, count=1)[0] for sender in MEMBERS] == [[1], [3], [4], [6], [7], [0]]


def test_clients_ask_servers_and_servers_answer_clients():
    assert {d for to in draws("client-server:2", 6) for d in to} == {0, 1}
    assert {d for to in draws("client-server:2", 0) for d in to} == {3, 4, 6, 7}
    assert {d for to in draws("client-server:9", 0) for d in to} == {1, 3, 4, 6, 7}


def test_one_message_in_ten_leaves_its_cluster():
    reached = Counter(to[0] for to in draws("clusters:3", 3, count=10_000))
    assert 8800 < reached[4] < 9200
    assert set(reached) == {0, 1, 4, 6, 7}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("anycast", r"there are: unicast, multicast.*clusters\[:K\]"),
        ("fanout", "needs a positive whole number, as in 'fanout:3'"),
        ("fanout:0", "needs a positive whole number"),
        ("clusters:two", "needs a positive whole number"),
        ("clusters:", "needs a positive whole number"),
        ("ring:3", "takes no number"),
    ],
)
def test_what_is_not_understood_is_explained(text, reason):
    with pytest.raises(ValueError, match=reason):
        parse_pattern(text)


@pytest.mark.parametrize("interval", [0.0, -1.0, float("inf"), float("nan")])
def test_an_interval_is_a_positive_time(interval):
    with pytest.raises(ValueError, match="positive time"):
        Workload("unicast", interval)


def test_every_pattern_is_some_cast():
    casts = {text: cast_of(text) for text in ALL}
    assert casts["multicast"] == casts["fanout:3"] == "multicast"
    assert casts["broadcast"] == "broadcast"
    assert casts["ring"] == casts["clusters:3"] == "unicast"
    assert len(ALL) == len(PATTERNS)


def test_the_servers_of_a_service_send_as_much_as_its_clients():
    pace = parse_pattern("service:2").pace
    servers = sum(pace(process, MEMBERS) for process in MEMBERS[:2])
    assert servers == sum(pace(process, MEMBERS) for process in MEMBERS[2:]) == len(MEMBERS) - 2
    assert parse_pattern("service:9").pace(0, MEMBERS) == 1.0
