"""The counterexamples that keep `ks` honest: each shortcut the papers offer or print, and what it breaks."""

import pytest

from happened.ordering import create
from oracles.literal_ks import LiteralKs
from oracles.network import Network


def network(n, *, fault=None, optimal=True, **options):
    if fault is None:
        return Network([create("ks", p, n, **options) for p in range(n)], optimal=optimal)
    return Network([LiteralKs(p, n, frozenset({fault})) for p in range(n)], optimal=False)


def own_entries(net):
    """M(2,1)→{0,1}, delivered at 1; 1 sends M(1,1)→0 then M(1,2)→0; M(2,1) is slow to 0."""
    slow = net.multicast(2, [0, 1])
    net.arrive(1, slow[1])
    first = net.multicast(1, [0])[0]
    second = net.multicast(1, [0])[0]
    assert net.arrive(0, first) == []
    assert net.arrive(0, second) == []
    return net.arrive(0, slow[0])


def lookahead(net):
    """M(0,1)→{1,2}, delivered at 1; M(0,2)→1 slow; M(0,3)→{1,2} held at 1; then 1 sends to 2."""
    first = net.multicast(0, [1, 2])
    net.arrive(1, first[1])
    second = net.multicast(0, [1])
    third = net.multicast(0, [1, 2])
    assert net.arrive(1, third[1]) == []
    reply = net.multicast(1, [2])
    assert net.arrive(2, reply[2]) == []
    net.arrive(2, first[2])
    net.arrive(2, third[2])
    net.arrive(1, second[1])


def omission(net):
    """M(0,1)→2 slow; M(0,2), M(0,3)→1; M(1,1)→2, sent after M(0,3), overtakes M(0,1)."""
    slow = net.multicast(0, [2])
    net.arrive(1, net.multicast(0, [1])[1])
    net.arrive(1, net.multicast(0, [1])[1])
    assert net.arrive(2, net.multicast(1, [2])[2]) == []
    net.arrive(2, slow[2])


def test_own_earlier_messages_must_be_carried_even_on_fifo_links():
    assert own_entries(network(3)) == [(2, 1), (1, 1), (1, 2)]
    with pytest.raises(AssertionError, match="overtakes"):
        own_entries(network(3, fault="omit-own-entries"))


def test_lookahead_as_written_lets_a_reply_overtake():
    lookahead(network(3))
    lookahead(network(3, lookahead=True, optimal=False))
    with pytest.raises(AssertionError, match="overtakes"):
        lookahead(network(3, fault="unsafe-lookahead"))


def test_omitting_what_the_channel_already_carried_reads_as_guaranteed():
    omission(network(3))
    with pytest.raises(AssertionError, match="overtakes"):
        omission(network(3, fault="omit-duplicates"))


def test_the_misprint_of_rcv_4_keeps_stale_units():
    """2 knows that M(0,1) reached 1 and has a newer entry of 0; then 3's old news of M(0,1) arrives."""
    stale = {}
    for name in ("as printed", "corrected"):
        net = network(4, fault="rcv4-misprint") if name == "as printed" else network(4)
        first = net.multicast(0, [1])
        net.arrive(3, net.multicast(0, [3])[3])
        old_news = net.multicast(3, [2])
        assert (0, 1, 1) in old_news[2].units()
        net.arrive(1, first[1])
        net.arrive(2, net.multicast(1, [2])[2])
        net.arrive(2, net.multicast(0, [2])[2])
        net.arrive(2, old_news[2])
        stale[name] = net.machines[2].log_units() - net.history.log(2)
    assert stale == {"as printed": {(0, 1, 1)}, "corrected": set()}


def test_bound_n_over_2_of_section_6_2_is_false_for_the_sum_over_entries():
    """n = 8: 0 sends to {1,2,3,4}, then {5,6,7}, then to 1: seven units of one sender, more than n/2."""
    net = network(8)
    for to in ([1, 2, 3, 4], [5, 6, 7]):
        net.multicast(0, to)
    assert len(net.multicast(0, [1])[1].units()) == 7


def test_channels_need_not_be_fifo():
    """§7.1's sequence numbers are unnecessary: three messages on one channel arrive in reverse."""
    net = network(2)
    messages = [net.multicast(0, [1])[1] for _ in range(3)]
    assert net.arrive(1, messages[2]) == []
    assert net.arrive(1, messages[1]) == []
    assert net.arrive(1, messages[0]) == [(0, 1), (0, 2), (0, 3)]


def test_a_self_addressed_message_waits_like_any_other():
    net = network(2)
    first, second = net.multicast(0, [0, 1]), net.multicast(0, [0])
    assert net.arrive(0, second[0]) == []
    assert net.arrive(0, first[0]) == [(0, 1), (0, 2)]
    assert net.arrive(1, first[1]) == [(0, 1)]
