"""Incomplete orders (Rodrigues & Veríssimo 1995, chapter 6): labels, priorities, managed histories.

What each promises is judged on plain sets: numbers of sends, never what is carried.
"""

import contextlib
import io
import re
from itertools import islice
from pathlib import Path

import pytest

import effort
from happened import wire
from happened.core.effects import Send
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.ordering.causal.incomplete import (
    NOTHING,
    CausalHistory,
    Labelled,
    ManagedHistories,
    Priorities,
)
from happened.sim.explore import explore
from oracles.history import History
from oracles.incomplete import (
    Covered,
    LastClock,
    LeaveOutWhatWasTold,
    Run,
    SameSender,
    ToldApart,
    applications,
)

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "large-systems.md"

# --- histories that the application manages -------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.long
def test_every_application_of_three_messages_is_ordered_as_its_histories_say():
    count = states = 0
    for sends in effort.some(applications(3)):
        explored, fault = Run(sends).explore()
        assert fault is None, f"{sends}: {fault}"
        count, states = count + 1, states + explored
    assert (count, states) == ((1_380, 41_414) if effort.THOROUGH else (345, 9_840))


@pytest.mark.slow
def test_many_applications_of_four_messages_are_ordered_as_their_histories_say():
    for sends in islice(applications(4), 0, None, 61):
        _, fault = Run(sends).explore()
        assert fault is None, f"{sends}: {fault}"


# What a rule of complete orders breaks: sends as (process, destinations, basis), and what is found.
UNSAFE = {
    "R5: 0 sends 0 and 1 apart, and 2 after 0": (
        LastClock,
        [(0, (1,), ()), (0, (1,), ()), (0, (1,), (0,))],
        "1 delivers 2 before [0]",
    ),
    "R6.3: 0 sends 0 and 1 apart, and 2 after both": (
        SameSender,
        [(0, (1,), ()), (0, (1,), ()), (0, (1,), (0, 1))],
        "1 delivers 2 before [0]",
    ),
    "R7: 1 was told of 0, and keeps only what it was told later": (
        LeaveOutWhatWasTold,
        [(0, (2,), ()), (0, (1,), (0,)), (0, (1,), (1,)), (1, (2,), (2,))],
        "2 delivers 3 before [0]",
    ),
    "C outside the value: 1 is told of 0 by a message that the next does not follow": (
        ToldApart,
        [(0, (1,), ()), (0, (1,), (0,)), (0, (1,), (0,))],
        "1 delivers 2 before [0]",
    ),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_rules_of_complete_orders_are_unsafe_here(name):
    machine, sends, fault = UNSAFE[name]
    assert Run(sends).explore()[1] is None
    assert Run(sends, machine=machine).explore()[1] == fault


def test_messages_that_share_no_history_overtake():
    sender, receiver = ManagedHistories(0, 2), ManagedHistories(1, 2)
    (first,), _ = sender.send([1], b"first")
    (second,), history = sender.send([1], b"second")
    (third,), _ = sender.send([1], b"third", history)
    assert receiver.receive(third.message) == []
    assert [(held.waits_for, held.since) for held in receiver.pending()] == [(((0, 2),), 1)]
    assert receiver.receive(third.message) == []
    assert [held.since for held in receiver.pending()] == [1]
    assert [d.payload for d in receiver.receive(second.message)] == [b"second", b"third"]
    assert [d.payload for d in receiver.receive(first.message)] == [b"first"]


def test_the_guide_shows_what_happens():
    code, expected = re.search(
        r"```python\n([^`]*ManagedHistories.*?)```\n```\n(.*?)```", GUIDE.read_text(), re.S
    ).groups()
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, str(GUIDE), "exec"), {})
    assert output.getvalue() == expected


