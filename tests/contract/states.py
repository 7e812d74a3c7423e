"""What a machine keeps: snapshots from which it goes on alike, and refusals that leave all as it was."""

import json
from typing import get_type_hints

import pytest

from contract.drive import (
    Dice,
    System,
    arranged,
    busy,
    is_application,
    make,
    may_depart,
    some_destinations,
    takes_groups,
    widest_cast,
)
from happened.core.effects import Send
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.core.orders import Order
from happened.ordering import create, having, protocols
from happened.ordering.capabilities import KeepsLog, TellsUnits
from happened.ordering.facts import ANY_CAST, BROADCAST, THIRD_PARTY_NUMBERS, UNICAST
from happened.ordering.machine import Machine
from happened.ordering.messages import ProtocolMessage


def check_facts(facts, seed):
    assert protocols()[facts.name] is facts and make(facts, 0, 3).facts is facts
    assert facts.order in tuple(Order) and facts.order is not Order.NONE
    assert facts.assumes.casts and facts.assumes.casts <= ANY_CAST
    assert facts.description and facts.paper
    assert facts.promises.longest_chain is None or facts.order is Order.FIFO
    assert not facts.assumes.fixed_groups or facts.takes("groups")
    assert len({option.name for option in facts.options}) == len(facts.options)
    assert facts.wire.number < THIRD_PARTY_NUMBERS.stop
    with pytest.raises(LocalProtocolError, match="no option 'colour'"):
        facts.check_options(["colour"])
    for me in (3, -1):
        with pytest.raises(LocalProtocolError):
            create(facts.name, me, 3)


def check_shape(facts, seed):
    """Drivers may ask everything that `Machine` and `ProtocolMessage` say, without probing."""
    system = busy(facts, 4, Dice(seed), sends=10)
    machine_members = {name for name in vars(Machine) if not name.startswith("_")} | set(
        get_type_hints(Machine)
    )
    for machine in system.machines:
        assert not [name for name in machine_members if not hasattr(machine, name)]
        assert machine.me == system.machines.index(machine) and machine.n == 4
        log, told = having(machine, KeepsLog), having(machine, TellsUnits)
        assert log is None or min(log.log_size()) >= 0
        assert told is None or log is None or len(told.log_units()) == log.log_size()[1]
        assert not facts.promises.optimal or told is not None
    message_members = {name for name in vars(ProtocolMessage) if not name.startswith("_")} | {"carries"}
    for message in system.made:
        assert not [name for name in message_members if not hasattr(message, name)]


def check_snapshots(facts, seed):
    """Before every input a copy is made from a snapshot; it does what the machine does, then and later."""
    dice = Dice(seed)
    for n in (1, 3, 5):
        system = System(facts, n)
        system.machines = [Twins(facts, machine) for machine in system.machines]
        for _ in range(40):
            system.multicast(dice)
            while system.in_flight and dice.random() < 0.7:
                system.arrive(dice, duplicate=dice.random() < 0.1)
            if system.hands_over and dice.random() < 0.2:
                system.hand_over(dice)
            if n == 5 and may_depart(system) and dice.random() < 0.05:
                system.leave(dice.one(system.active))
            elif n == 5 and system.may_expel and dice.random() < 0.05:
                system.expel(dice, dice.one(system.active))
            system.settle(dice)
        system.drain(dice)


class Twins:
    """A machine, a second one restored from its snapshot at the beginning, and a third before each input."""

    INPUTS = frozenset(
        {"multicast", "receive", "tick", "hand_over", "follow", "join", "leave", "expel", "close", "forget"}
    )

    def __init__(self, facts, machine):
        self._facts, self._machine, self._second = facts, machine, self._copy_of(facts, machine)

    @staticmethod
    def _copy_of(facts, machine):
        copy = make(facts, machine.me, machine.n)
        copy.restore(machine.snapshot())
        assert copy.snapshot() == machine.snapshot(), "a restored machine gives another snapshot"
        return copy

    def __getattr__(self, name):
        if name not in self.INPUTS:
            return getattr(self._machine, name)
        third = self._copy_of(self._facts, self._machine)

        def act(*arguments):
            done = getattr(self._machine, name)(*arguments)
            for copy in (self._second, third):
                assert getattr(copy, name)(*arguments) == done, f"a restored machine does otherwise: {name}"
                assert copy.snapshot() == self._machine.snapshot()
                held = arranged(self._facts, self._machine.pending())
                assert arranged(self._facts, copy.pending()) == held
            self._second = third
            return done

        return act


