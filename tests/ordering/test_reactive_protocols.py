"""What is particular to each protocol that sends when it receives."""

import pytest

from happened.core.effects import Deliver, Send
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.ordering import create
from happened.ordering.causal.acknowledged import Acknowledgement
from happened.ordering.causal.phased import Resynchronisation
from happened.ordering.total.three_phase import AgreedFinal, AgreedProposal
from oracles.printed_three_phase import REPAIRS, PrintedThreePhase


def sends(effects):
    return [effect for effect in effects if isinstance(effect, Send)]


def delivered(effects):
    return [(e.sender, e.clock) for e in effects if isinstance(e, Deliver)]


def run(machines, dice, rounds, to, arrive=0.7):
    """Random sends and arrivals; returns what is still in flight."""
    in_flight = []
    for _ in range(rounds):
        process = dice.randrange(len(machines))
        in_flight += sends(machines[process].multicast(to(dice, process), b"x").effects)
        while in_flight and dice.random() < arrive:
            d, message = in_flight.pop(dice.randrange(len(in_flight)))
            in_flight += sends(machines[d].receive(message))
    return in_flight


def some(dice, process, n=4):
    return dice.sample(range(n), dice.randint(1, n))


def test_acknowledged_sends_one_message_at_a_time():
    zero, one = create("acknowledged", 0, 3), create("acknowledged", 1, 3)
    (first,) = zero.multicast([1], b"a").effects
    assert zero.multicast([2], b"b").effects == [] and zero.queued == 1
    assert delivered(zero.multicast([0], b"c").effects) == [(0, 3)]  # to itself it need not wait
    acknowledgement, delivery = one.receive(first.message)
    assert acknowledgement == Send(0, Acknowledgement(0, 1)) and delivery.payload == b"a"
    (second,) = zero.receive(acknowledgement.message)
    assert (second.to, second.message.clock) == (2, 2)
    assert zero.receive(acknowledgement.message) == [] and one.receive(first.message) == []


def test_an_acknowledgement_of_what_we_never_sent_is_refused():
    for message in (Acknowledgement(0, 1), Acknowledgement(1, 1)):
        with pytest.raises(RemoteProtocolError, match="never sent"):
            create("acknowledged", 0, 2).receive(message)


def test_cbcast_brings_what_must_come_first():
    zero, one, two = (create("cbcast", p, 3) for p in range(3))
    first = {e.to: e.message for e in zero.multicast([1, 2], b"cause").effects}
    one.receive(first[1])
    (reply,) = one.multicast([2], b"effect").effects
    assert reply.message.units() == {(0, 1, 1), (0, 1, 2)} and reply.message.size() == (1, 2)
    assert [e.payload for e in two.receive(reply.message) if isinstance(e, Deliver)] == [b"cause", b"effect"]
    assert two.receive(first[2]) == []  # it has come already


def test_the_buffers_of_cbcast_stay_bounded_and_empty_when_all_is_stable(dice):
    machines = [create("cbcast", p, 4) for p in range(4)]
    in_flight, most = [], 0
    for _ in range(30):
        in_flight += run(machines, dice, 20, some, arrive=0.95)
        most = max(most, *(machine.log_size()[0] for machine in machines))
        while in_flight:
            d, message = in_flight.pop(dice.randrange(len(in_flight)))
            in_flight += sends(machines[d].receive(message))
    assert 0 < most < 100  # of 600 messages
    for process in range(4):  # one more message tells everybody what is stable
        for d, message in sends(machines[process].multicast(range(4), b"").effects):
            for back, acknowledgement in sends(machines[d].receive(message)):
                machines[back].receive(acknowledgement)
    for d, message in sends(machines[0].multicast(range(4), b"").effects):
        assert len(message.past) <= 3
        machines[d].receive(message)


