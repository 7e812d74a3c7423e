"""Every schedule of a small routed system in which a router is killed at any point, and succeeded.

A state is the machines' snapshots, the packets in flight, and the truth as sets of events: about application
messages (`happened.sim.truth`), and about the hop messages they travel in (`Hops`). A step is a send, an
arrival, the kill, or the succession, which a `Plan` allows once the dead router's channels are flushed. Then
comes the next plan, if there is one.
Judged: order at both levels, that nothing is lost, and that whatever the dead router's history named, its
successor's names, or a later message to the same process. Breadth-first: a violation has a shortest schedule.
"""

import pickle
from dataclasses import dataclass, field
from typing import NamedTuple
from unittest.mock import patch

from happened.core.destinations import pack
from happened.core.effects import Send
from happened.core.errors import LocalProtocolError
from happened.sim.truth import Messages, Truth
from oracles import succession
from oracles.succession import adopt
from oracles.walks import Observed, unpacked


@dataclass(frozen=True)
class Plan:
    """Who fails, and how it is succeeded: by its journal's machine, a witness, or what all others know."""

    dead: int
    places: tuple  # before
    after: tuple  # places after the succession, by index; those of the dead do not count
    how: str  # "journal", "witness", "newcomer from witness", "collection"
    witness: int | None = None
    flush: bool = True  # whether the succession waits for the channels
    await_reports: bool = True  # whether it waits for what is on its way to the witness
    adopt: bool = True  # whether the successor learns anything
    judge_histories: bool = True  # or only what comes of them
    then: "Plan | None" = None  # who fails next

    def chain(self):
        return (self, *(self.then.chain() if self.then is not None else ()))


class Hops(NamedTuple):
    """What happened to hop messages, by (relay, hop)."""

    past: tuple[frozenset, ...]  # of each process, all events before its next
    before: frozenset  # (message, processes it is for, the events before it was sent)
    delivered: frozenset  # (message, process)

    def send(self, p, name, to):
        past = (*self.past[:p], self.past[p] | {name}, *self.past[p + 1 :])
        return self._replace(past=past, before=self.before | {(name, to, self.past[p])})

    def overtaken(self, p, name):
        """Messages to p that were sent before this one and are not delivered there."""
        earlier = next(before for other, _, before in self.before if other == name)
        return [
            other
            for other, to, _ in self.before
            if other in earlier and p in to and (other, p) not in self.delivered
        ]

    def deliver(self, p, name):
        earlier = next(before for other, _, before in self.before if other == name)
        past = (*self.past[:p], self.past[p] | earlier | {name}, *self.past[p + 1 :])
        return self._replace(past=past, delivered=self.delivered | {(name, p)})

    def learn(self, p, sources):
        """From now on, p's events come after all that these processes know."""
        past = frozenset().union(self.past[p], *(self.past[source] for source in sources))
        return self._replace(past=(*self.past[:p], past, *self.past[p + 1 :]))

    def forgotten(self, entries, ours, exempt):
        """(message, process) of the entries of which ours name neither it nor a later one to that process."""
        before = {name: earlier for name, _, earlier in self.before}
        return [
            (name, d)
            for name, dests in entries
            for d in unpacked(dests)
            if d not in exempt
            and (name, d) not in self.delivered
            and not any(to >> d & 1 and (other == name or name in before[other]) for other, to in ours)
        ]


def hop_events(machine):
    """(kind, name, processes it is for) of the hop messages it sent and delivered in this step."""
    return tuple(
        (kind, (message.relay, message.hop), frozenset(unpacked(message.address)))
        for kind, message in machine.hop_events
    )


def entries_of(machine):
    return tuple(((e.sender, e.clock), e.dests) for e in machine.history())


class State(NamedTuple):
    machines: tuple[bytes | None, ...]
    in_flight: tuple[tuple[int, int, int], ...]  # (source, destination, number of the message), sorted
    clocks: tuple[int, ...]  # per application message; 0: unsent
    killed: int  # how many of the plans have killed somebody
    succeeded: int
    truth: Truth
    hops: Hops
    named: tuple = ()  # what the dead router's history named when it was killed


@dataclass
class Found:
    states: int = 0
    successions: int = 0  # states in which the succession took place
    faults: list[tuple[str, list[str]]] = field(default_factory=list)


