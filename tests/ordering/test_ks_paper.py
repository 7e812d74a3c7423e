"""Kshemkalyani & Singhal (1998), property by property: one test per statement that can be tested, and the
worked example of the textbook chapter (Fig. 2.8, see docs/papers.md) step by step."""

import pytest

from happened.core.destinations import pack, unpack
from happened.core.effects import Send
from happened.core.lanes import lanes
from happened.ordering import create
from happened.ordering.causal import dependency_log
from oracles.history import History
from oracles.literal_ks import LiteralKs
from oracles.network import Network

# Fig. 2.8 as docs/papers.md completes it: what each event leaves in the log and each message carries.
# "51:46" is the entry (5, 1, {4, 6}); a bare "51:" is an empty set. Clocks tick at deliveries too.
FIGURE_2_8 = """
send    5 51 46 | 4,6: -                              | 51:46
deliver 4 51    |                                     | 51:6
deliver 6 51    |                                     | 51:4
send    4 42 23 | 2,3: 51:6                           | 42:23 51:6
send    6 62 1  | 1: 51:4                             | 51:4 62:1
deliver 2 42    |                                     | 42:3 51:6
send    2 22 1  | 1: 42:3 51:6                        | 22:1 42:3 51:6
deliver 3 42    |                                     | 42:2 51:6
send    2 23 1  | 1: 22:1 42:3 51:6                   | 23:1 42:3 51:6
send    4 43 36 | 3: 42:23 51: ; 6: 42:2 51:6         | 42:2 43:36 51:
deliver 3 43    |                                     | 42:2 43:6 51:
send    3 33 2  | 2: 42:2 43:6 51:                    | 33:2 43:6 51:
deliver 2 33    |                                     | 23:1 33: 43:6 51:
send    5 52 6  | 6: 51:46                            | 51:4 52:6
deliver 6 43    |                                     | 42:2 43:3 51: 62:1
deliver 6 52    |                                     | 42:2 43:3 52: 62:1
deliver 1 22    |                                     | 22: 42:3 51:6
deliver 1 62    |                                     | 22: 42:3 51: 62:
deliver 1 23    |                                     | 23: 42:3 51: 62:
"""
STEPS = [[part.strip() for part in line.split("|")] for line in FIGURE_2_8.strip().splitlines()]


def as_text(entries):
    return " ".join(f"{s}{t}:{''.join(map(str, sorted(dests)))}" for s, t, dests in sorted(entries))


def carried(message):
    """O_M as the paper writes it: the common part and the receiver's own, as one list of entries."""
    entries = {(s, t): set(unpack(dests)) for s, t, dests in message.about_others()}
    for key in message.waits():
        entries.setdefault(key, set()).add(message.receiver)
    return as_text((s, t, dests) for (s, t), dests in entries.items())


def carried_literally(message):
    return as_text((s, t, dests) for (s, t), dests in message.o_m.items())


@pytest.mark.parametrize(
    "make, log_of, carried_by",
    [
        (lambda p: create("ks", p, 7), lambda m: m.log_entries(), carried),
        (
            lambda p: LiteralKs(p, 7),
            lambda m: [(s, t, dests) for (s, t), dests in m.log.items()],
            carried_literally,
        ),
    ],
    ids=["ks", "the literal transcription"],
)
def test_the_nineteen_steps_of_figure_2_8(make, log_of, carried_by):
    machines = {p: make(p) for p in range(1, 7)}
    messages = {}
    assert len(STEPS) == 19
    for number, (event, expected_carried, expected_log) in enumerate(STEPS, 1):
        kind, process, name, *to = event.split()
        machine = machines[int(process)]
        if kind == "send":
            for effect in machine.multicast([int(d) for d in to[0]], b"").effects:
                assert (effect.message.sender, effect.message.clock) == (int(name[0]), int(name[1]))
                messages[name, effect.to] = effect.message
            for group in expected_carried.split(";"):
                receivers, _, entries = group.strip().partition(":")
                for d in receivers.split(","):
                    got = carried_by(messages[name, int(d)])
                    assert got == entries.strip().replace("-", ""), f"step {number}, carried to {d}"
        else:
            effects = machine.receive(messages[name, int(process)])
            assert [f"{e.sender}{e.clock}" for e in effects] == [name], f"step {number}"
            machine.tick()
        assert as_text(log_of(machine)) == expected_log, f"step {number}, log of {process}"


class TestSection44:
    """The numbers of the running example."""

    i, a, n = 1, 5, 24

    def test_snd_splits_what_is_common_from_what_each_destination_is_told(self):
        log = dependency_log.from_entries(self.n, [(self.i, self.a, pack([2, 3, 4, 6, 8]))])
        stripped, waits = dependency_log.strip(log, pack([3, 4, 7, 8, 11]))
        assert list(stripped.entries()) == [(self.i, self.a, pack([2, 6]))]
        told = {d: lanes(self.n).get(clocks, self.i) for d, clocks in waits.items()}
        assert told == {3: self.a, 4: self.a, 8: self.a}  # 7 and 11 are told {2, 6} alone

    def test_rcv_leaves_one_unit_and_the_newest_entry(self):
        o = dependency_log.from_entries(
            self.n,
            [(self.i, t, pack(d)) for t, d in ((7, [1]), (9, [7, 11]), (12, [4]), (20, [15, 16]))],
        )
        log = dependency_log.from_entries(
            self.n,
            [(self.i, t, pack(d)) for t, d in ((9, [2, 7, 13]), (10, [5]), (14, [6]), (20, [3]), (21, [8]))],
        )
        expected = [(self.i, 9, pack([7])), (self.i, 21, pack([8]))]
        assert list(dependency_log.merge(o, log).entries()) == expected
        assert list(dependency_log.merge(log, o).entries()) == expected


