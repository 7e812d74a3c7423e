"""The bit-set truth against the definitions, written out over a networkx graph of the same events."""

from random import Random

import networkx as nx
import pytest

from happened.core.destinations import pack, unpack
from happened.sim.truth import Messages, Truth, on_edge

PROCESSES = 3


class Computation:
    """A random computation told twice: event by event to `truth`, and as a graph."""

    def __init__(self, seed: int, sends: int) -> None:
        rng = Random(seed)
        self.to = [set(rng.sample(range(PROCESSES), rng.randint(1, PROCESSES))) for _ in range(sends)]
        self.messages = Messages(PROCESSES, [pack(to) for to in self.to])
        self.truth = Truth.beginning(self.messages)
        self.graph = nx.DiGraph()
        self.last = [("start", p) for p in range(PROCESSES)]
        self.graph.add_nodes_from(self.last)
        self.unsent = list(range(sends))
        self.undelivered: list[tuple[int, int]] = []
        self._rng = rng

    def send(self) -> tuple[int, int]:
        process, message = self._rng.randrange(PROCESSES), self.unsent.pop(0)
        self.truth = self.truth.send(self.messages, process, message)
        self._append(process, ("send", message))
        self.undelivered += [(message, d) for d in self.to[message]]
        return process, message

    def deliver(self) -> None:
        message, d = self.undelivered.pop(self._rng.randrange(len(self.undelivered)))
        self.truth = self.truth.deliver(self.messages, d, message)
        self._append(d, ("deliver", message, d))
        self.graph.add_edge(("send", message), ("deliver", message, d))

    def step(self) -> None:
        if self.unsent and (not self.undelivered or self._rng.random() < 0.4):
            self.send()
        else:
            self.deliver()

    def past(self, event: tuple) -> set[tuple]:
        return nx.ancestors(self.graph, event) | {event}

    def necessary(self, event: tuple) -> set[tuple[int, int]]:
        """PC1 and PC2 (Kshemkalyani & Singhal 1998, §3.4) word for word, for the log right after `event`."""
        past = self.past(event)
        sent = [m for m in range(len(self.to)) if ("send", m) in past]
        return {
            (m, x)
            for m in sent
            for x in self.to[m]
            if ("deliver", m, x) not in past
            and not any(
                x in self.to[k] and nx.has_path(self.graph, ("send", m), ("send", k)) for k in sent if k != m
            )
        }

    def _append(self, process: int, event: tuple) -> None:
        self.graph.add_edge(self.last[process], event)
        self.last[process] = event


@pytest.mark.parametrize("seed", range(40))
def test_truth_follows_the_definitions(seed):
    computation = Computation(seed, sends=6)
    necessary = 0
    while computation.unsent or computation.undelivered:
        computation.step()
        truth, messages = computation.truth, computation.messages
        for p, event in enumerate(computation.last):
            expected = computation.necessary(event)
            assert truth.necessary(messages, truth.pasts[p]) == expected
            necessary += len(expected)
        assert sorted(truth.missing(messages)) == sorted(
            computation.undelivered + [(m, d) for m in computation.unsent for d in computation.to[m]]
        )
        for message, d in computation.undelivered:
            earlier = [
                m
                for m, x in computation.undelivered
                if x == d and m != message and ("send", m) in computation.past(("send", message))
            ]
            assert truth.overtaken(messages, d, message) == sorted(earlier)
    assert necessary and not truth.missing(messages)


def test_some_of_those_computations_can_overtake():
    """Otherwise the comparison of `overtaken` above would compare nothing."""
    found = 0
    for seed in range(40):
        computation = Computation(seed, sends=6)
        while computation.unsent or computation.undelivered:
            computation.step()
            found += sum(
                bool(computation.truth.overtaken(computation.messages, d, m))
                for m, d in computation.undelivered
            )
    assert found > 100


def test_a_unit_about_a_destination_goes_to_that_destination_alone():
    log = frozenset({(0, 0), (0, 1), (1, 2)})
    assert on_edge(log, pack([0, 1]), 0) == {(0, 0), (1, 2)}
    assert on_edge(log, pack([0, 1]), 1) == {(0, 1), (1, 2)}
    assert on_edge(log, pack([2]), 2) == log


def test_truth_is_a_value():
    messages = Messages(2, [0b10])
    beginning = Truth.beginning(messages)
    sent = beginning.send(messages, 0, 0)
    assert beginning == Truth.beginning(messages) != sent
    assert sent.overtaken(messages, 1, 0) == []
    delivered = sent.deliver(messages, 1, 0)
    assert not sent.is_delivered(messages, 1, 0)
    assert delivered.is_delivered(messages, 1, 0)
    assert list(unpack(delivered.pasts[1])) == [0, 2]
