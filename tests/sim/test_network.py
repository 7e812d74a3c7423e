"""Delays, duplicates, FIFO links and partitions, each seen from the arrivals they give."""

import math
from random import Random
from statistics import mean, median

import pytest

from happened.sim.network import (
    SECOND,
    Delay,
    Network,
    Partition,
    SimulatedLinks,
    parse_delay,
    parse_partition,
)


def links(**options):
    return SimulatedLinks(Network(**options), Random(1), Random(2))


def seconds(text, count=20_000):
    rng, delay = Random(3), parse_delay(text)
    return [delay.draw(rng) / SECOND for _ in range(count)]


def test_the_distributions_have_their_parameters():
    assert mean(seconds("exp:0.5")) == pytest.approx(0.5, rel=0.05)
    assert set(seconds("constant:0.25", 10)) == {0.25}
    uniform = seconds("uniform:1:3")
    assert 1 <= min(uniform) < 1.01 and 2.99 < max(uniform) <= 3
    lognormal = seconds("lognormal:0.1:0.5")
    assert median(lognormal) == pytest.approx(0.1, rel=0.05)
    assert mean(lognormal) == pytest.approx(0.1 * math.exp(0.125), rel=0.05)


@pytest.mark.parametrize("text", ["exp:0.1", "uniform:0:2", "constant:0", "lognormal:0.1:1.5"])
def test_a_delay_prints_as_it_is_written(text):
    assert str(parse_delay(text)) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("normal:1", "no delay is called 'normal'; there are: exp:MEAN"),
        ("exp", "is written exp:MEAN"),
        ("exp:fast", "'exp:fast' is not understood"),
        ("exp:-1", "makes no sense"),
        ("exp:nan", "makes no sense"),
        ("uniform:2:1", "makes no sense"),
        ("constant:1:2", "is written constant:X"),
    ],
)
def test_a_delay_that_is_not_understood_is_explained(text, reason):
    with pytest.raises(ValueError, match=reason):
        parse_delay(text)


def test_links_reorder_unless_they_are_fifo():
    for fifo in (False, True):
        channel = links(fifo=fifo)
        arrivals = [channel.arrivals(0, 1, now)[0] for now in range(0, SECOND, SECOND // 100)]
        assert (arrivals == sorted(arrivals)) is fifo


def test_fifo_is_per_channel():
    network = links(fifo=True, delay=Delay("uniform", (0.0, 1.0)))
    arrivals = [
        (channel, network.arrivals(*channel, now)[0]) for now in range(50) for channel in ((0, 1), (1, 0))
    ]
    times = [time for _, time in arrivals]
    assert times != sorted(times)
    for wanted in ((0, 1), (1, 0)):
        own = [time for channel, time in arrivals if channel == wanted]
        assert own == sorted(own)


def test_duplicates_come_as_often_as_asked():
    doubled = sum(len(arrivals) == 2 for arrivals in _many(links(duplicate=0.3), 10_000))
    assert 2800 < doubled < 3200
    assert {len(arrivals) for arrivals in _many(links(), 100)} == {1}
    assert {len(arrivals) for arrivals in _many(links(duplicate=1.0), 100)} == {2}


def _many(network, count):
    return [network.arrivals(0, 1, 0) for _ in range(count)]


@pytest.mark.parametrize(
    ("channel", "sent", "arrives"),
    [
        ((0, 1), 0.0, 0.5),  # across before the cut
        ((0, 1), 0.8, 3.5),  # caught in flight
        ((0, 1), 2.0, 3.5),
        ((1, 0), 2.0, 3.5),
        ((0, 2), 2.0, 2.5),  # both on the island
        ((1, 3), 2.0, 2.5),  # neither is
        ((0, 1), 3.0, 3.5),  # healed
    ],
)
def test_a_partition_holds_back_what_crosses_it_until_it_heals(channel, sent, arrives):
    cut = Partition(1.0, 3.0, frozenset({0, 2}))
    network = links(delay=Delay("constant", (0.5,)), partitions=(cut,))
    assert network.arrivals(*channel, int(sent * SECOND)) == (int(arrives * SECOND),)


def test_partitions_add_up():
    cuts = (Partition(4.0, 6.0, frozenset({1})), Partition(1.0, 3.8, frozenset({0})))
    network = links(delay=Delay("constant", (0.5,)), partitions=cuts)
    assert network.arrivals(0, 1, SECOND) == (int(6.5 * SECOND),)


def test_a_partition_prints_as_it_is_written():
    cut = parse_partition("1.5:3:p0,p12")
    assert cut == Partition(1.5, 3.0, frozenset({0, 12}))
    assert str(cut) == "1.5:3:p0,p12"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1:2", "START:END:p0,p1"),
        ("1:2:", "START:END:p0,p1"),
        ("1:2:0,1", "START:END:p0,p1"),
        ("a:2:p0", "at a time in seconds"),
        ("3:2:p0", "heals later"),
        ("1:inf:p0", "never heals would lose messages"),
    ],
)
def test_a_partition_that_is_not_understood_is_explained(text, reason):
    with pytest.raises(ValueError, match=reason):
        parse_partition(text)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_probability_is_a_probability(share):
    with pytest.raises(ValueError, match="between 0 and 1"):
        Network(duplicate=share)