def random_run(dice, *, processes, messages, each=lambda network: None, **options):
    """A run to the end, arrivals in any order with duplicates; `each` looks on after every event."""
    network = Network([create("ks", p, processes, **options) for p in range(processes)], optimal=not options)
    sent = 0
    while sent < messages or network.in_flight:
        if sent < messages and (not network.in_flight or dice.random() < 0.3):
            to = dice.sample(range(processes), dice.randint(1, processes))
            network.multicast(dice.randrange(processes), to)
            sent += 1
        else:
            d, message = dice.choice(network.in_flight)
            network.arrive(d, message)
            if dice.random() < 0.1:
                assert network.arrive(d, message) == []
        each(network)
    assert not network.history.undelivered()
    assert network.delivered > messages
    return network


def runs(dice, each=lambda network: None, *, count=30):
    for _ in range(count):
        random_run(dice, processes=dice.randint(2, 6), messages=25, each=each)


class Seen:
    """Compare each log, and each message, with the ones before it."""

    def __init__(self):
        self.logs = {}

    def changes(self, network):
        for process, machine in enumerate(network.machines):
            now = {(s, t): dests for s, t, dests in machine.log_entries()}
            yield self.logs.get((network, process), {}), now
            self.logs[network, process] = now


def newest(log):
    result = {}
    for s, t in log:
        result[s] = max(t, result.get(s, 0))
    return result


@pytest.mark.long
def test_lemma_1_a_destination_stands_in_one_entry_of_a_sender(dice):
    def each(network):
        for machine in network.machines:
            pairs = [(s, d) for s, _, d in machine.log_units()]
            assert len(pairs) == len(set(pairs))
        for _, message in network.in_flight:
            pairs = [(s, d) for s, _, d in message.units()]
            assert len(pairs) == len(set(pairs))

    runs(dice, each)


def test_lemma_2_the_newest_entry_of_a_sender_never_gets_older(dice):
    seen = Seen()

    def each(network):
        for before, now in seen.changes(network):
            assert all(newest(now).get(s, 0) >= t for s, t in newest(before).items())

    runs(dice, each)


def test_lemma_4_a_log_entry_never_gains_a_destination(dice):
    seen = Seen()
    shrunk = 0

    def each(network):
        nonlocal shrunk
        for before, now in seen.changes(network):
            for key, dests in now.items():
                if key in before:
                    assert dests <= before[key]
                    shrunk += dests < before[key]
                else:  # inserted, and not again: nothing newer of that sender was known
                    assert key[1] > newest(before).get(key[0], 0)

    runs(dice, each)
    assert shrunk


def test_lemma_7_only_the_newest_entry_of_a_sender_may_be_empty(dice):
    empty = 0

    def each(network):
        nonlocal empty
        for machine in network.machines:
            log = {(s, t): dests for s, t, dests in machine.log_entries()}
            for (s, t), dests in log.items():
                if not dests:
                    assert t == newest(log)[s]
                    empty += 1

    runs(dice, each)
    assert empty


def test_lemmas_3_and_5_along_every_message_knowledge_grows_and_sets_shrink(dice):
    """Log before the send ⊇ what is carried ⊇ log after the delivery, entry by entry."""
    for _ in range(30):
        n = dice.randint(2, 5)
        network = Network([create("ks", p, n) for p in range(n)])
        for _ in range(20):
            sender = dice.randrange(n)
            before = {(s, t): d for s, t, d in network.machines[sender].log_entries()}
            messages = network.multicast(sender, dice.sample(range(n), dice.randint(1, n)))
            for message in messages.values():
                for s, t, d in message.units():
                    assert d in before[s, t]
            for d, message in list(network.in_flight):
                if dice.random() < 0.5 and (message.sender, message.clock) in network.arrive(d, message):
                    known = newest((s, t) for s, t, _ in network.machines[d].log_entries())
                    told = newest((s, t) for s, t, _ in message.about_others())
                    assert all(known[s] >= t for s, t in told.items())
                    if network.machines[d].log_entries():
                        after = network.machines[d].log_units()
                        carried_units = message.units()
                        for s, t, _ in message.about_others():
                            assert {u for u in after if u[:2] == (s, t)} <= carried_units
        network.drain(dice)


def test_theorems_1_and_4_safety_no_delivery_overtakes_a_cause(dice):
    runs(dice)  # Network checks Definition 2 at every delivery


