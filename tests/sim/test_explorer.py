"""The explorer against machines whose faults are known."""

import pytest

from happened.core.effects import Deliver, Send
from happened.ordering.machine import Multicast
from happened.sim.explore import explore
from oracles.full_history import FullHistory
from oracles.unordered import Unordered


class Forgetful(FullHistory):
    """Drops what it would have to hold."""

    def receive(self, message):
        effects = super().receive(message)
        self._held = ()
        return effects


class Stubborn(FullHistory):
    """Waits for its own messages to others as if they were sent to itself."""

    def _lacks(self, message):
        return tuple(name for name, _ in message.past if name not in self._delivered)


class Echoing(Unordered):
    """Delivers everything twice."""

    def receive(self, message):
        return super().receive(message) * 2


class Fragile(Unordered):
    def receive(self, message):
        raise RuntimeError("no message is welcome")


class Misdirected(Unordered):
    """Sends to 0 whatever it is asked to send to 1."""

    def multicast(self, to, payload):
        clock, sends = super().multicast(to, payload)
        return Multicast(clock, [Send(0, send.message) if send.to == 1 else send for send in sends])


class Inventive(Unordered):
    def receive(self, message):
        return [Deliver(message.sender, message.clock + 1, b"")]


def test_a_safe_and_live_machine_has_no_violation_and_is_not_optimal():
    result = explore(FullHistory, 3, 2, optimal=True)
    assert result.programs == 57
    violated = result.counts()
    assert violated.pop("optimality") > 0
    assert violated == {"safety": 0, "liveness": 0, "error": 0}


def test_optimality_is_judged_only_where_a_machine_tells_its_log():
    result = explore(FullHistory, 3, 2)
    assert result.counts() == {"safety": 0, "liveness": 0, "error": 0}
    assert "optimality" in explore("ks", 2, 1).judged


def test_the_shortest_overtaking_is_found():
    """Two messages on one channel; with FIFO links it takes three processes and a relay."""
    result = explore(Unordered, 3, 2)
    assert result.counts()["safety"] > 0 and result.counts()["liveness"] == 0
    first = result.violations[0]
    assert first.kind == "safety"
    assert first.schedule == (
        "0 sends M(0,1) to {0}",
        "0 sends M(0,2) to {0}",
        "0 receives M(0,2)",
        "0 delivers M(0,2)",
    )
    assert first.reason == "0 delivers M(0,2) before M(0,1), sent to it too and causally earlier"


def test_fifo_links_leave_only_the_relay():
    """Lamport's triangle: an order that FIFO links alone do not give needs a third process."""
    assert explore(Unordered, 2, 3, fifo=True, self_addressed=False).violations == ()
    result = explore(Unordered, 3, 2, fifo=True, self_addressed=False)
    first = result.violations[0]
    assert first.kind == "safety" and len(first.schedule) == 6
    assert [line for line in first.schedule if "sends" in line] == [
        "0 sends M(0,1) to {1,2}",
        "1 sends M(1,1) to {2}",
    ]
    assert first.schedule[-1] == "2 delivers M(1,1)"


def test_causal_unicast_needs_three_messages_over_fifo_links():
    assert explore(Unordered, 3, 2, fifo=True, casts="unicast", self_addressed=False).violations == ()
    result = explore(Unordered, 3, 3, fifo=True, casts="unicast", self_addressed=False)
    assert result.counts()["safety"] > 0


@pytest.mark.parametrize(
    ("machine", "kind", "reason"),
    [
        (Forgetful, "liveness", "is never delivered to"),
        (Stubborn, "liveness", "is held at"),
        (Echoing, "safety", "twice"),
        (Fragile, "error", "RuntimeError: no message is welcome"),
        (Misdirected, "safety", "which was not sent to it"),
        (Inventive, "safety", "which was never sent"),
    ],
)
def test_each_kind_of_fault_is_found_and_explained(machine, kind, reason):
    result = explore(machine, 2, 2)
    found = [violation for violation in result.violations if violation.kind == kind]
    assert found and reason in found[0].reason
    assert len(found) == result.counts()[kind]


