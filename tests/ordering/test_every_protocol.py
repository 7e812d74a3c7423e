"""What holds for every comparison protocol within its assumptions, whatever it carries.

The oracle never looks at control information: it keeps sets of events.
"""

import random
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from happened import wire
from happened.core.effects import Send
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.ordering import protocols
from happened.sim.explore import explore
from oracles.assumptions import (
    ASSUMPTIONS,
    busy,
    destinations,
    hand_over,
    make,
    overlapping,
    system,
    token_of,
)
from oracles.history import History

NAMES = sorted(ASSUMPTIONS)
every_protocol = pytest.mark.parametrize("name", NAMES)


class System(RuleBasedStateMachine):
    """Any interleaving with duplicates, joins, departures, restarts and a trip over the wire."""

    name = ""

    @initialize(n=st.integers(1, 4), near_the_lane_width=st.booleans())
    def start(self, n, near_the_lane_width):
        self.assumed = ASSUMPTIONS[self.name]
        n += 62 if near_the_lane_width and self.assumed.joins else 0  # joins then widen the lanes
        self.machines = system(self.name, n)
        self.active = list(range(n))[-4:]
        self.gone = set()
        self.history = History()
        self.in_flight = []
        self.token = None

    def destinations(self, data, sender):
        present = [p for p in range(len(self.machines)) if p not in self.gone]
        if self.assumed.casts == "broadcast":
            others = {p for p in present if p != sender}
            return others | {sender} if data.draw(st.booleans()) or not others else others
        if self.name == "bss-groups":
            groups = [g & set(present) for g in overlapping(len(self.machines)) if sender in g]
            group = data.draw(st.sampled_from(groups))
            return group - {sender} if len(group) > 1 and data.draw(st.booleans()) else group
        return data.draw(st.sets(st.sampled_from(self.active), min_size=1, max_size=4))

    @rule(data=st.data())
    def multicast(self, data):
        sender = data.draw(st.sampled_from(self.active))
        to = self.destinations(data, sender)
        machine = hand_over(self.machines, sender, self.token)
        effects = machine.multicast(to, b"payload")
        self.token = token_of(self.name, machine)
        sends = [effect for effect in effects if isinstance(effect, Send)]
        assert {send.to for send in sends} == set(to)
        message = sends[0].message
        self.history.send(sender, (message.sender, message.clock), to)
        for d, message in sends:
            assert message.to == frozenset(to)
            entries, units = message.size()
            assert units == len(message.units()) and entries >= 0 and message.model_bytes() >= 0
            assert all((s, t) in self.history.dests for s, t, _ in message.units())
            assert all(d in self.history.dests[s, t] for s, t, d in message.units())
            decoded, _ = wire.decode(wire.encode(message))
            assert decoded == message
            self.in_flight.append((d, decoded))
        self.deliver(sender, [effect for effect in effects if not isinstance(effect, Send)])

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), duplicate=st.booleans())
    def network_hands_over_any_packet(self, data, duplicate):
        i = data.draw(st.integers(0, len(self.in_flight) - 1))
        d, message = self.in_flight[i] if duplicate else self.in_flight.pop(i)
        self.deliver(d, self.machines[d].receive(message))

    def deliver(self, process, effects):
        for sender, clock, payload in effects:
            key = (sender, clock)
            assert payload == b"payload"
            assert key not in self.history.order.get(process, [])
            for other in self.history.overtaken_by(process, key):
                assert self.assumed.chains is not None, f"M{key} overtakes M{other} at {process}"
                assert self.history.chain_length(other, key) > self.assumed.chains
            self.history.deliver(process, key)

    @rule()
    def a_process_joins(self):
        index = len(self.machines)
        if not self.assumed.joins:
            before = self.machines[0].snapshot()
            with pytest.raises(LocalProtocolError, match="cannot join"):
                self.machines[0].join(index)
            assert self.machines[0].snapshot() == before
        elif index < 68:
            for machine in self.machines:
                machine.join(index)
            self.machines.append(make(self.name, index, index + 1))
            for gone in self.gone:
                self.machines[index].leave(gone)
            self.active.append(index)

    @precondition(lambda self: len(self.active) > 2)
    @rule(data=st.data())
    def a_process_leaves(self, data):
        process = data.draw(st.sampled_from(self.active))
        self.active.remove(process)  # what is in flight to it still arrives
        self.gone.add(process)
        for machine in self.machines:
            machine.leave(process)
        with pytest.raises(LocalProtocolError, match="has left"):
            self.machines[self.active[0]].multicast([process], b"")

    @rule(data=st.data())
    def a_process_restarts_from_its_snapshot(self, data):
        process = data.draw(st.sampled_from(self.active))
        old = self.machines[process]
        self.machines[process] = new = make(self.name, process, old.n)
        new.restore(old.snapshot())
        assert new.snapshot() == old.snapshot()
        assert new.pending() == old.pending()

    @rule(data=st.data())
    def a_clock_advances_on_its_own(self, data):
        assert self.machines[data.draw(st.sampled_from(self.active))].tick() > 0

    @invariant()
    def what_is_held_says_exactly_what_it_waits_for(self):
        for process in getattr(self, "active", ()):
            for held in self.machines[process].pending():
                missing = self.history.overtaken_by(process, (held.message.sender, held.message.clock))
                named = set(held.waits_for)
                assert named
                if not self.assumed.names_messages:
                    assert all(any(s == p and t <= clock for p, clock in named) for s, t in missing)
                elif self.assumed.serialized:  # the order of sends goes beyond happened-before
                    assert named <= {key for key, x in self.history.undelivered() if x == process}
                else:
                    assert named <= missing

    def teardown(self):
        while getattr(self, "in_flight", None):
            d, message = self.in_flight.pop()
            self.deliver(d, self.machines[d].receive(message))
        if hasattr(self, "machines"):
            assert not self.history.undelivered()
            assert not any(machine.pending() for machine in self.machines)


