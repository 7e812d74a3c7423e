"""The driver: replay, faults of the network, membership, and agreement with the machines' own numbering."""

from collections import Counter, defaultdict
from functools import partial

import pytest

from happened.core.errors import LocalProtocolError
from happened.ordering import create, protocols
from happened.sim.ledger import Ledger
from happened.sim.network import Delay, Network, Partition
from happened.sim.simulation import ScheduledChange, Simulation
from happened.sim.workload import Workload
from oracles.full_history import FullHistory
from oracles.unordered import Unordered

SEED = 20


class Events:
    """A recorder that keeps everything in memory."""

    def __init__(self):
        self.rows = []

    def sent(self, process, seq, clock, to, time, entries, size):
        self.rows.append(("send", process, seq, (process, clock), time, tuple(to), entries, size))

    def received(self, process, seq, message, time, entries, size):
        name = (message.sender, message.clock)
        self.rows.append(("receive", process, seq, name, time, entries, size, message.units()))

    def delivered(self, process, seq, message, time):
        self.rows.append(("deliver", process, seq, message, time))

    def of(self, kind):
        return [row for row in self.rows if row[0] == kind]


def simulated(factory=FullHistory, processes=4, messages=60, *, seed=SEED, **options):
    events = Events()
    simulation = Simulation(
        factory,
        processes,
        messages,
        seed=seed,
        recorder=events,
        control_sizes=lambda messages: [7 * m.size()[0] for m in messages],
        **options,
    )
    undelivered = simulation.run()
    return events, simulation.ledger.totals(), undelivered


def ks(me, n):
    return create("ks", me, n)


def test_one_seed_replays_the_same_run_and_another_does_not():
    network = Network(duplicate=0.2)
    first, again, other = (simulated(seed=seed, network=network) for seed in (1, 1, 2))
    assert first[0].rows == again[0].rows and first[1] == again[1]
    assert first[0].rows != other[0].rows and first[1] != other[1]


def test_changing_the_delays_leaves_the_sends_alone():
    slow, fast = (simulated(network=Network(Delay("constant", (delay,))))[0] for delay in (1.0, 0.001))
    sends = [[row[3:6] for row in events.of("send")] for events in (slow, fast)]
    assert sends[0] == sends[1]
    assert slow.of("deliver") != fast.of("deliver")


def test_every_message_is_received_and_delivered_once_at_each_destination():
    events, ledger, undelivered = simulated(ks)
    expected = Counter((row[3], d) for row in events.of("send") for d in row[5])
    assert len(events.of("send")) == 60
    for kind in ("receive", "deliver"):
        assert Counter((row[3], row[1]) for row in events.of(kind)) == expected
    assert undelivered == []
    assert ledger["messages"] == 60
    assert ledger["transmissions"] == ledger["arrivals"] == ledger["deliveries"] == expected.total()


def test_the_events_of_a_process_are_numbered_from_one_without_gaps_and_in_time_order():
    events, _, _ = simulated(ks, network=Network(duplicate=0.3))
    numbers = defaultdict(list)
    for row in events.rows:
        numbers[row[1]].append(row[2])
    assert len(numbers) == 4
    assert all(own == list(range(1, len(own) + 1)) for own in numbers.values())
    assert [row[4] for row in events.rows] == sorted(row[4] for row in events.rows)


def test_a_held_message_is_held_since_the_event_of_its_arrival():
    """With one message that never becomes deliverable, what depends on it is held to the end."""

    class WaitsForNobody(FullHistory):
        def _lacks(self, message):
            return super()._lacks(message) or (((9, 9),) if message.name == (0, 1) else ())

    events, ledger, undelivered = simulated(WaitsForNobody, network=Network(duplicate=0.2))
    arrivals = {(row[1], row[2]): row[3] for row in events.of("receive")}
    assert undelivered
    for left in undelivered:
        assert arrivals[left.process, left.since] == left.message
        assert left.waits_for
    assert ledger["deliveries"] + len(undelivered) == ledger["transmissions"]


def test_what_a_machine_drops_is_reported_without_a_reason():
    class Deaf(Unordered):
        def receive(self, message):
            return []

    _, ledger, undelivered = simulated(Deaf, messages=5)
    assert len(undelivered) == ledger["transmissions"] > 0
    assert {(left.waits_for, left.since) for left in undelivered} == {((), None)}


def test_duplicates_arrive_and_are_not_delivered_again():
    events, ledger, undelivered = simulated(ks, network=Network(duplicate=0.5))
    assert ledger["arrivals"] > 1.3 * ledger["transmissions"]
    assert ledger["deliveries"] == ledger["transmissions"] and undelivered == []
    assert len(events.of("receive")) == ledger["arrivals"]
    assert max(Counter((row[1], row[3]) for row in events.of("deliver")).values()) == 1


def test_fifo_links_keep_each_channel_in_order_and_others_do_not():
    def overtakings(fifo):
        events, _, _ = simulated(Unordered, network=Network(fifo=fifo))
        channels = defaultdict(list)
        for _, process, _, (sender, clock), *_ in events.of("receive"):
            channels[sender, process].append(clock)
        return sum(clocks != sorted(clocks) for clocks in channels.values())

    assert overtakings(fifo=True) == 0
    assert overtakings(fifo=False) > 0


