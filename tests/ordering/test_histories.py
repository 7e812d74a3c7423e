"""`histories`: the report's rules hop by hop, its worked example, and what its printed form gets wrong."""

import random
from functools import partial

import pytest

import effort
from happened.core.effects import Send
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.core.places import Place
from happened.ordering import create
from happened.ordering.causal.extended_history import ExtendedHistory, HistoryEntry
from happened.ordering.causal.histories import Histories
from happened.sim.explore import explore
from oracles.history import History as Truth
from oracles.places import hop_places, path, star
from oracles.printed_histories import (
    AppendixFilter,
    AppendixRecords,
    BodyFilter,
    InferenceOverTimestamp,
    IsInWithoutSender,
    with_history,
)
from oracles.worlds import explorer, program


def names(entries):
    return [(entry.sender, entry.clock) for entry in entries]


def known(machine):
    """(sender, clock) -> carbon copies, as a set."""
    return {
        (e.sender, e.clock): {p for p in range(machine.n) if e.copied >> p & 1} for e in machine.history()
    }


def test_the_worked_example_of_figure_4_1():
    one, two, three = (Histories(p, 3) for p in range(3))
    a = {send.to: send.message for send in one.multicast([1, 2], b"a").effects}
    three.receive(a[2])
    assert known(three) == {(0, 1): {0, 2}}
    (b,) = three.multicast([1], b"b").effects
    assert names(b.message.entries) == [(0, 1)]
    assert known(three) == {(2, 1): {2}}  # a is reported to everybody it is for: R8
    (c,) = three.multicast([1], b"c").effects
    assert names(c.message.entries) == [(2, 1)]
    assert two.receive(c.message) == [] and two.receive(b.message) == []
    assert {held.message.payload: held.waits_for for held in two.pending()} == {
        b"c": ((2, 1),),
        b"b": ((0, 1),),
    }
    assert [effect.payload for effect in two.receive(a[1])] == [b"a", b"b", b"c"]


OPTIONS = [{}, {"extended": True}, {"timestamp_redundancy": False}]


@pytest.mark.sampled
@pytest.mark.long
@pytest.mark.parametrize("options", OPTIONS[1:], ids=["R6.1", "without R7"])
def test_three_processes_and_three_messages_are_safe_and_live_in_every_interleaving(options, some_programs):
    result = explore(partial(create, "histories", **options), 3, 3)
    assert result.violations == ()
    assert result.programs == effort.count(598)
    assert result.states >= (34_000 if effort.THOROUGH else 7_000)


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=["R7", "R6.1", "without R7"])
def test_three_processes_and_four_messages_are_safe_and_live_in_every_interleaving(options):
    result = explore(partial(create, "histories", **options), 3, 4)
    assert result.violations == ()
    assert result.programs == 6099


def fault(kind, program):
    exploring = explorer([None] * len(program.sends), with_history(kind))
    return [(violation.kind, violation.reason) for violation in exploring.explore(program).violations]


def test_is_in_must_compare_clocks_of_the_same_sender():
    """Process 0's own clock satisfies the printed test."""
    found = fault(IsInWithoutSender, program(2, (0, [1]), (1, [0]), (1, [0])))
    assert ("safety", "0 delivers M(1,2) before M(1,1), sent to it too and causally earlier") in found


def test_what_is_sent_must_enter_the_senders_own_delivery_history():
    found = fault(AppendixRecords, program(3, (0, [0, 1, 2]), (1, [0, 2])))
    assert found == [("liveness", "M(1,1) is held at 0 for M(0,1) for ever")]


@pytest.mark.parametrize(("kind", "left"), [(None, 1), (InferenceOverTimestamp, 100)])
def test_the_inference_over_timestamps_alone_leaks(kind, left):
    """a to {b, d}, then b to c, a hundred times: what c keeps."""
    machine = Histories if kind is None else with_history(kind)
    a, b, c = (machine(p, 4) for p in range(3))
    for _ in range(100):
        (to_b, _) = a.multicast([1, 3], b"").effects
        b.receive(to_b.message)
        (to_c,) = b.multicast([2], b"").effects
        c.receive(to_c.message)
    assert len([entry for entry in c.history() if entry.sender == 0]) == left