@every_protocol
def test_any_interleaving_with_duplicates_restarts_joins_and_departures(name):
    machine = type("SystemOf", (System,), {"name": name})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


# (protocol, cast, self-addressed) -> programs and states of 3 processes and 3 messages.
EXPLORED = {
    ("bss", "broadcast", True): (3, 10_942),
    ("bss", "broadcast", False): (3, 981),
    ("bss-groups", "multicast", True): (598, 141_858),
    ("kim", "broadcast", True): (3, 10_942),
    ("kim", "broadcast", False): (3, 981),
    ("prs", "multicast", True): (598, 142_442),
    ("rst", "multicast", True): (598, 141_858),
    ("ses", "multicast", True): (598, 141_858),
}


@pytest.mark.parametrize(("name", "casts", "self_addressed"), EXPLORED)
def test_three_processes_and_three_messages_are_safe_and_live_in_every_interleaving(
    name, casts, self_addressed
):
    result = explore(partial(make, name), 3, 3, casts=casts, self_addressed=self_addressed)
    assert result.violations == ()
    assert (result.programs, result.states) == EXPLORED[name, casts, self_addressed]


@every_protocol
def test_the_registry_says_what_it_is(name):
    facts = protocols()[name]
    assert facts.order == ("fifo" if name == "chain-two" else "causal")
    assert not facts.fifo_links and facts.description and facts.paper
    assert (facts.casts == {"broadcast"}) == (ASSUMPTIONS[name].casts == "broadcast")


@every_protocol
def test_messages_to_oneself_come_back_in_order(name):
    (alone,) = system(name, 1)
    sent = [alone.multicast([0], b"%d" % i)[0].message for i in range(3)]
    assert alone.receive(sent[2]) == [] and alone.receive(sent[1]) == []
    (held, _) = alone.pending()
    assert held.message == sent[2] and set(held.waits_for) <= {(0, 1), (0, 2)}
    assert [effect.payload for effect in alone.receive(sent[0])] == [b"0", b"1", b"2"]
    assert alone.receive(sent[0]) == [] and alone.pending() == []


@every_protocol
@pytest.mark.parametrize("to", [[], [3], [-1], [0, 7]], ids=["nobody", "index n", "negative", "one unknown"])
def test_a_multicast_to_no_one_or_someone_unknown_changes_nothing(name, to):
    machine = make(name, 0, 3)
    before = machine.snapshot()
    with pytest.raises(LocalProtocolError):
        machine.multicast(to, b"")
    with pytest.raises(LocalProtocolError, match="bytes"):
        machine.multicast([0, 1, 2], "text")
    assert machine.snapshot() == before


@pytest.mark.parametrize("name", ["bss", "kim", "serialized-broadcast"])
def test_a_broadcast_protocol_refuses_to_leave_someone_out(name):
    machine = make(name, 0, 4)
    before = machine.snapshot()
    with pytest.raises(LocalProtocolError, match="leaves out 2, 3"):
        machine.multicast([1], b"")
    assert machine.snapshot() == before
    assert machine.multicast([1, 2, 3], b"")


def message_to_one(name, n=3):
    sends = make(name, 0, n).multicast(range(n), b"")
    return {send.to: send.message for send in sends}[1]