def test_merge_is_a_union_and_nothing_is_its_unit():
    machine = ManagedHistories(0, 3)
    _, a = machine.send([1], b"")
    _, b = machine.send([2], b"")
    assert a.merge(b) == b.merge(a) == CausalHistory([*a, *b]) and len(a.merge(b)) == 2
    assert a.merge(a) == a == a.merge(NOTHING) == NOTHING.merge(a) and hash(a) == hash(a.merge(a))
    assert repr(a) == "<CausalHistory M(0, 1)>" and repr(NOTHING) == "<CausalHistory of nothing>"


def test_a_history_may_travel_by_other_means():
    """0 hands 1 its history in a payload: what 1 then sends follows 0's message, which 1 never got."""
    zero, one, two = (ManagedHistories(p, 3) for p in range(3))
    (sent,), history = zero.send([2], b"zero")
    (reply,), _ = one.send([2], b"one", history)
    assert two.receive(reply.message) == []
    assert [d.payload for d in two.receive(sent.message)] == [b"zero", b"one"]


@pytest.mark.parametrize(("sender", "to"), [(5, [1]), (1, [5])], ids=["sent by", "sent to"])
def test_a_history_of_processes_that_have_not_joined_is_refused(sender, to):
    """Nobody could read such a message."""
    _, history = ManagedHistories(sender, 9).send(to, b"")
    machine = ManagedHistories(0, 3)
    before = machine.snapshot()
    with pytest.raises(LocalProtocolError, match=rf"M\({sender}, 1\) of processes that have not joined"):
        machine.send([2], b"", history)
    assert machine.snapshot() == before


def test_what_all_were_told_of_leaves_histories():
    """Round after round between two processes, histories and what is kept of deliveries stay small."""
    machines, history = [ManagedHistories(p, 2) for p in range(2)], NOTHING
    for i in range(200):
        (send,), _ = machines[i % 2].send([1 - i % 2], b"", history)
        (delivered,) = machines[1 - i % 2].receive(send.message)
        history = delivered.history
        assert len(history) <= 1
    assert len(machines[0].snapshot()) < 400


def test_who_has_left_need_not_be_told():
    machine = ManagedHistories(0, 3)
    _, history = machine.send([1], b"")
    machine.leave(1)
    (send,), history = machine.send([2], b"", history)
    assert [cause[:2] for cause in history] == [(0, 2)] and send.message.size()[0] == 1
    with pytest.raises(LocalProtocolError, match="has left"):
        machine.send([1], b"")


def test_deliveries_are_kept_exactly_and_what_has_no_gap_as_one_clock(dice):
    sender, receiver = ManagedHistories(0, 3), ManagedHistories(1, 3)
    sends = []
    for i in range(60):
        made, _ = sender.send([2] if i % 3 else [1], b"")
        sends += [send.message for send in made if send.to == 1]
    dice.shuffle(sends)
    for i, message in enumerate(sends):
        assert len(receiver.receive(message)) == 1 and receiver.receive(message) == []
        for other in sends:
            known = receiver._is_delivered(other.sender, other.clock)
            assert known == (other in sends[: i + 1])
    assert receiver._delivered[0].state() == (max(m.clock for m in sends), ())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dests": 0b100}, "not addressed"),
        ({"previous": 2}, "comes after"),
        ({"clock": 1}, "had not sent yet"),
        ({"n": 4}, "join"),
        ({"sender": 9}, "no sender"),
    ],
)
def test_what_no_correct_peer_sends_is_refused_and_changes_nothing(change, reason):
    sender, machine = ManagedHistories(0, 3), ManagedHistories(1, 3)
    _, history = sender.send([2], b"")
    (send,), _ = sender.send([1], b"", history)
    before = machine.snapshot()
    for message in (send.message._replace(**change), "hello"):
        with pytest.raises(RemoteProtocolError, match=reason if message != "hello" else "not a "):
            machine.receive(message)
    assert machine.snapshot() == before
    with pytest.raises(LocalProtocolError):
        sender.send([], b"")
    for priority in (1 << 31, "high"):
        with pytest.raises(LocalProtocolError, match="a priority is"):
            sender.send([1], b"", priority=priority)
    with pytest.raises(LocalProtocolError, match="not a snapshot"):
        machine.restore(b"{}")