def test_psync_names_the_immediate_predecessors_only():
    zero, one, two = (create("psync", p, 3) for p in range(3))
    first = sends(zero.multicast([1, 2], b"").effects)[0].message
    other = sends(two.multicast([0, 1], b"").effects)[0].message
    one.receive(first), one.receive(other)
    reply = sends(one.multicast([0, 2], b"").effects)[0].message
    assert reply.context == ((0, 1), (2, 1)) and one.log_size() == (1, 1)
    assert sends(one.multicast([0, 2], b"").effects)[0].message.context == ((1, 1),)
    assert two.receive(reply) == []
    (held,) = two.pending()
    assert held.waits_for == ((0, 1),)
    assert delivered(two.receive(first)) == [(0, 1), (1, 1)]


def test_phased_waits_for_everybody_to_pass_the_phase_before():
    zero, one, two = (create("phased", p, 3) for p in range(3))
    first, _ = sends(zero.multicast([1, 2], b"").effects)
    second = sends(zero.multicast([1, 2], b"").effects)[0]
    assert delivered(one.receive(first.message)) == [(0, 1)]
    effects = one.receive(second.message)
    assert delivered(effects) == []
    assert {e.message for e in sends(effects)} == {Resynchronisation(1, 0, 0, 1)}
    (held,) = one.pending()
    assert held.waits_for == ((2, 0),)
    (answer, *_) = [e for e in sends(two.receive(second.message)) if e.to == 1]
    assert delivered(one.receive(answer.message)) == [(0, 2)]


@pytest.mark.parametrize("groups", [[[]], [[0, 3]], [[0, -1]]], ids=["empty", "a stranger", "negative"])
def test_phased_refuses_groups_that_are_none(groups):
    with pytest.raises(LocalProtocolError, match="a group has members"):
        create("phased", 0, 3, groups=groups)


@pytest.mark.parametrize(
    ("overlay", "reason"),
    [
        ("star", "'complete', 'ring'"),
        ([(0, 3)], "joins two"),
        ([(0, 1)], "not connected"),
        ([(1, 1)], "joins"),
    ],
)
def test_flooding_refuses_overlays_that_are_none(overlay, reason):
    with pytest.raises(LocalProtocolError, match=reason):
        create("flooding", 0, 3, overlay=overlay)


def test_flooding_relays_once_to_everybody_but_where_it_came_from():
    ring = [create("flooding", p, 4, overlay="ring") for p in range(4)]
    to_one, to_three = sends(ring[0].multicast([1, 2, 3], b"").effects)
    assert (to_one.to, to_three.to) == (1, 3)
    (relayed,) = sends(ring[1].receive(to_one.message))
    assert (relayed.to, relayed.message.relay) == (2, 1)
    effects = ring[2].receive(relayed.message)
    assert delivered(effects) == [(0, 1)] and [e.to for e in sends(effects)] == [3]
    with pytest.raises(RemoteProtocolError, match="no neighbour"):
        ring[0].receive(relayed.message._replace(relay=2))


def scenario(machines):
    """What 0 and 1 deliver (docs/papers.md): 0 receives A then X, 1 X then A; A becomes final, then X."""
    in_flight = []

    def act(process, effects):
        in_flight.extend((process, e.to, e.message) for e in effects if isinstance(e, Send))
        orders[process].extend((e.sender, e.clock) for e in effects if isinstance(e, Deliver))

    def arrive(source, to, name):
        """The oldest packet of this channel that speaks of this message."""
        packet = next(p for p in in_flight if p[:2] == (source, to) and (p[2].sender, p[2].clock) == name)
        in_flight.remove(packet)
        act(to, machines[to].receive(packet[2]))

    orders = [[] for _ in machines]
    a, x = (2, 1), (3, 1)
    act(2, machines[2].multicast([0, 1], b"").effects)
    act(3, machines[3].multicast([0, 1], b"").effects)
    for source, to, name in [(2, 0, a), (3, 0, x), (3, 1, x), (2, 1, a)]:
        arrive(source, to, name)
    for name, owner in ((a, 2), (x, 3)):
        for source, to in ((0, owner), (1, owner), (owner, 0), (owner, 1)):
            arrive(source, to, name)
    return orders


