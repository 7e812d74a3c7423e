"""Every interleaving of a small program with the expulsion of one process at every step.

Links are FIFO, as those of nodes are. What was on its way from the expelled process may still arrive, until
its receiver hears of the expulsion; each of the others hears at a moment of its own, and closes when
everybody has heard and all that was sent before is there. The ground truth is which messages their senders
knew of; nothing is read from what messages carry.
"""

from itertools import pairwise
from typing import Any, NamedTuple

from contract.drive import make
from happened import wire
from happened.core.effects import Send


class State(NamedTuple):
    machines: tuple[bytes, ...]  # snapshots
    links: tuple[tuple[tuple[int, int], tuple[tuple[bytes, bool], ...]], ...]  # (from, to): (frame, knew)
    sent: tuple[int, ...]  # per process, how many messages of its program
    known: tuple[frozenset[Any], ...]  # per process, the messages in its causal past
    past: tuple[Any, ...]  # per message its name, destinations and what its sender knew, sorted
    orders: tuple[tuple[Any, ...], ...]  # per process, what it delivered
    expelled: int | None
    heard: frozenset[int]
    closed: frozenset[int]


class Expulsions:
    """Explores a program: per process the sets to which it multicasts, one after another."""

    def __init__(self, facts, program):
        self.facts, self.program, self.n = facts, program, len(program)
        self.states = self.ends = 0

    def explore(self, most=None):
        n = self.n
        machines = tuple(make(self.facts, p, n).snapshot() for p in range(n))
        nothing = tuple(frozenset() for _ in range(n))
        first = State(machines, (), (0,) * n, nothing, (), ((),) * n, None, frozenset(), frozenset())
        seen, waiting = {first}, [first]
        while waiting and (most is None or self.states < most):
            state = waiting.pop()
            self.states += 1
            steps = list(self.steps(state))
            if not any(kind != self.expel for kind, *_ in steps):
                self.ends += 1
                self.judge(state)
            for kind, *arguments in steps:
                after = kind(state, *arguments)
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
        return self

    # What may happen next.

    def steps(self, state):
        gone = state.expelled
        staying = [p for p in range(self.n) if p != gone]
        for p in staying:
            if state.sent[p] < len(self.program[p]):
                yield self.send, p
        for (source, to), _ in state.links:
            yield self.arrive, source, to
        if gone is None:
            for p in range(self.n):
                yield self.expel, p
            return
        unheard = [p for p in staying if p not in state.heard]
        for p in unheard:
            yield self.hear, p
        if not unheard:
            late = {to for (source, to), packets in state.links if not all(knew for _, knew in packets)}
            for p in staying:
                if p not in state.closed and p not in late:
                    yield self.close, p

    def machine(self, state, p):
        machine = make(self.facts, p, self.n)
        machine.restore(state.machines[p])
        return machine

    def send(self, state, p):
        machine = self.machine(state, p)
        to = self.program[p][state.sent[p]] & frozenset(q for q in range(self.n) if machine.present >> q & 1)
        sent = tuple(count + (q == p) for q, count in enumerate(state.sent))
        if not to:
            return state._replace(sent=sent)
        clock, effects = machine.multicast(sorted(to), b"%d" % state.sent[p])
        name = (p, clock)
        past = tuple(sorted((*state.past, (name, tuple(sorted(to)), tuple(sorted(state.known[p]))))))
        state = state._replace(sent=sent, past=past, known=added(state.known, p, {name}))
        return self.performed(state, p, machine, effects)

    def arrive(self, state, source, to):
        links = dict(state.links)
        (frame, knew), *rest = links.pop((source, to))
        if rest:
            links[source, to] = tuple(rest)
        state = state._replace(links=tuple(sorted(links.items())))
        if knew and to not in state.heard:
            state = self.hear(state, to)
        machine = self.machine(state, to)
        message, _ = wire.decode(frame)
        return self.performed(state, to, machine, machine.receive(message))

    def expel(self, state, p):
        links = tuple((link, packets) for link, packets in state.links if link[1] != p)
        return state._replace(expelled=p, links=links)

    def hear(self, state, p):
        links = tuple((link, packets) for link, packets in state.links if link != (state.expelled, p))
        machine = self.machine(state, p)
        state = state._replace(heard=state.heard | {p}, links=links)
        return self.performed(state, p, machine, machine.expel(state.expelled))

    def close(self, state, p):
        machine = self.machine(state, p)
        state = state._replace(closed=state.closed | {p})
        return self.performed(state, p, machine, machine.close(state.expelled))

    def performed(self, state, p, machine, effects):
        links = dict(state.links)
        for effect in effects:
            if isinstance(effect, Send):
                if effect.to != state.expelled:
                    packet = (wire.encode(effect.message), p in state.heard)
                    links[p, effect.to] = (*links.get((p, effect.to), ()), packet)
            else:
                state = self.delivered(state, p, (effect.sender, effect.clock))
        machines = tuple(machine.snapshot() if q == p else old for q, old in enumerate(state.machines))
        return state._replace(machines=machines, links=tuple(sorted(links.items())))

    # What must hold.

    def delivered(self, state, p, name):
        past = {message: (to, known) for message, to, known in state.past}
        assert p in past[name][0] and name not in state.orders[p], f"{name} is not for {p}, or comes twice"
        if self.facts.order.is_causal:
            for other in past[name][1]:
                due = p in past[other][0] and other not in state.orders[p] and other[0] != state.expelled
                assert not due, f"{name} overtakes {other} at {p}"
            late = [m for m in state.orders[p] if name in past[m][1]]
            assert not late, f"{name} comes to {p} after {late}, which it precedes"
        known = added(state.known, p, {name, *past[name][1]})
        orders = tuple((*order, name) if q == p else order for q, order in enumerate(state.orders))
        return state._replace(orders=orders, known=known)

    def judge(self, state):
        """Nothing more happens, unless somebody is expelled now."""
        staying = [p for p in range(self.n) if p != state.expelled]
        for name, to, _ in state.past:
            if name[0] in staying:
                for p in to:
                    assert p not in staying or name in state.orders[p], f"{name} is not delivered at {p}"
        for p in staying:
            machine = self.machine(state, p)
            assert not machine.pending() and not machine.queued, f"{p} waits"
        if self.facts.order.is_total:
            for p, q in pairwise(staying):
                both = set(state.orders[p]) & set(state.orders[q])
                assert [m for m in state.orders[p] if m in both] == [m for m in state.orders[q] if m in both]


def added(table, p, names):
    return tuple(known | names if q == p else known for q, known in enumerate(table))