def test_nothing_crosses_a_partition_and_everything_arrives_after_it():
    island = frozenset({0, 1})
    events, _, undelivered = simulated(ks, network=Network(partitions=(Partition(0.2, 1.2, island),)))
    crossing = [row[4] for row in events.of("receive") if (row[1] in island) != (row[3][0] in island)]
    inside = [row[4] for row in events.of("receive") if (row[1] in island) == (row[3][0] in island)]
    assert not any(0.2e9 <= time < 1.2e9 for time in crossing)
    assert any(0.2e9 <= time < 1.2e9 for time in inside)
    assert undelivered == []


def test_the_ledger_counts_what_the_messages_carry():
    events, ledger, _ = simulated()
    carried = [(row[5], len(row[7])) for row in events.of("receive")]
    entries, units = sum(e for e, _ in carried), sum(u for _, u in carried)
    assert entries and units
    transmissions = len(carried)
    assert ledger["entries"]["mean"] == pytest.approx(entries / transmissions)
    assert ledger["units"] == {
        "mean": pytest.approx(units / transmissions),
        "max": max(u for _, u in carried),
    }
    assert ledger["control_bytes"]["mean"] == pytest.approx(7 * entries / transmissions)
    assert ledger["model_bytes"]["mean"] == pytest.approx((6 * entries + 2 * units) / transmissions)
    assert sum(row[6] for row in events.of("send")) == entries
    assert sum(row[7] for row in events.of("send")) == 7 * entries


def test_waiting_times_run_from_arrival_to_delivery():
    events, ledger, _ = simulated(ks, network=Network(duplicate=0.3))
    arrived = {}
    for row in events.of("receive"):
        arrived.setdefault((row[1], row[3]), row[4])
    waits = [row[4] - arrived[row[1], row[3]] for row in events.of("deliver")]
    assert max(waits) > 0
    assert ledger["wait"]["max"] == max(waits) / 1e9
    assert ledger["wait"]["mean"] == pytest.approx(sum(waits) / len(waits) / 1e9)
    assert ledger["held"]["max"] >= 1


def test_a_machine_that_holds_nothing_back_never_waits():
    _, ledger, _ = simulated(Unordered)
    assert ledger["wait"] == {"mean": 0.0, "p99": 0.0, "max": 0.0}
    assert ledger["held"]["max"] == 0
    assert ledger["log_units"] is None


def test_a_process_that_joins_sends_and_is_sent_to():
    events, _, undelivered = simulated(
        ks, 3, 200, changes=[ScheduledChange(1.0, "join", 3), ScheduledChange(2.0, "join", 4)]
    )
    for joined, since in ((3, 1e9), (4, 2e9)):
        own = [row for row in events.rows if row[1] == joined]
        assert {row[0] for row in own} == {"send", "receive", "deliver"}
        assert own[0][4] >= since
    assert undelivered == []


def test_a_process_that_leaves_sends_nothing_and_drains_what_is_on_its_way():
    events, _, undelivered = simulated(
        ks,
        4,
        200,
        changes=[ScheduledChange(1.0, "leave", 2), ScheduledChange(1.5, "join", 4)],
        network=Network(Delay("constant", (0.5,))),
    )
    after = [row for row in events.rows if row[4] >= 1e9]
    assert not any(row[1] == 2 or 2 in row[5] for row in after if row[0] == "send")
    assert any(row[1] == 2 and row[0] == "deliver" for row in after)
    assert any(row[1] == 4 and row[0] == "deliver" for row in after)
    assert undelivered == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (ScheduledChange(0.1, "join", 7), "next process to join is 4, not 7"),
        (ScheduledChange(0.1, "leave", 9), "not present and cannot leave"),
    ],
)
def test_impossible_changes_are_refused(change, reason):
    with pytest.raises(LocalProtocolError, match=reason):
        simulated(changes=[change])


def test_a_run_ends_when_everybody_else_has_left():
    events, _, _ = simulated(
        ks, 2, 10_000, changes=[ScheduledChange(1.0, "leave", 0)], workload=Workload("unicast")
    )
    assert 0 < len(events.of("send")) < 10_000


@pytest.mark.parametrize("name", [name for name, facts in protocols().items() if facts.assumes.serialized])
def test_sends_that_must_be_serialized_wait_for_the_token(name, seed):
    """All that is sent is delivered, in one order everywhere, and passing the token is accounted for."""
    events, ledger = Events(), Ledger()
    pattern = "multicast" if "multicast" in protocols()[name].assumes.casts else "broadcast"
    Simulation(
        partial(create, name),
        4,
        200,
        seed=seed,
        workload=Workload(pattern),
        network=Network(duplicate=0.1),
        recorder=events,
        ledger=ledger,
    ).run()
    sent = {row[3]: row[5] for row in events.of("send")}
    orders = {process: [row[3] for row in events.of("deliver") if row[1] == process] for process in range(4)}
    assert Counter(m for order in orders.values() for m in order) == {m: len(to) for m, to in sent.items()}
    for order in orders.values():
        assert order == sorted(order, key=lambda message: message[::-1])  # by clock: Lamport's, of one sender
    totals = ledger.totals()
    assert totals["messages"] == 200 and totals["added"] > 50 and totals["late"]["mean"] > 0
    with pytest.raises(LocalProtocolError, match="shares a token"):
        Simulation(partial(create, name), 4, 10, seed=1, changes=[ScheduledChange(1.0, "leave", 2)])