BAD_SNAPSHOTS = (
    b"",
    b"{}",
    b"\xff",
    b"[1]",
    b'{"protocol":"NAME","version":9}',
    b'{"protocol":"NAME","version":1}',
    b'{"protocol":"NAME","version":1,"process":[0]}',
    b'{"protocol":"NAME","version":1,"me":0}',
    b'{"protocol":"another","version":1}',
)


def check_bad_snapshots(facts, seed):
    """Foreign, newer, cut or damaged snapshots are refused, and the machine is as it was."""
    machines = busy(facts, 3, Dice(seed), sends=8, arrive=0.3).machines
    machine = max(machines, key=lambda each: len(each.snapshot()))  # not one that nothing has happened to
    good = machine.snapshot()
    for data in BAD_SNAPSHOTS:
        with pytest.raises(LocalProtocolError, match="not a snapshot"):
            machine.restore(data.replace(b"NAME", facts.name.encode()))
        assert machine.snapshot() == good
    state = json.loads(good)
    for field in state:
        with pytest.raises(LocalProtocolError, match="not a snapshot"):
            machine.restore(json.dumps({name: state[name] for name in state if name != field}).encode())
        assert machine.snapshot() == good, f"a refused snapshot without {field} has changed the state"
    for field, other in ((field, other) for field in state for other in (None, "x", [[]], [None, 1], -1)):
        try:
            machine.restore(json.dumps({**state, field: other}).encode())
        except LocalProtocolError:
            assert machine.snapshot() == good, f"a refused {field} of {other!r} has changed the state"
        else:
            machine.restore(good)  # a value that means something
            assert machine.snapshot() == good


def check_refused_multicasts(facts, seed):
    """What cannot be sent is refused, and the machine is as it was."""
    n = 4
    machine = make(facts, 0, n)
    cast = widest_cast(facts)
    good = some_destinations(facts, n)
    bad = [([], b"", None), ([n], b"", None), ([-1], b"", None), ([0, 7], b"", None), (good, "text", "bytes")]
    if cast == UNICAST:
        bad += [([1, 2], b"", "unicasts"), ([0, 1], b"", "unicasts")]
    if cast == BROADCAST:
        reason = (
            "not a group"
            if facts.assumes.fixed_groups
            else "only broadcasts are ordered here; .* leaves out 2, 3"
        )
        bad += [([1], b"", reason), ([0, 1], b"", reason)]
    if takes_groups(facts):
        bad += [([1, 3], b"", "group")]
    before = machine.snapshot()
    for to, payload, reason in bad:
        with pytest.raises(LocalProtocolError, match=reason):
            machine.multicast(to, payload)
        assert machine.snapshot() == before, f"a refused multicast to {to} has changed the state"
    assert machine.multicast(good, b"").clock == machine.clock > 0


def check_refused_messages(facts, seed):
    """What no correct peer sends is refused, and the machine is as it was; the good message still does."""
    message = copy_for_one(facts, 3)
    hostile = [("hello", "not a "), (foreign(facts), "not a "), (copy_for_one(facts, 5), "join")]
    for reason, field, value in WRONG:
        if field in message._fields and not (field == "dests" and facts.copies.relays):
            hostile.append((message._replace(**{field: value}), reason))
    hostile += [(ghost, "ours") for ghost in in_the_name_of_one(facts, message)]
    machine = make(facts, 1, 3)
    before = machine.snapshot()
    for bad, reason in hostile:
        with pytest.raises(RemoteProtocolError, match=reason):
            machine.receive(bad)
        assert machine.snapshot() == before, f"a refused message has changed the state: {bad!r}"
    machine.receive(message)
    assert machine.snapshot() != before


WRONG = (
    ("not addressed", "dests", 0b100),
    ("no sender", "sender", 9),
    (None, "sender", -1),
    ("no clock", "clock", 0),
    ("join", "n", 4),
    ("copy made for process 2|not addressed", "receiver", 2),
)


def copy_for_one(facts, n):
    """The first application message that a process 0 of n sends to process 1."""
    effects = make(facts, 0, n).multicast(some_destinations(facts, n), b"").effects
    return next(e.message for e in effects if isinstance(e, Send) and e.to == 1)


def in_the_name_of_one(facts, message):
    """Messages that claim to be process 1's, to process 1, which has never sent any."""
    effects = make(facts, 1, 3).multicast([1] if widest_cast(facts) == UNICAST else range(3), b"").effects
    yield from (e.message for e in effects if isinstance(e, Send) and e.to == 1 and is_application(e.message))
    if "n" in message._fields:  # others carry a log that says, too, who sent them
        yield message._replace(sender=1)


def foreign(facts):
    """A message of another protocol."""
    own = type(copy_for_one(facts, 3))
    others = (copy_for_one(other, 3) for name, other in protocols().items() if name != facts.name)
    return next(message for message in others if type(message) is not own)