@every_protocol
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dests": 0b100}, "not addressed"),
        ({"sender": 9}, "no sender"),
        ({"clock": 0}, "no clock"),
        ({"sender": 1}, "ours"),
        ({"n": 4}, "join"),
        (None, "not a "),
    ],
    ids=["not ours", "unknown sender", "no clock", "in our name", "a larger system", "not a message"],
)
def test_what_no_correct_peer_sends_is_refused_and_changes_nothing(name, change, reason):
    machine, message = make(name, 1, 3), message_to_one(name)
    before = machine.snapshot()
    with pytest.raises(RemoteProtocolError, match=reason):
        machine.receive("hello" if change is None else message._replace(**change))
    assert machine.snapshot() == before
    assert machine.receive(message)


@every_protocol
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"\xff",
        b'{"protocol":"NAME","version":9}',
        b'{"protocol":"NAME","version":1,"process":[0]}',
        b"[1]",
    ],
    ids=["empty", "no fields", "not text", "a newer version", "cut short", "not an object"],
)
def test_a_bad_snapshot_is_refused_and_changes_nothing(name, data):
    machine = make(name, 0, 2)
    machine.multicast([0, 1], b"")
    before = machine.snapshot()
    with pytest.raises(LocalProtocolError, match="not a snapshot"):
        machine.restore(data.replace(b"NAME", name.encode()))
    assert machine.snapshot() == before


@every_protocol
@pytest.mark.parametrize("n", [1, 2, 5, 14, 63, 64, 70])
def test_a_frame_comes_back_as_it_went_and_says_where_it_ends(name, n, seed):
    made, _ = busy(name, n, random.Random(seed))
    assert len(made) >= 40
    stream = b"".join(wire.encode(message) for message in made)
    for message in made:
        decoded, used = wire.decode(stream)
        assert decoded == message
        stream = stream[used:]
    assert not stream


@every_protocol
def test_a_multicast_is_encoded_as_its_messages_one_by_one(name, dice):
    _, machines = busy(name, 5, dice)
    for _ in range(3):
        token = (
            token_of(name, max(machines, key=lambda m: m.latest)) if ASSUMPTIONS[name].serialized else None
        )
        made = [
            e.message for e in hand_over(machines, 2, token).multicast(range(5), b"x") if isinstance(e, Send)
        ]
        assert wire.encode_multicast(made) == [wire.encode(message) for message in made]
        assert wire.control_sizes(made) == [wire.control_size(message) for message in made]


GENUINE = {
    name: [wire.encode(message) for n in (3, 10, 70) for message in busy(name, n, random.Random(5), 25)[0]]
    for name in NAMES
}


@every_protocol
@settings(max_examples=250, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_damaged_frame_is_refused_or_still_a_message_a_machine_survives(name, data):
    damaged = bytearray(data.draw(st.sampled_from(GENUINE[name])))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(2, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    for hostile in (bytes(damaged), bytes(damaged[:cut])):
        try:
            message, _ = wire.decode(hostile)
        except RemoteProtocolError:
            continue
        assert wire.decode(wire.encode(message))[0] == message
        machine = make(name, min(message.to), message.n)
        try:
            machine.receive(message)
        except RemoteProtocolError:
            continue
        machine.pending()
        machine.restore(machine.snapshot())
        machine.receive(message)


@every_protocol
def test_a_run_judged_at_random_delivers_everything_in_order(name, dice):
    """Longer than Hypothesis' runs: what is wrong only after many messages shows here."""
    n, history, machines, in_flight, token = 5, History(), system(name, 5), [], None

    def deliver(process, effects):
        for sender, clock, _ in effects:
            overtaken = history.overtaken_by(process, (sender, clock))
            assert not overtaken or name == "chain-two"
            history.deliver(process, (sender, clock))

    for _ in range(120):
        sender = dice.randrange(n)
        machine = hand_over(machines, sender, token)
        to = destinations(name, dice, n, sender)
        effects = machine.multicast(to, b"")
        token = token_of(name, machine)
        sends = [effect for effect in effects if isinstance(effect, Send)]
        history.send(sender, (sender, sends[0].message.clock), to)
        in_flight += sends
        deliver(sender, [effect for effect in effects if not isinstance(effect, Send)])
        while in_flight and dice.random() < 0.8:
            d, message = in_flight.pop(dice.randrange(len(in_flight)))
            deliver(d, machines[d].receive(message))
    while in_flight:
        d, message = in_flight.pop(dice.randrange(len(in_flight)))
        deliver(d, machines[d].receive(message))
    assert not history.undelivered()
    assert not any(machine.pending() for machine in machines)
