"""`ks` as a machine: what it refuses, what it reports, and that it can be stopped and started anywhere."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.ordering import DEFAULT, create, protocols
from happened.wire import decode, encode
from oracles.history import History


class KsSystem(RuleBasedStateMachine):
    """Any interleaving with duplicates, joins, departures, restarts and a trip over the wire.

    The oracle never looks at control information: it keeps sets of events.
    """

    @initialize(n=st.integers(1, 4), near_the_lane_width=st.booleans())
    def start(self, n, near_the_lane_width):
        n += 62 if near_the_lane_width else 0  # joins then widen the lanes
        self.machines = [create("ks", p, n) for p in range(n)]
        self.active = list(range(n))[-4:]
        self.history = History()
        self.in_flight = []

    @rule(data=st.data())
    def multicast(self, data):
        process = data.draw(st.sampled_from(self.active))
        to = data.draw(st.sets(st.sampled_from(self.active), min_size=1, max_size=4))
        before = self.history.log(process)
        effects = self.machines[process].multicast(to, b"payload").effects
        self.history.send(process, (effects[0].message.sender, effects[0].message.clock), to)
        for d, message in effects:
            assert message.units() == self.history.edge(before, to, d)
            entries, units = message.size()
            assert units == len(message.units())
            keys = {entry[:2] for entry in message.about_others()} | set(message.waits())
            assert entries == len(keys)
            decoded, _ = decode(encode(message))
            assert decoded == message
            self.in_flight.append((d, decoded))

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), duplicate=st.booleans())
    def network_hands_over_any_packet(self, data, duplicate):
        i = data.draw(st.integers(0, len(self.in_flight) - 1))
        self.receive(*(self.in_flight[i] if duplicate else self.in_flight.pop(i)))

    def receive(self, process, message):
        for sender, clock, payload in self.machines[process].receive(message):
            assert payload == b"payload"
            assert not self.history.overtaken_by(process, (sender, clock))
            assert (sender, clock) not in self.history.order.get(process, [])
            self.history.deliver(process, (sender, clock))

    @rule()
    def a_process_joins(self):
        if len(self.machines) < 68:
            index = len(self.machines)
            for machine in self.machines:
                machine.join(index)
            self.machines.append(create("ks", index, index + 1))
            self.active.append(index)

    @precondition(lambda self: len(self.active) > 2)
    @rule(data=st.data())
    def a_process_leaves(self, data):
        process = data.draw(st.sampled_from(self.active))
        self.active.remove(process)  # what is in flight to it still arrives
        for machine in self.machines:
            machine.leave(process)
        with pytest.raises(LocalProtocolError, match="has left"):
            self.machines[self.active[0]].multicast([process], b"")

    @rule(data=st.data())
    def a_process_restarts_from_its_snapshot(self, data):
        process = data.draw(st.sampled_from(self.active))
        old = self.machines[process]
        self.machines[process] = new = create("ks", process, old.n)
        new.restore(old.snapshot())
        assert new.snapshot() == old.snapshot()
        assert new.pending() == old.pending()

    @rule(data=st.data())
    def a_clock_advances_on_its_own(self, data):
        machine = self.machines[data.draw(st.sampled_from(self.active))]
        assert machine.tick() > 0

    @invariant()
    def logs_hold_exactly_the_necessary_information(self):
        for process in getattr(self, "active", ()):
            assert self.machines[process].log_units() == self.history.log(process)

    @invariant()
    def what_is_held_says_exactly_what_it_waits_for(self):
        for process in getattr(self, "active", ()):
            for held in self.machines[process].pending():
                key = (held.message.sender, held.message.clock)
                assert held.waits_for
                assert set(held.waits_for) <= self.history.overtaken_by(process, key)

    def teardown(self):
        while getattr(self, "in_flight", None):
            self.receive(*self.in_flight.pop())
        if hasattr(self, "machines"):
            assert not self.history.undelivered()
            assert not any(machine.pending() for machine in self.machines)


KsSystem.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestKsSystem = KsSystem.TestCase


def test_the_registry_knows_ks_and_it_is_the_default():
    facts = protocols()[DEFAULT]
    assert DEFAULT == "ks"
    assert (facts.order, facts.fifo_links) == ("causal", False)
    assert facts.casts == {"unicast", "broadcast", "multicast"}
    assert facts.description
    assert "Kshemkalyani" in facts.paper


def test_an_unknown_protocol_is_refused_with_the_known_names():
    with pytest.raises(LocalProtocolError, match=r"'kss'.*ks"):
        create("kss", 0, 3)


@pytest.mark.parametrize("to", [[], [3], [-1], [0, 7]], ids=["nobody", "index n", "negative", "one unknown"])
def test_a_multicast_to_no_one_or_someone_unknown_changes_nothing(to):
    machine = create("ks", 0, 3)
    before = machine.snapshot()
    with pytest.raises(LocalProtocolError):
        machine.multicast(to, b"")
    assert machine.snapshot() == before


def test_a_payload_must_be_bytes():
    with pytest.raises(LocalProtocolError, match="bytes"):
        create("ks", 0, 3).multicast([1], "text")


def test_a_machine_outside_its_system_is_refused():
    with pytest.raises(LocalProtocolError):
        create("ks", 3, 3)


def message_to_one(n=3, to=(1,)):
    return {e.to: e.message for e in create("ks", 0, n).multicast(to, b"").effects}[1]


@pytest.mark.parametrize(
    "message, reason",
    [
        (message_to_one()._replace(dests=0b100), "not addressed"),
        (message_to_one(to=(1, 2))._replace(receiver=2), "copy made for process 2"),
        (message_to_one()._replace(sender=9), "no sender"),
        (message_to_one()._replace(clock=0), "no clock"),
        (message_to_one(n=4), "join"),
        ("hello", "not a message"),
    ],
    ids=["not ours", "another's copy", "unknown sender", "no clock", "a larger system", "not a message"],
)
def test_what_no_correct_peer_sends_is_refused_and_changes_nothing(message, reason):
    machine = create("ks", 1, 3)
    before = machine.snapshot()
    with pytest.raises(RemoteProtocolError, match=reason):
        machine.receive(message)
    assert machine.snapshot() == before


def test_a_message_that_depends_on_one_we_never_sent_is_refused():
    ghost, relay, real = create("ks", 1, 3), create("ks", 0, 3), create("ks", 1, 3)
    (send,) = ghost.multicast([0], b"").effects
    relay.receive(send.message)
    (send,) = relay.multicast([1], b"").effects
    with pytest.raises(RemoteProtocolError, match="never sent"):
        real.receive(send.message)


def test_pending_says_what_is_missing_and_since_which_event():
    zero, one, two = (create("ks", p, 3) for p in range(3))
    first = {e.to: e.message for e in zero.multicast([1, 2], b"").effects}
    one.receive(first[1])
    (reply,) = one.multicast([2], b"").effects
    two.tick()
    assert two.receive(reply.message) == []
    (held,) = two.pending()
    assert held.message == reply.message
    assert held.waits_for == ((0, 1),)
    assert held.since == 2
    assert [(e.sender, e.clock) for e in two.receive(first[2])] == [(0, 1), (1, 1)]
    assert two.pending() == []


def test_a_lie_about_a_message_never_sent_to_us_does_not_wedge_a_later_delivery():
    """RCV(1) waits for t <= SR[s]; a peer that names M(0,1), which went elsewhere, is outlived by M(0,2)."""
    zero, one, two = (create("ks", p, 3) for p in range(3))
    (elsewhere,) = zero.multicast([1], b"").effects
    one.receive(elsewhere.message)
    (send,) = one.multicast([2], b"").effects
    lie = send.message._replace(wait_for=1)  # lane 0: M(0, 1)
    assert two.receive(lie) == []
    (second,) = zero.multicast([2], b"").effects
    assert [(e.sender, e.clock) for e in two.receive(second.message)] == [(0, 2), (1, 1)]


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"\xff", b'{"protocol":"ks","version":2}', b'{"protocol":"ks","version":1,"me":0}', b"[1]"],
    ids=["empty", "no fields", "not text", "a newer version", "cut short", "not an object"],
)
def test_a_bad_snapshot_is_refused_and_changes_nothing(data):
    machine = create("ks", 0, 2)
    machine.multicast([1], b"")
    before = machine.snapshot()
    with pytest.raises(LocalProtocolError, match="not a snapshot"):
        machine.restore(data)
    assert machine.snapshot() == before


def test_join_takes_the_next_index_only_and_leave_only_once():
    machine = create("ks", 0, 2)
    with pytest.raises(LocalProtocolError, match="index 2"):
        machine.join(5)
    machine.join(2)
    assert machine.n == 3
    machine.leave(1)
    with pytest.raises(LocalProtocolError):
        machine.leave(1)
