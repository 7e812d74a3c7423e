"""Where sends are serialized (Kshemkalyani & Singhal 1998, §7.1), one entry is enough for broadcasts and one
per destination for multicasts; sends that are not serialized are refused."""

from itertools import product

import pytest

import effort
from happened.core.effects import Send
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.ordering import create
from oracles.history import History

NAMES = ["serialized-broadcast", "serialized-multicast"]


def programs(name):
    """Three sends, the first by 0, each other by anyone, to everything the protocol allows."""
    sets = {"serialized-broadcast": 2, "serialized-multicast": 7}[name]
    sends = [((0,), range(3), range(3)), (range(sets),) * 3]
    return [tuple(zip(s, c, strict=True)) for s in product(*sends[0]) for c in product(*sends[1])]


@pytest.mark.sampled
@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_interleavings_of_arrivals_with_serialized_sends(name, dice):
    """The right to send is handed over; packets arrive in any order. All interleavings of some programs."""
    assert sum(
        Serialized(name, program).explore()
        for program in dice.sample(programs(name), 30 if effort.THOROUGH else 10)
    ) > (500 if effort.THOROUGH else 150)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_interleaving_of_arrivals_with_serialized_sends(name):
    assert sum(Serialized(name, program).explore() for program in programs(name)) > 4_000


class Serialized:
    """All orders of arrival of one program, depth-first over snapshots.

    Payloads number the sends, so each process must see the numbers grow.
    """

    def __init__(self, name, program):
        self.name, self.program = name, program
        self.machine = {p: create(name, p, 3) for p in range(3)}

    def explore(self):
        """How many states there were."""
        start = tuple(machine.snapshot() for machine in self.machine.values())
        stack, seen = [(start, (-1, -1, -1), 0, frozenset(), None)], set()
        while stack:
            state = stack.pop()
            if state not in seen:
                seen.add(state)
                stack += self.following(state)
        return len(seen)

    def following(self, state):
        machines, _, sent, in_flight, token = state
        if sent < len(self.program):
            yield self.send(state)
        for d, message in in_flight:
            self.machine[d].restore(machines[d])
            deliveries = self.machine[d].receive(message)
            yield *self.after(state, d, deliveries), sent, in_flight - {(d, message)}, token
        if sent == len(self.program) and not in_flight:
            for d in range(3):
                self.machine[d].restore(machines[d])
                assert self.machine[d].pending() == []

    def send(self, state):
        machines, _, sent, in_flight, token = state
        sender, choice = self.program[sent]
        machine = self.machine[sender]
        machine.restore(machines[sender])
        if token is not None:
            machine.follow(token)
        if self.name == "serialized-broadcast":
            to = [p for p in range(3) if p != sender or choice]
        else:
            to = [p for p in range(3) if choice + 1 >> p & 1]
        effects = machine.multicast(to, b"%d" % sent).effects
        packets = {(effect.to, effect.message) for effect in effects if isinstance(effect, Send)}
        deliveries = [effect for effect in effects if not isinstance(effect, Send)]
        return *self.after(state, sender, deliveries), sent + 1, in_flight | packets, machine.latest

    def after(self, state, process, deliveries):
        machines, last, *_ = state
        numbers = [last[process], *(int(delivery.payload) for delivery in deliveries)]
        assert numbers == sorted(set(numbers))
        snapshot = self.machine[process].snapshot()
        return (
            (*machines[:process], snapshot, *machines[process + 1 :]),
            (*last[:process], numbers[-1], *last[process + 1 :]),
        )


@pytest.mark.parametrize("name", NAMES)
def test_without_a_token_it_is_enough_to_have_delivered_the_last_message(name, dice):
    """Happened-before alone: a process sends only when it has delivered what was sent last."""
    n, history = 4, History()
    machines = [create(name, p, n) for p in range(n)]
    in_flight, last, sends = [], None, 0
    while sends < 60:
        ready = [p for p in range(n) if last is None or p == last[0] or last in history.order.get(p, [])]
        if dice.random() < 0.4:
            sender = dice.choice(ready)
            to = range(n) if name == "serialized-broadcast" else {*dice.sample(range(n), 2), (sender + 1) % n}
            made = machines[sender].multicast(to, b"").effects
            last, sends = (sender, made[0].message.clock), sends + 1
            history.send(sender, last, to)
            in_flight += made
        elif in_flight:
            d, message = in_flight.pop(dice.randrange(len(in_flight)))
            for s, clock, _ in machines[d].receive(message):
                assert not history.overtaken_by(d, (s, clock))
                history.deliver(d, (s, clock))
    assert max(len(send.message.units()) for send in in_flight) <= n


def test_a_broadcast_carries_one_entry_and_a_multicast_one_per_destination(dice):
    broadcast = create("serialized-broadcast", 0, 5)
    broadcast.multicast([1, 2, 3, 4], b"")
    assert broadcast.multicast([1, 2, 3, 4], b"").effects[0].message.size()[0] == 1
    multicast = create("serialized-multicast", 0, 5)
    for to in ([1, 2], [2, 3], [3]):
        multicast.multicast(to, b"")
    message = multicast.multicast([4], b"").effects[0].message
    assert message.units() == {(0, 1, 1), (0, 2, 2), (0, 3, 3)}


@pytest.mark.parametrize("name", NAMES)
def test_a_fork_is_refused_and_changes_nothing(name):
    zero, one, two = (create(name, p, 3) for p in range(3))
    (first, *_) = [s.message for s in zero.multicast([0, 1, 2], b"").effects if s.to == 2]
    (second, *_) = [s.message for s in one.multicast([0, 1, 2], b"").effects if s.to == 2]
    assert two.receive(first)
    before = two.snapshot()
    with pytest.raises(RemoteProtocolError, match="not serialized"):
        two.receive(second)
    assert two.snapshot() == before


@pytest.mark.parametrize("name", NAMES)
def test_sending_before_one_has_caught_up_with_what_has_arrived_is_refused(name):
    zero, one = create(name, 0, 2), create(name, 1, 2)
    zero.multicast([0, 1], b"")
    (_, late) = [s.message for s in zero.multicast([0, 1], b"").effects]
    assert one.receive(late) == []
    before = one.snapshot()
    with pytest.raises(LocalProtocolError, match="not serialized"):
        one.multicast([0, 1], b"")
    assert one.snapshot() == before
    one.follow(zero.latest)
    assert one.multicast([0, 1], b"").effects


def test_a_token_that_names_nobody_is_refused():
    with pytest.raises(LocalProtocolError):
        create("serialized-broadcast", 0, 2).follow((1, 5))
    with pytest.raises(LocalProtocolError):
        create("serialized-multicast", 0, 2).follow(((7, (1, 0)),))