def test_two_messages_split_the_printed_algorithm_and_not_the_repaired_one():
    zero, one = scenario([PrintedThreePhase(p, 4) for p in range(4)])[:2]
    assert sorted(zero) == sorted(one) == [(2, 1), (3, 1)] and zero != one
    for machines in (
        [PrintedThreePhase(p, 4, REPAIRS) for p in range(4)],
        [create("agreed", p, 4) for p in range(4)],
        [create("causal-total", p, 4) for p in range(4)],
    ):
        zero, one = scenario(machines)[:2]
        assert zero == one and len(zero) == 2


def test_agreed_says_which_timestamps_are_missing():
    zero, one, two = (create("agreed", p, 3) for p in range(3))
    first = {e.to: e.message for e in zero.multicast([1, 2], b"").effects}
    other = {e.to: e.message for e in two.multicast([1], b"").effects}
    (proposal,) = one.receive(first[1])
    assert proposal == Send(0, AgreedProposal(0, 1, 1, 1))
    (second,) = one.receive(other[1])
    assert [held.waits_for for held in one.pending()] == [((0, 1),), ((0, 1), (2, 1))]
    (final,) = two.receive(second.message)
    assert final.message == AgreedFinal(2, 1, 2)
    assert one.receive(final.message) == []
    assert [held.waits_for for held in one.pending()] == [((0, 1),), ((0, 1),)]
    assert zero.receive(proposal.message) == []
    (other_proposal,) = two.receive(first[2])
    final = {e.to: e.message for e in zero.receive(other_proposal.message)}
    assert delivered(one.receive(final[1])) == [(0, 1), (2, 1)]


def test_a_final_timestamp_below_our_proposal_is_refused():
    zero, one = create("agreed", 0, 3), create("agreed", 1, 3)
    message = sends(zero.multicast([1, 2], b"").effects)[0].message
    one.receive(message._replace(timestamp=5))
    before = one.snapshot()
    with pytest.raises(RemoteProtocolError, match="we proposed 5"):
        one.receive(AgreedFinal(0, 1, 4))
    assert one.snapshot() == before


def test_causal_total_begins_the_next_agreement_when_the_previous_one_ends():
    zero, one = create("causal-total", 0, 2), create("causal-total", 1, 2)
    (first,) = zero.multicast([1], b"").effects
    assert zero.multicast([1], b"").effects == [] and zero.queued == 2 and zero.clock == 2
    (proposal,) = one.receive(first.message)
    final, second = zero.receive(proposal.message)
    assert second.message.timestamp > final.message.timestamp and zero.queued == 1


def agree(machines, sender, to, *, late=None):
    """One whole agreement, but for the final timestamp on its way to `late`; that, and the deliveries."""
    kept, orders = [], [[] for _ in machines]
    packets = sends(machines[sender].multicast(to, b"").effects)
    while packets:
        d, message = packets.pop(0)
        if d == late and isinstance(message, AgreedFinal):
            kept.append(message)
            continue
        effects = machines[d].receive(message)
        packets += sends(effects)
        orders[d] += delivered(effects)
    return kept, orders


def test_causal_total_sends_beyond_every_timestamp_it_has_delivered():
    """Process 0 proposes more than process 1 for M(2,1); its answer to 1 must not be ordered before it."""
    machines = [create("causal-total", p, 3) for p in range(3)]
    agree(machines, 1, [0])
    (final,), orders = agree(machines, 2, [0, 1], late=1)
    assert orders[0] == [(2, 1)]
    _, orders = agree(machines, 0, [1])
    assert orders[1] == []
    assert delivered(machines[1].receive(final)) == [(2, 1), (0, 1)]


def test_causal_total_sends_beyond_the_timestamps_of_its_own_messages():
    machines = [create("causal-total", p, 3) for p in range(3)]
    agree(machines, 1, [2])
    agree(machines, 1, [2])
    (final,), _ = agree(machines, 0, [1, 2], late=1)
    _, orders = agree(machines, 0, [1])
    assert orders[1] == []
    assert delivered(machines[1].receive(final)) == [(0, 1), (0, 2)]