# --- priorities -----------------------------------------------------------------------------------------


def test_with_one_priority_the_order_is_complete():
    result = explore(Priorities, 3, 3, self_addressed=False)
    assert (result.programs, result.states, result.violations) == (48, 3_895, ())


class PriorityWalk:
    """Random messages of some priorities; the judge knows the causal past of each as a set."""

    def __init__(self, dice, machines):
        self.dice, self.machines = dice, machines
        self.history, self.priority, self.in_flight = History(), {}, []
        self.overtakes = 0

    def send(self):
        p = self.dice.randrange(len(self.machines))
        to = self.dice.sample(range(len(self.machines)), self.dice.randint(1, 3))
        priority = self.dice.randrange(3)
        clock, effects = self.machines[p].multicast(to, b"", priority=priority)
        name = (p, clock)
        self.priority[name] = priority
        self.history.send(p, name, to)
        self.in_flight += effects

    def arrive(self):
        d, made = self.in_flight.pop(self.dice.randrange(len(self.in_flight)))
        message, _ = wire.decode(wire.encode(made))
        assert message == made
        for effect in self.machines[d].receive(message):
            name = (effect.sender, effect.clock)
            overtaken = self.history.overtaken_by(d, name)
            assert not any(self.priority[m] >= self.priority[name] for m in overtaken)
            self.overtakes += len(overtaken)
            self.history.deliver(d, name)
        for held in self.machines[d].pending():
            lowest = min(self.priority[name] for name in held.waits_for)
            assert lowest >= self.priority[held.message.sender, held.message.clock]

    def run(self, sends):
        while sends or self.in_flight:
            if sends and (not self.in_flight or self.dice.random() < 0.35):
                sends -= 1
                self.send()
            else:
                self.arrive()
        assert not self.history.undelivered()
        return self.overtakes


def test_a_message_waits_for_its_own_and_higher_priorities_and_for_no_lower_one(dice):
    walks = [PriorityWalk(dice, [Priorities(p, 4) for p in range(4)]) for _ in range(40)]
    assert sum(walk.run(40) for walk in walks) > 100


def test_an_urgent_message_overtakes_and_is_still_ordered_through_lesser_ones():
    """0 sends an urgent one to 2 and a lesser one to 1, who then sends an urgent one to 2."""
    zero, one, two = (Priorities(p, 3) for p in range(3))
    (lesser,) = zero.multicast([2], b"lesser").effects
    (first,) = zero.multicast([2], b"first", priority=1).effects
    (to_one,) = zero.multicast([1], b"").effects
    one.receive(to_one.message)
    (second,) = one.multicast([2], b"second", priority=1).effects
    assert two.receive(second.message) == []
    assert [effect.payload for effect in two.receive(first.message)] == [b"first", b"second"]
    assert (0, 1) in [cause[:2] for cause in two.history()]  # what was overtaken is still to come
    assert [effect.payload for effect in two.receive(lesser.message)] == [b"lesser"]


def test_a_lesser_message_tells_nobody_of_an_urgent_one():
    """0 sends 0, urgent, to 1, and after it 1, lesser, and after that 2, urgent."""
    sends = [(0, (1,), (), 1), (0, (1,), (0,), 0), (0, (1,), (1,), 1)]
    assert Run(sends).explore()[1] is None
    assert Run(sends, machine=Covered).explore()[1] == "1 delivers 2 before [0]"


def test_priorities_survive_a_restart(dice):
    class Restarted(Priorities):
        def receive(self, message):
            effects = super().receive(message)
            data, held = self.snapshot(), self.pending()
            self.restore(data)
            assert self.snapshot() == data and self.pending() == held
            return effects

    PriorityWalk(dice, [Restarted(p, 4) for p in range(4)]).run(80)
    with pytest.raises(LocalProtocolError, match="not a snapshot"):
        Priorities(0, 2).restore(ManagedHistories(0, 2).snapshot())