class FailureSearch:
    def __init__(self, plan, sends):
        """`sends` are (process, destinations) in the order of each process."""
        self.plans, self.sends = plan.chain(), sends
        self.dead = [plan.dead for plan in self.plans]
        self.n = len(plan.places)
        self.size = size = max(len(plan.after) for plan in self.plans)
        self.messages = Messages(size, [pack(to) for _, to in sends])
        self.complete = all(plan.how != "collection" for plan in self.plans)  # that keeps the order only
        self.numbers, self.values = {}, []
        self.steps = {}
        self.found = Found()

    def run(self, most=200_000):
        machines = [Observed(p, self.n, place=place) for p, place in enumerate(self.plans[0].places)]
        snapshots = tuple(m.snapshot() for m in machines) + (None,) * (self.size - self.n)
        hops = Hops((frozenset(),) * len(snapshots), frozenset(), frozenset())
        truth = Truth.beginning(self.messages)
        start = State(snapshots, (), (0,) * len(self.sends), 0, 0, truth, hops)
        self.reached = {start: None}
        frontier = [start]
        while frontier and not self.found.faults:
            following = []
            for state in frontier:
                self.at = state
                actions = list(self.enabled(state))
                if not actions:
                    self.quiescent(state)
                for action in actions:
                    after = self.perform(state, action)
                    if after is not None and after not in self.reached:
                        self.reached[after] = (state, action)
                        following.append(after)
                if self.found.faults:
                    break
            frontier = following
            assert len(self.reached) < most, "the world is too large to explore"
        self.found.states = len(self.reached)
        return self.found

    def enabled(self, state):
        killed = self.dead[: state.killed]
        for m, (p, _) in enumerate(self.sends):
            first = next(
                i for i, (q, _) in enumerate(self.sends) if q == p and not (i < m and state.clocks[i])
            )
            if not state.clocks[m] and first == m and p not in killed:
                yield "send", m
        for packet in dict.fromkeys(state.in_flight):
            yield "arrive", packet
        if state.succeeded < state.killed:
            if self.ready(state):
                yield "succeed", self.dead[state.succeeded]
        elif state.killed < len(self.plans):
            yield "kill", self.dead[state.killed]

    def ready(self, state):
        """Whether the channels of the dead router are flushed as far as this plan waits for it."""
        plan = self.plans[state.succeeded]
        from_dead = any(source == plan.dead for source, _, _ in state.in_flight)
        to = plan.dead if plan.how == "journal" else plan.witness
        to_source = any(d == to for _, d, _ in state.in_flight)
        return not (plan.flush and from_dead) and not (plan.await_reports and to_source)

    def perform(self, state, action):
        kind, what = action
        if kind == "kill":
            kept = state.in_flight
            machines = list(state.machines)
            named = entries_of(self.restore(what, machines[what]))
            if self.plans[state.killed].how != "journal":  # a journal's machine takes what still arrives
                kept = tuple(packet for packet in kept if packet[1] != what)
                machines[what] = None
            return state._replace(
                killed=state.killed + 1, in_flight=kept, machines=tuple(machines), named=named
            )
        if kind == "succeed":
            return self.succeed(state)
        if kind == "send":
            p, to = self.sends[what]
            to = [d for d in to if d not in self.dead[: state.succeeded]]
            after, hops, effects, clock = self.step(state.machines[p], p, ("send", tuple(to)))
            truth = state.truth.send(self.messages, p, what)
            clocks = (*state.clocks[:what], clock, *state.clocks[what + 1 :])
            state = state._replace(truth=truth, clocks=clocks)
        else:
            _, p, number = what
            in_flight = list(state.in_flight)
            in_flight.remove(what)
            state = state._replace(in_flight=tuple(in_flight))
            if state.machines[p] is None:
                return state  # sent to the dead
            after, hops, effects, _ = self.step(state.machines[p], p, ("receive", number))
        machines = (*state.machines[:p], after, *state.machines[p + 1 :])
        return self.apply(state._replace(machines=machines), action, p, hops, effects)

    def step(self, snapshot, p, what):
        key = (snapshot, what)
        if key not in self.steps:
            machine = self.restore(p, snapshot)
            kind, value = what
            if kind == "send":
                clock, effects = machine.multicast(value, b"")
            else:
                clock, effects = 0, machine.receive(self.values[value])
            plain = tuple(map(self.plain, effects))
            self.steps[key] = machine.snapshot(), hop_events(machine), plain, clock
        return self.steps[key]

    def restore(self, p, snapshot):
        machine = Observed(p, self.size)
        machine.restore(snapshot)
        return machine

    def plain(self, effect):
        if isinstance(effect, Send):
            data = pickle.dumps(effect.message)
            number = self.numbers.setdefault(data, len(self.values))
            if number == len(self.values):
                self.values.append(effect.message)
            return "send", effect.to, number
        return "deliver", effect.sender, effect.clock

    def apply(self, state, action, p, hop_events, effects):
        in_flight, truth, hops = list(state.in_flight), state.truth, state.hops
        deaf = [plan.dead for plan in self.plans[: state.killed] if plan.how != "journal"]
        for kind, name, to in hop_events:
            if kind == "send":
                hops = hops.send(p, name, to)
                continue
            if overtaken := hops.overtaken(p, name):
                return self.fault(f"hop {name} is out of order with {overtaken} at {p}", action)
            hops = hops.deliver(p, name)
        for kind, a, b in effects:
            if kind == "send":
                if a not in deaf:
                    in_flight.append((p, a, b))
                continue
            m = next(i for i, (q, _) in enumerate(self.sends) if q == a and state.clocks[i] == b)
            if overtaken := self.overtaken(truth, p, m):
                return self.fault(f"{p} delivers {m} out of order with {overtaken}", action)
            if truth.is_delivered(self.messages, p, m):
                return self.fault(f"{p} delivers {m} twice", action)
            truth = truth.deliver(self.messages, p, m)
        return state._replace(in_flight=tuple(sorted(in_flight)), truth=truth, hops=hops)

    def overtaken(self, truth, p, m):
        if self.complete:
            return truth.overtaken(self.messages, p, m)
        # What was lost is never delivered: only what is delivered too late is out of order.
        return [
            later
            for later in range(len(self.sends))
            if later != m
            and truth.is_delivered(self.messages, p, later)
            and truth.sends[later] & self.messages.sends[m]
        ]

    def succeed(self, state):
        plan = self.plans[state.succeeded]
        gone = self.dead[: state.killed]
        self.found.successions += 1
        machines = {p: self.restore(p, s) for p, s in enumerate(state.machines) if s is not None}
        journal = machines.get(plan.dead) if plan.how == "journal" else None
        witness = machines[plan.witness] if "witness" in plan.how else None
        if plan.how == "witness":
            successor = witness
        else:
            n = max(machine.n for machine in machines.values())
            successor = Observed(n, n + 1)
        places = {p: place for p, place in enumerate(plan.after) if p not in gone}

        def learn(machine, entries):
            if plan.adopt or machine is not successor:
                adopt(machine, entries)

        try:
            with patch.object(succession, "adopt", learn):
                effects = succession.succeed(
                    machines, plan.dead, places, successor, journal=journal, witness=witness
                )
        except LocalProtocolError:  # only what waits for something shows that the channels are not flushed
            assert not (plan.flush and plan.await_reports)
            return None
        snapshots = tuple(machines[p].snapshot() if p in machines else None for p in range(self.size))
        sources = [plan.dead] if journal else [plan.witness] if witness else machines
        hops = state.hops.learn(successor.me, sources)
        after = state._replace(machines=snapshots, succeeded=state.succeeded + 1, named=(), hops=hops)
        action = "succeed", plan.dead
        after = self.apply(
            after, action, successor.me, hop_events(successor), tuple(map(self.plain, effects))
        )
        if after is not None and plan.judge_histories:
            names = entries_of(successor)
            if forgotten := after.hops.forgotten(state.named, names, (*gone, successor.me)):
                return self.fault(f"history incomplete: {forgotten} forgotten", action)
        return after

    def quiescent(self, state):
        lost = [
            (m, d)
            for m, d in state.truth.missing(self.messages)
            if d not in self.dead and not (self.sends[m][0] in self.dead and not state.clocks[m])
        ]
        if not self.complete:
            lost = []
        held = [
            (p, held.waits_for)
            for p, s in enumerate(state.machines)
            if s is not None and p not in self.dead
            for held in self.restore(p, s).pending()
        ]
        if lost or held:
            self.found.faults.append((f"never delivered: {lost}, held: {held}", self.schedule(state)))

    def fault(self, reason, action):
        self.found.faults.append((reason, [*self.schedule(self.at), str(action)]))

    def schedule(self, state):
        lines = []
        while self.reached[state] is not None:
            state, action = self.reached[state]
            lines.append(str(action))
        return lines[::-1]
