"""Two processes that are expelled at once can take the order of two messages of others with them.

    1 sends x to 2 and 4      2 delivers x and sends a to 0 and 4      0 delivers a and sends y to 3 and 4
    3 delivers y and sends b to 4

At 4 neither x nor y has come when 0 and 1 are expelled: a waits for x and b for y. That a precedes b follows
from y alone, if b names y and not what y follows. Messages of `ks` and `pruning` do not name a either, as its
delivery is settled by y; but they tell of each process its newest message in the past, and that is enough.
Where they do not tell that, nobody who is left may know: let 0 send y to 4 alone, and then something to 3
that names y and not a. Had b been sent first and x followed it, everybody left would have seen the same.
So there only one may be expelled at a time.
"""

import pytest

from happened.core.effects import Deliver
from happened.core.errors import LocalProtocolError
from happened.net.engine import Engine
from happened.ordering import create, protocols

TELL_ENOUGH = ("ks", "pruning", "rst", "bss")
TELL_LITTLE = [name for name, facts in protocols().items() if facts.membership.expels_one]


def released(protocol, closed):
    """What 4 delivers, and in which order, if it closes with 0 and 1 in this order."""
    machines = [create(protocol, p, 5) for p in range(5)]
    everybody = protocols()[protocol].assumes.casts == {"broadcast"}

    def send(sender, to):
        others = [p for p in range(5) if p != sender] if everybody else to
        return {effect.to: effect.message for effect in machines[sender].multicast(others, b"").effects}

    def take(process, message):
        return [(effect.sender, effect.clock) for effect in machines[process].receive(message[process])]

    x = send(1, [2, 4])
    for process in (2, 0, 3) if everybody else (2,):
        take(process, x)
    a = send(2, [0, 4])
    for process in (0, 3) if everybody else (0,):
        take(process, a)
    y = send(0, [3, 4])
    take(3, y)
    b = send(3, [4])
    assert take(4, b) == take(4, a) == []
    effects = [effect for process in (0, 1) for effect in machines[4].expel(process)]
    effects += [effect for process in closed for effect in machines[4].close(process)]
    return [(effect.sender, effect.clock) for effect in effects]


@pytest.mark.parametrize("protocol", TELL_ENOUGH)
def test_what_others_sent_is_delivered_in_order_although_two_were_expelled_at_once(protocol):
    assert not protocols()[protocol].membership.expels_one
    assert released(protocol, (1, 0)) == released(protocol, (0, 1)) == [(2, 1), (3, 1)]


@pytest.mark.parametrize("protocol", TELL_LITTLE)
def test_where_messages_tell_little_the_order_depends_on_who_is_closed_with_first(protocol):
    assert sorted(map(tuple, (released(protocol, (1, 0)), released(protocol, (0, 1))))) == [
        ((2, 1), (3, 1)),
        ((3, 1), (2, 1)),
    ]


@pytest.mark.parametrize("protocol", [*TELL_LITTLE, "ks"])
def test_a_node_refuses_to_expel_a_second_one_before_everybody_has_closed_with_the_first(protocol):
    names = ["p0", "p1", "p2", "p3"]
    engines = {name: Engine(name, names, protocol) for name in names[2:]}
    engines["p2"].leave("p0")
    if protocol not in TELL_LITTLE:
        engines["p2"].leave("p1")
        return
    before = engines["p2"].cut()
    with pytest.raises(LocalProtocolError, match=r"'p1' cannot be expelled yet: 'p0' was.*p1, p3.*journal"):
        engines["p2"].leave("p1")
    assert before.entries and not engines["p2"].is_dirty, "a refusal is not in the journal"


@pytest.mark.parametrize("protocol", TELL_LITTLE)
def test_the_next_one_is_expelled_when_everybody_has_closed_with_the_first(protocol):
    names = ["p0", "p1", "p2", "p3"]
    engines = {name: Engine(name, names, protocol) for name in names[1:]}
    engines["p2"].leave("p0")
    carry(engines)
    engines["p2"].leave("p1")
    del engines["p1"]
    carry(engines)
    assert all(not engine.pending() and len(engine.gone) == 2 for engine in engines.values())


def carry(engines):
    """Everything on its way arrives."""
    moved = True
    while moved:
        moved = False
        for engine in engines.values():
            engine.release(engine.cut())
            for link, outbox in engine.outboxes.items():
                peer = engines.get(engine.roster.name(link))
                for number, frame in outbox.after(outbox.acknowledged, 1 << 20) if peer else ():
                    peer.receive(engine.me, frame)
                    engine.free(link, number)
                    moved = True


def test_cbcast_does_not_bring_a_lost_message_after_what_followed_it():
    """1 has forgotten the expelled 3, and its messages come without 3's; 0 still carries one of them."""
    zero, one, two, three = (create("cbcast", me, 4) for me in range(4))
    first = {send.to: send.message for send in three.multicast([0, 1, 2], b"lost").effects}
    zero.receive(first[0])
    one.receive(first[1])
    for machine in (zero, one, two):
        machine.expel(3)
        machine.close(3)
    one.forget(3)
    [later] = one.multicast([2], b"follows it").effects
    assert [d.payload for d in two.receive(later.message) if isinstance(d, Deliver)] == [b"follows it"]
    [other] = zero.multicast([2], b"carries it").effects
    assert [d.payload for d in two.receive(other.message) if isinstance(d, Deliver)] == [b"carries it"]


def test_psync_names_each_sender_once_although_a_message_between_two_is_lost():
    """Frames have room for one name of each sender. What 1 sent between a and b of 2 does not come to 0."""
    zero, one, two = (create("psync", me, 3) for me in range(3))

    def sent(machine, payload):
        to = [p for p in range(3) if p != machine.me]
        return {s.to: s.message for s in machine.multicast(to, payload).effects}

    a = sent(two, b"a")
    one.receive(a[1])
    lost = sent(one, b"lost")
    two.receive(lost[2])
    b = sent(two, b"b")
    zero.receive(a[0])
    assert zero.receive(b[0]) == []
    zero.expel(1)
    assert [d.payload for d in zero.close(1)] == [b"b"]
    [own] = zero.multicast([2], b"own").effects
    assert own.message.context == ((2, b[0].clock),)
