"""Protocols that send when they receive, as machines: any interleaving, duplicates, restarts, joins,
hand-overs, and a trip over the wire for every packet. The oracle keeps sets of events and never looks at what
is carried.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from happened.core.effects import Send
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.ordering import create, protocols
from happened.wire import decode, encode
from oracles.history import History
from oracles.reactive import NAMES

JOINED = {
    "acknowledged",
    "agreed",
    "causal-total",
    "cbcast",
    "histories",
    "sequencer",
    "topological",
    "zoned-ks",
}


class ReactiveSystem(RuleBasedStateMachine):
    name: str

    @initialize(n=st.integers(1, 4))
    def start(self, n):
        self.facts = protocols()[self.name]
        self.machines = [create(self.name, p, n) for p in range(n)]
        self.history = History()
        self.channels = {}  # (source, destination) -> packets in the order sent

    @rule(data=st.data())
    def multicast(self, data):
        process = data.draw(st.integers(0, len(self.machines) - 1))
        machine = self.machines[process]
        effects = machine.multicast(to := self.destinations(data, process), b"payload")
        self.history.send(process, (process, machine.clock), to)
        self.perform(process, effects)

    def destinations(self, data, process):
        everyone = range(len(self.machines))
        if "multicast" in self.facts.casts:
            return data.draw(st.sets(st.sampled_from(everyone), min_size=1))
        if "unicast" in self.facts.casts:
            return {data.draw(st.sampled_from(everyone))}
        without = len(everyone) > 1 and data.draw(st.booleans())
        return set(everyone) - ({process} if without else set())

    def perform(self, process, effects):
        for effect in effects:
            if isinstance(effect, Send):
                message, _ = decode(encode(effect.message))
                assert message == effect.message
                self.channels.setdefault((process, effect.to), []).append(message)
            else:
                self.deliver(process, (effect.sender, effect.clock), effect.payload)

    def deliver(self, process, message, payload):
        assert payload == b"payload"
        assert process in self.history.dests[message]
        assert message not in self.history.order.get(process, [])
        if self.facts.order != "total":
            assert not self.history.overtaken_by(process, message)
        self.history.deliver(process, message)
        if self.facts.order != "causal":
            self.check_agreement(process)

    def check_agreement(self, process):
        *before, message = self.history.order[process]
        for order in self.history.order.values():
            if message in order:
                assert not set(before) & set(order[order.index(message) + 1 :])

    @precondition(lambda self: any(self.channels.values()))
    @rule(data=st.data(), duplicate=st.booleans())
    def network_hands_over_a_packet(self, data, duplicate):
        channel = data.draw(st.sampled_from(sorted(c for c, packets in self.channels.items() if packets)))
        packets = self.channels[channel]
        i = 0 if self.facts.fifo_links else data.draw(st.integers(0, len(packets) - 1))
        self.receive(channel[1], packets[i] if duplicate else packets.pop(i))

    def receive(self, process, message):
        self.perform(process, self.machines[process].receive(message))

    @rule(data=st.data())
    def a_process_restarts_from_its_snapshot(self, data):
        process = data.draw(st.integers(0, len(self.machines) - 1))
        old = self.machines[process]
        self.machines[process] = new = create(self.name, process, old.n)
        new.restore(old.snapshot())
        assert new.snapshot() == old.snapshot()
        assert sorted(new.pending()) == sorted(old.pending())

    @rule(data=st.data())
    def a_clock_advances_on_its_own(self, data):
        machine = self.machines[data.draw(st.integers(0, len(self.machines) - 1))]
        assert machine.tick() == machine.clock > 0

    @precondition(lambda self: self.name in JOINED and len(self.machines) < 6)
    @rule()
    def a_process_joins(self):
        index = len(self.machines)
        for machine in self.machines:
            machine.join(index)
        self.machines.append(create(self.name, index, index + 1))

    @precondition(lambda self: self.name == "sequencer" and len(self.machines) > 1)
    @rule(data=st.data())
    def the_coordinator_hands_over(self, data):
        holders = [machine for machine in self.machines if machine.coordinator == machine.me]
        if holders:  # otherwise the role is on its way
            (holder,) = holders
            others = [p for p in range(len(self.machines)) if p != holder.me]
            self.perform(holder.me, holder.hand_over(data.draw(st.sampled_from(others))))

    @invariant()
    def what_is_held_waits_for_something_and_is_not_delivered(self):
        for machine in getattr(self, "machines", ()):
            for held in machine.pending():
                assert held.waits_for and held.since > 0
                name = (held.message.sender, held.message.clock)
                assert machine.me in self.history.dests[name]
                assert name not in self.history.order.get(machine.me, [])

    def teardown(self):
        if not hasattr(self, "machines"):
            return
        while loaded := [channel for channel, packets in self.channels.items() if packets]:
            self.receive(loaded[-1][1], self.channels[loaded[-1]].pop(0))
        assert not self.history.undelivered()
        assert not any(machine.pending() for machine in self.machines)


for _name in NAMES:
    _case = type(f"Reactive_{_name}", (ReactiveSystem,), {"name": _name}).TestCase
    _case.settings = settings(
        max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
    )
    globals()[f"Test_{_name}"] = _case
del _case


def destinations(name, n=3):
    """Destinations of process 0 that this protocol takes."""
    return [1] if name == "acknowledged" else list(range(1, n))


every_protocol = pytest.mark.parametrize("name", NAMES)


@every_protocol
def test_what_cannot_be_sent_is_refused_and_changes_nothing(name):
    machine = create(name, 0, 3)
    before = machine.snapshot()
    for to, payload in (([], b""), ([3], b""), ([-1], b""), (destinations(name), "text")):
        with pytest.raises(LocalProtocolError):
            machine.multicast(to, payload)
    assert machine.snapshot() == before


@pytest.mark.parametrize(
    ("name", "to", "reason"),
    [
        ("acknowledged", [1, 2], "unicasts"),
        ("psync", [1], "only broadcasts"),
        ("flooding", [2], "only broadcasts"),
        ("phased", [1], "not a group"),
    ],
)
def test_what_is_outside_the_assumptions_is_refused_and_changes_nothing(name, to, reason):
    machine = create(name, 0, 3)
    before = machine.snapshot()
    with pytest.raises(LocalProtocolError, match=reason):
        machine.multicast(to, b"")
    assert machine.snapshot() == before


@every_protocol
def test_a_message_of_another_protocol_or_system_is_refused_and_changes_nothing(name):
    (send, *_) = create(name, 0, 5).multicast(destinations(name, 5), b"")
    (foreign,) = create("ks", 0, 3).multicast([1], b"")
    machine = create(name, 1, 3)
    before = machine.snapshot()
    for message in ("hello", foreign.message, send.message, send.message._replace(sender=-1)):
        with pytest.raises(RemoteProtocolError):
            machine.receive(message)
    assert machine.snapshot() == before


@every_protocol
@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"\xff", b"[1]", b'{"protocol":"%s","version":9}', b'{"protocol":"%s","version":1}'],
    ids=["empty", "no fields", "not text", "not an object", "a newer version", "cut short"],
)
def test_a_bad_snapshot_is_refused_and_changes_nothing(name, data):
    machine = create(name, 0, 3)
    machine.multicast(destinations(name), b"")
    before = machine.snapshot()
    with pytest.raises(LocalProtocolError, match="not a snapshot"):
        machine.restore(data.replace(b"%s", name.encode()))
    assert machine.snapshot() == before


@every_protocol
def test_members_join_and_leave_or_the_protocol_says_why_not(name):
    machine = create(name, 0, 3)
    if name not in JOINED:
        with pytest.raises(LocalProtocolError, match="start"):
            machine.join(3)
    else:
        with pytest.raises(LocalProtocolError, match="index 3"):
            machine.join(5)
        machine.join(3)
        assert machine.n == 4
    if name in ("flooding", "phased"):
        with pytest.raises(LocalProtocolError, match="start anew"):
            machine.leave(2)
    else:
        machine.leave(2)
        with pytest.raises(LocalProtocolError, match="has left"):
            machine.multicast([2], b"")


@every_protocol
def test_a_machine_outside_its_system_is_refused(name):
    with pytest.raises(LocalProtocolError):
        create(name, 3, 3)