def carried(kind, separators):
    """Entries of what the middle of a line sends to the right after something from the left, and again."""
    place = hop_places(path(3), separators)[1]
    middle = (with_history(kind) if kind else Histories)(1, 3, place=place)
    left = Histories(0, 3)
    for _ in range(2):
        (slow,) = left.multicast([1], b"").effects
        middle.receive(slow.message)
    sent = [middle.multicast(to, b"").effects for to in ([0], [2], [0], [2])]
    return [len(effects[0].message.entries) for effects in sent]


def test_r9_drops_what_does_not_concern_the_other_side_also_ones_own_last_message():
    assert carried(None, [])[1] == carried(None, [])[3] - 1 == 1
    assert carried(None, [(1,)]) == [0, 0, 1, 1]


def test_r9_of_the_appendix_never_fires_and_that_of_the_body_keeps_ones_own_last_message():
    assert carried(AppendixFilter, [(1,)]) == carried(None, [])
    assert carried(BodyFilter, [(1,)]) != carried(None, [(1,)])
    assert carried(BodyFilter, [(1,)])[1] == 1


def traffic(dice, n, sends, machine=Histories, **options):
    """Random messages of a few processes, judged; yields machines, packets and the truth after every step."""
    machines = [machine(p, n, **options) for p in range(n)]
    truth, in_flight = Truth(), []
    while sends or in_flight:
        if sends and (not in_flight or dice.random() < 0.4):
            sends -= 1
            p = dice.randrange(n)
            to = dice.sample(range(n), dice.randint(1, 3))
            clock, effects = machines[p].multicast(to, b"")
            truth.send(p, (p, clock), to)
            in_flight += [(e.to, e.message) for e in effects if isinstance(e, Send)]
        else:
            p, message = in_flight.pop(dice.randrange(len(in_flight)))
            effects = machines[p].receive(message)
        for effect in effects:
            if not isinstance(effect, Send):
                assert not truth.overtaken_by(p, (effect.sender, effect.clock))
                truth.deliver(p, (effect.sender, effect.clock))
        yield machines, in_flight, truth
    assert not truth.undelivered()


class Listening(ExtendedHistory):
    """Keeps, of each message while it is in the history, who delivered it by what timestamps tell."""

    __slots__ = ("heard",)

    def deliver(self, sender, clock, to, entries):
        kept = names(self)  # what has left and comes back is heard of anew
        heard = {name: by for name, by in getattr(self, "heard", {}).items() if name in kept}
        for name in [(sender, clock), *names(entries)]:
            heard[name] = heard.get(name, 0) | 1 << sender | self._me
        super().deliver(sender, clock, to, entries)
        self.heard = heard
        for entry in self:
            assert entry.dests & ~heard.get((entry.sender, entry.clock), 0)


def test_a_message_named_by_all_its_recipients_has_left_the_history(dice):
    """§4.5's test by incoming timestamps finds nothing that R8 has left: the assertion in `Listening`."""
    *_, (machines, _, _) = traffic(dice, 5, 150, machine=with_history(Listening))
    assert any(machine._history.heard for machine in machines)


def test_carbon_copies_that_travel_empty_histories_sooner(dice):
    """R6.1, on the same traffic: no history is larger for it, and some are smaller."""
    seed = dice.randrange(2**32)
    sizes = []
    for extended in (False, True):
        kept = 0
        for machines, _, _ in traffic(random.Random(seed), 5, 200, extended=extended):
            kept += sum(len(machine.history()) for machine in machines)
        sizes.append(kept)
    assert sizes[1] < sizes[0]


def test_without_timestamp_redundancy_everything_known_is_sent():
    """Figure 7.5 needs R7 off: what was told is told again until R8 drops it."""
    counts = []
    for redundancy in (True, False):
        sender = Histories(0, 4, timestamp_redundancy=redundancy)
        sent = [sender.multicast(to, b"").effects[0].message for to in ([1, 2], [1], [1], [1])]
        counts.append([len(message.entries) for message in sent])
    assert counts == [[0, 1, 1, 1], [0, 1, 2, 2]]