def test_violations_come_shortest_first_and_at_most_one_of_a_kind_per_program():
    result = explore(Unordered, 3, 2)
    lengths = [len(violation.schedule) for violation in result.violations]
    assert lengths == sorted(lengths)
    keys = [(violation.kind, violation.program) for violation in result.violations]
    assert len(keys) == len(set(keys))


def test_stopping_at_the_first_violation():
    result = explore(Unordered, 3, 2, stop_at_first=True)
    assert len(result.violations) == 1
    assert result.programs < 57


def test_workers_agree_with_one_process_and_report_progress():
    ticks = []
    alone = explore(FullHistory, 3, 2, optimal=True)
    shared = explore(FullHistory, 3, 2, optimal=True, workers=2, progress=lambda *done: ticks.append(done))
    assert shared == alone
    assert ticks == [(done, 57) for done in range(1, 58)]


def test_the_states_of_two_unicasts_counted_by_hand():
    """Each message is unsent, in flight or delivered.

    Both from 0 to 1: the second is not sent before the first, and delivering it first is unsafe and not
    followed: 6 states. One each way: 9, of which two are twofold (a delivery and a send at one process, in
    either order) and the last threefold (either of these at both processes, but not a circle): 13.
    """
    result = explore(Unordered, 2, 2, casts="broadcast", self_addressed=False)
    assert (result.programs, result.states) == (2, 6 + 13)


@pytest.mark.slow
@pytest.mark.parametrize("fifo", [False, True])
def test_ks_is_safe_live_and_optimal_with_three_processes_and_three_multicasts(fifo):
    result = explore("ks", 3, 3, fifo=fifo)
    assert result.programs == 598
    assert result.violations == ()
    assert result.states > 50_000


def test_ks_is_safe_live_and_optimal_over_fifo_links_too():
    result = explore("ks", 3, 3, fifo=True, self_addressed=False)
    assert result.programs == 48
    assert result.violations == ()
    assert result.states > 3_000


class Gossiping(Unordered):
    """Everybody passes on what is new to everybody else."""

    def __init__(self, me, n):
        super().__init__(me, n)
        self._heard = frozenset()

    def receive(self, message):
        name = (message.sender, message.clock)
        if name in self._heard:
            return []
        self._heard |= {name}
        relays = [Send(d, message) for d in range(self.n) if d not in (self.me, message.sender)]
        return [*relays, *super().receive(message)] if self.me in message.to else relays

    def snapshot(self):
        return repr((self.n, self._clock, sorted(self._heard))).encode()

    def restore(self, data):
        self.n, self._clock, heard = eval(data)
        self._heard = frozenset(heard)


class Whispering(Gossiping):
    """Tells one other process and leaves the rest to it."""

    def multicast(self, to, payload):
        clock, sends = super().multicast(to, payload)
        return Multicast(clock, sends[:1])


def test_what_is_sent_on_receiving_travels_too():
    """Flooding: with FIFO links causal, without them not."""
    options = {"casts": "broadcast", "self_addressed": False}
    assert explore(Gossiping, 3, 2, fifo=True, **options).violations == ()
    assert explore(Gossiping, 3, 2, **options).counts()["safety"] > 0
    result = explore(Whispering, 3, 2, **options)
    assert result.counts() == {"safety": 2, "liveness": 0, "error": 0}
    relayed = [line for v in result.violations for line in v.schedule if " from " in line]
    assert relayed == ["2 receives M(1,1) from 0"]


def test_total_order_is_judged_for_agreement_and_not_for_causality():
    result = explore(Unordered, 2, 2, order="total", casts="broadcast")
    assert result.judged == ("safety", "agreement", "liveness", "error")
    assert result.counts()["safety"] == 0 and result.counts()["agreement"] > 0
    first = next(violation for violation in result.violations if violation.kind == "agreement")
    assert first.reason == "1 delivers M(0,1) after M(1,1), and 0 before it"
    assert explore(Unordered, 3, 3, order="total", casts="unicast").violations == ()


def test_causal_total_order_is_judged_for_both_and_fifo_for_each_sender_alone():
    both = explore(Unordered, 2, 2, order="causal-total", casts="broadcast").counts()
    assert both["safety"] > 0 and both["agreement"] > 0
    assert explore(Unordered, 3, 2, order="fifo", fifo=True).violations == ()
    assert explore(Unordered, 3, 2, order="causal", fifo=True).counts()["safety"] > 0