# --- labels ---------------------------------------------------------------------------------------------


def test_with_one_label_the_order_is_complete():
    result = explore(Labelled, 3, 3, self_addressed=False)
    assert (result.programs, result.states, result.violations) == (48, 3_895, ())


def test_each_label_is_in_causal_order_and_none_waits_for_another(dice):
    """The judge keeps a separate past for each label: that label's messages are all it knows of."""
    n, labels, overtakes = 4, ("a", "b", "c"), 0
    for _ in range(30):
        machines, whole = [Labelled(p, n) for p in range(n)], History()
        histories, in_flight, label_of = {label: History() for label in labels}, [], {}
        for step in range(150):
            if step < 40:
                p, label = dice.randrange(n), dice.choice(labels)
                to = dice.sample(range(n), dice.randint(1, 3))
                clock, effects = machines[p].multicast(to, label.encode(), label=label)
                in_flight += effects
                label_of[p, clock] = label
                for history in (whole, histories[label]):
                    history.send(p, (p, clock), to)
            while in_flight and (step >= 40 or dice.random() < 0.6):
                d, made = in_flight.pop(dice.randrange(len(in_flight)))
                message, _ = wire.decode(wire.encode(made))
                assert message == made
                for sender, clock, payload in machines[d].receive(message):
                    label = payload.decode()
                    assert label == label_of[sender, clock]
                    assert not histories[label].overtaken_by(d, (sender, clock))
                    overtakes += len(whole.overtaken_by(d, (sender, clock)))
                    for history in (whole, histories[label]):
                        history.deliver(d, (sender, clock))
                for held in machines[d].pending():
                    name = (held.message.sender, held.message.clock)
                    assert histories[held.message.label].overtaken_by(d, name)
        assert not whole.undelivered()
    assert overtakes > 100


def test_labels_survive_joins_and_restarts():
    zero, one = Labelled(0, 2), Labelled(1, 2)
    (a1,) = zero.multicast([1], b"a1", label="a").effects
    (a2,) = zero.multicast([1], b"a2", label="a").effects
    assert one.receive(a2.message) == []
    for machine in (zero, one):
        machine.join(2)
    again = Labelled(1, 3)
    again.restore(one.snapshot())
    assert again.snapshot() == one.snapshot() and again.pending() == one.pending()
    assert again.pending()[0].waits_for == ((0, 1),)
    (b,) = zero.multicast([1], b"b", label="b").effects
    assert [effect.payload for effect in again.receive(b.message)] == [b"b"]
    assert [effect.payload for effect in again.receive(a1.message)] == [b"a1", b"a2"]
    two = Labelled(2, 3)
    sends = again.multicast([0, 2], b"c", label="a").effects
    assert [two.receive(send.message) != [] for send in sends if send.to == 2] == [True]


def test_labels_are_bounded_and_bad_messages_change_nothing():
    zero, one = Labelled(0, 2, most=2), Labelled(1, 2, most=1)
    sends = [zero.multicast([1], b"", label=label).effects[0] for label in "ab"]
    with pytest.raises(LocalProtocolError, match="'c' would be one label more than the 2"):
        zero.multicast([1], b"", label="c")
    for label in (3, "\ud800", "x" * 256):
        with pytest.raises(LocalProtocolError, match="a label is text"):
            zero.multicast([1], b"", label=label)
    one.receive(sends[0].message)
    before = one.snapshot()
    message = sends[1].message
    for wrong, reason in (
        (message, "one label more than the 1"),
        (message._replace(label="a", sender=1), "ours"),
        (message._replace(label="a", dests=0b11), "another message"),
        (message._replace(dests=0b01), "not addressed"),
        (message._replace(label="a", hop=message.hop._replace(receiver=0)), "copy made for"),
        ("hello", "not a "),
    ):
        with pytest.raises(RemoteProtocolError, match=reason):
            one.receive(wrong)
    assert one.snapshot() == before
    assert isinstance(sends[0], Send)