def test_what_was_known_before_the_last_interval_is_forgotten():
    """§4.5: a time Δ after which every message is delivered, told by whoever has a clock."""
    machine = Histories(0, 3)
    machine.multicast([1, 2], b"")
    machine.expire()
    assert names(machine.history()) == [(0, 1)]  # it may have been sent just now
    machine.multicast([2], b"")
    machine.expire()
    assert names(machine.history()) == [(0, 2)]
    restarted = Histories(0, 3)
    restarted.restore(machine.snapshot())
    restarted.expire()
    assert restarted.history() == ()


def test_with_a_time_bound_kept_order_is_kept_and_histories_are_shorter(dice):
    """The shortest Δ there can be: over as soon as what was under way at the last call is delivered."""
    kept, seed = [], dice.randrange(2**32)
    for bounded in (False, True):
        size, under_way = 0, set()
        for machines, in_flight, _ in traffic(random.Random(seed), 5, 200):
            now = {(p, m.sender, m.clock) for p, m in in_flight}
            now |= {(m.me, h.message.sender, h.message.clock) for m in machines for h in m.pending()}
            if bounded and not under_way & now:
                under_way = now
                for machine in machines:
                    machine.expire()
            size += sum(len(machine.history()) for machine in machines)
        kept.append(size)
    assert kept[1] < kept[0]


def test_nobody_is_kept_in_mind_who_has_left(dice):
    machine = Histories(0, 4)
    machine.multicast([1, 3], b"")
    machine.multicast([1], b"")
    assert names(machine.history()) == [(0, 1), (0, 2)]
    machine.leave(3)
    assert names(machine.history()) == [(0, 2)]
    other = Histories(1, 4)
    (late, _) = other.multicast([0, 3], b"").effects
    machine.receive(late.message)
    assert names(machine.history()) == [(0, 2)]


def test_only_neighbours_are_addressed_where_there_is_a_place():
    machine = Histories(1, 4, place=hop_places(path(4))[1])
    before = machine.snapshot()
    with pytest.raises(LocalProtocolError, match="3 is no neighbour of process 1"):
        machine.multicast([0, 3], b"")
    assert machine.snapshot() == before
    assert machine.multicast([0, 1, 2], b"").effects


def test_what_was_sent_to_a_newcomer_on_no_known_side_is_not_left_out():
    """Between a join and the move to a new place, nobody knows which side the newcomer is on."""
    left, middle = Histories(0, 4), Histories(1, 3, place=hop_places(path(3), [(1,)])[1])
    middle.join(3)
    left.multicast([3], b"")
    (send,) = left.multicast([1], b"").effects
    middle.receive(send.message)
    (onward,) = middle.multicast([2], b"").effects
    assert names(onward.message.entries) == [(0, 1)]


def test_a_snapshot_keeps_the_place():
    place = hop_places(star(5))[0]
    machine = Histories(0, 5, place=place)
    machine.multicast([1, 2], b"")
    other = Histories(0, 5)
    other.restore(machine.snapshot())
    assert other.place == place and isinstance(other.place, Place)
    assert other.snapshot() == machine.snapshot()


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (HistoryEntry(7, 1, 1), "nobody can have sent"),
        (HistoryEntry(1, 0, 1), "nobody can have sent"),
        (HistoryEntry(1, 1, 0), "nobody can have sent"),
        (HistoryEntry(1, 1, 1 << 9), "nobody can have sent"),
        (HistoryEntry(1, 1, 1, 1 << 9), "nobody can have sent"),
        (HistoryEntry(0, 1, 2), "had not sent yet"),
        (HistoryEntry(2, 5, 4), "we never sent"),
    ],
)
def test_a_timestamp_no_correct_peer_makes_is_refused_and_changes_nothing(entry, reason):
    (send,) = Histories(0, 3).multicast([2], b"").effects
    machine = Histories(2, 3)
    before = machine.snapshot()
    with pytest.raises(RemoteProtocolError, match=reason):
        machine.receive(send.message._replace(entries=(entry,)))
    assert machine.snapshot() == before