def test_theorem_2_without_one_necessary_unit_causal_order_is_violated():
    """Every unit that a message to d carries about d is load-bearing: without it, d delivers too early."""
    removed = 0
    for chain in range(1, 4):
        # M(0,1) to {1, last}; then a chain 1 -> 2 -> ... -> last, the last link carrying (0, 1, last).
        last = chain + 1
        machines = [create("ks", p, last + 1) for p in range(last + 1)]
        (to_first, late) = (e.message for e in machines[0].multicast([1, last], b"").effects)
        message = to_first
        for p in range(1, last):
            assert machines[p].receive(message)
            (send,) = machines[p].multicast([p + 1], b"").effects
            message = send.message
        assert (0, 1, last) in message.units()
        mutilated = message._replace(wait_for=0)
        assert machines[last].receive(mutilated), "nothing tells it to wait: the violation"
        assert (0, 1, last) not in mutilated.units()
        removed += 1
        # The whole message waits.
        waiting = create("ks", last, last + 1)
        assert waiting.receive(message) == []
        assert len(waiting.receive(late)) == 2
    assert removed == 3


@pytest.mark.long
def test_theorem_3_and_corollary_1_information_reaches_its_fixed_points(dice):
    """Sufficiency alone: on no edge and in no log is a necessary unit missing."""

    def each(network):
        for process, machine in enumerate(network.machines):
            assert machine.log_units() >= network.history.log(process)

    runs(dice, each)


def test_theorem_5_liveness_everything_sent_is_delivered(dice):
    network = random_run(dice, processes=6, messages=60)
    assert not any(machine.pending() for machine in network.machines)


def test_theorems_6_and_7_optimality_nothing_but_the_necessary_is_carried_or_stored(dice):
    runs(dice)  # Network compares units on every edge and in every log with PC1 and PC2


def test_theorem_8_a_message_can_have_to_carry_a_unit_for_every_pair(seed):
    """Each of n - 1 processes sends to each other one, all slow, except to the one that listens."""
    n = 5
    network = Network([create("ks", p, n) for p in range(n)])
    for p in range(1, n):
        for d in range(1, n):
            if d != p:
                network.arrive(0, network.multicast(p, [0, d])[0])
    carried_units = network.multicast(0, [0])[0].units()
    assert {(s, d) for s, _, d in carried_units if d} == {
        (p, d) for p in range(1, n) for d in range(1, n) if p != d
    }


def test_definition_3_multiple_fixed_points_of_one_unit_are_concurrent(dice):
    network = random_run(dice, processes=4, messages=30)
    history: History = network.history
    pairs = 0
    for m, dests in history.dests.items():
        for d in dests:
            fixed = [
                k
                for k in history.dests
                if d in history.dests[k]
                and ("send", m) in history.before[k]
                and ("deliver", m, d) not in history.before[k]
                and not any(
                    d in history.dests[c]
                    and ("send", m) in history.before[c]
                    and ("send", c) in history.before[k]
                    for c in history.dests
                )
            ]
            for a in fixed:
                for b in fixed:
                    assert a == b or ("send", a) not in history.before[b]
                    pairs += a != b
    assert pairs


def test_hardware_multicast_sends_one_message_and_keeps_the_same_logs(dice):
    """§4.5: extra bytes on the edge, none beyond it."""
    for _ in range(20):
        n = dice.randint(2, 5)
        hardware = Network([create("ks", p, n, hardware_multicast=True) for p in range(n)], optimal=False)
        for _ in range(25):
            messages = hardware.multicast(dice.randrange(n), dice.sample(range(n), dice.randint(1, n)))
            assert len(set(map(id, messages.values()))) == 1
            while hardware.in_flight and dice.random() < 0.7:
                hardware.arrive(*dice.choice(hardware.in_flight))
            for p, machine in enumerate(hardware.machines):
                assert machine.log_units() == hardware.history.log(p)
        hardware.drain(dice)


def test_lookahead_is_safe_and_live_in_its_corrected_form(dice):
    held = 0

    def each(network):
        nonlocal held
        held += sum(len(machine.pending()) for machine in network.machines)

    for _ in range(60):
        random_run(dice, processes=dice.randint(2, 5), messages=25, each=each, lookahead=True)
    assert held


def test_lookahead_sends_less_after_a_held_message_arrives():
    """M(0,1)→{1,2}; 1 hears of it and M(1,1)→2; then M(0,2)→1 is slow, M(0,3)→{1,2} is held at 1."""

    def units_of_next(lookahead):
        zero, one = create("ks", 0, 3), create("ks", 1, 3, lookahead=lookahead)
        first = {e.to: e.message for e in zero.multicast([1, 2], b"").effects}
        assert one.receive(first[1])
        zero.multicast([1], b"")
        third = {e.to: e.message for e in zero.multicast([1, 2], b"").effects}
        assert one.receive(third[1]) == []
        (send,) = one.multicast([0], b"").effects
        assert isinstance(send, Send)
        return send.message.units()

    assert units_of_next(False) == {(0, 1, 2)}
    assert units_of_next(True) == {(0, 3, 1), (0, 3, 2)}
