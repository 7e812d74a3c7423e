"""Every interleaving of a small program with changes of members at every step: one leaves, is expelled or
joins, or several are expelled.

Links are FIFO, as those of nodes are. Everybody hears of every change, in the same order, each at a moment of
its own and at the latest with the first message of somebody who has. What was on its way from an expelled
process may still arrive until its receiver hears of that; it is closed with, together with all others who
were expelled, when everybody has heard and all that was sent before is there. A process that leaves says so
on each of its links. The ground truth is which messages their senders knew of; nothing is read from what
messages carry.
"""

from itertools import combinations
from typing import Any, NamedTuple

from contract.drive import make
from happened import wire
from happened.core.effects import Send

FAREWELL = b""
"""The last packet on the links of a process that leaves."""


class State(NamedTuple):
    machines: tuple[bytes, ...]  # snapshots
    links: tuple[tuple[tuple[int, int], tuple[tuple[bytes, int], ...]], ...]  # (from, to): (frame, knew)
    sent: tuple[int, ...]  # per process, how many messages of its program
    known: tuple[frozenset[Any], ...]  # per process, the messages in its causal past
    past: tuple[Any, ...]  # per message its name, destinations and what its sender knew, sorted
    orders: tuple[tuple[Any, ...], ...]  # per process, what it delivered
    changes: tuple[tuple[str, int], ...]  # what has happened, and to whom
    heard: tuple[int, ...]  # per process, how many of these
    closed: tuple[frozenset[int], ...]  # per process, with whom

    def gone(self, kind=None):
        return {p for what, p in self.changes if what != "join" and kind in (None, what)}

    def staying(self):
        return [p for p in range(len(self.machines)) if p not in self.gone()]

    def replaced(self, **items):
        """With another item in each of these tables, given as (index, item)."""
        tables = {name: list(getattr(self, name)) for name in items}
        for name, (index, item) in items.items():
            tables[name][index] = item
        return self._replace(**{name: tuple(table) for name, table in tables.items()})


class Changes:
    """Explores a program: per process the sets to which it multicasts, one after another. `kinds` are the
    changes that happen, in this order, each at any step and to any of `whom`, by default anybody. `after`
    says, for each multicast of the program, how many deliveries its sender waits for."""

    def __init__(self, facts, program, kinds=("expel",), *, whom=None, after=None):
        self.facts, self.program, self.n, self.kinds = facts, program, len(program), kinds
        self.whom = range(self.n) if whom is None else whom
        self.after = after or [[0] * len(sets) for sets in program]
        self.states = self.ends = 0

    def explore(self, most=None):
        n = self.n
        machines = tuple(make(self.facts, p, n).snapshot() for p in range(n))
        nothing = (frozenset(),) * n
        first = State(machines, (), (0,) * n, nothing, (), ((),) * n, (), (0,) * n, nothing)
        seen, waiting = {first}, [first]
        while waiting and (most is None or self.states < most):
            state = waiting.pop()
            self.states += 1
            steps = list(self.steps(state))
            if all(kind in (self.expel, self.leave, self.join) for kind, *_ in steps):
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
        staying = state.staying()
        for p in staying:
            number = state.sent[p]
            if p < self.n and number < len(self.program[p]) and len(state.orders[p]) >= self.after[p][number]:
                yield self.send, p
        for (source, to), _ in state.links:
            yield self.arrive, source, to
        if len(state.changes) < len(self.kinds):
            yield from self.changes(state, self.kinds[len(state.changes)])
        for p in staying:
            if state.heard[p] < len(state.changes):
                yield self.hear, p
            if self.to_close(state, p):
                yield self.close, p

    def changes(self, state, kind):
        staying = state.staying()
        if kind == "join":
            if all(state.heard[p] == len(state.changes) for p in staying):
                yield (self.join,)
        elif len(staying) > 1:
            for p in (p for p in staying if p in self.whom):
                if kind == "expel":
                    yield self.expel, p
                elif not self.machine(state, p).queued:
                    yield self.leave, p

    def to_close(self, state, p):
        """Whom a process may close with now; those who were expelled all together."""
        changes = state.changes[: state.heard[p]]
        gone = {q for kind, q in changes if kind != "join"}
        due = gone - state.closed[p]
        expelled = sorted(q for q in due if ("expel", q) in changes)
        links = dict(state.links)
        left = [q for q in sorted(due) if q not in expelled and not is_leaving(links, q, p)]
        if not expelled or len(left) + len(expelled) < len(due):
            return left
        present = [q for q in range(len(state.machines)) if q not in gone]
        number = max(i for i, (kind, _) in enumerate(changes, 1) if kind == "expel")
        late = any(knew < number for q in present for _, knew in links.get((q, p), ()))
        return left if late or any(state.heard[q] < number for q in present) else left + expelled

    def machine(self, state, p):
        machine = make(self.facts, p, len(state.machines))
        machine.restore(state.machines[p])
        return machine

    def send(self, state, p):
        machine, number = self.machine(state, p), state.sent[p]
        to = set(self.program[p][number])
        if len(to | {p}) == self.n and machine.n > self.n:
            to |= {self.n}  # a broadcast is for the newcomer too
        to = sorted(q for q in to if machine.present >> q & 1)
        state = state.replaced(sent=(p, number + 1))
        if not to:
            return state
        clock, effects = machine.multicast(to, b"%d" % number)
        name = (p, clock)
        past = tuple(sorted((*state.past, (name, tuple(to), tuple(sorted(state.known[p]))))))
        state = state._replace(past=past).replaced(known=(p, state.known[p] | {name}))
        return self.performed(state, p, machine, effects)

    def arrive(self, state, source, to):
        links = dict(state.links)
        (frame, knew), *rest = links.pop((source, to))
        if rest:
            links[source, to] = tuple(rest)
        state = state._replace(links=tuple(sorted(links.items())))
        while state.heard[to] < knew:
            state = self.hear(state, to)
        if frame == FAREWELL:
            return state
        machine = self.machine(state, to)
        message, _ = wire.decode(frame)
        return self.performed(state, to, machine, machine.receive(message))

    def expel(self, state, p):
        links = tuple((link, packets) for link, packets in state.links if link[1] != p)
        return state._replace(changes=(*state.changes, ("expel", p)), links=links)

    def leave(self, state, p):
        machine, knew = self.machine(state, p), len(state.changes) + 1
        while state.heard[p] < knew - 1:
            state = self.hear(state, p)
            machine = self.machine(state, p)
        state = self.performed(state, p, machine, machine.leave(p))
        links = dict(state.links)
        for q in state.staying():
            if q != p:
                links[p, q] = (*links.get((p, q), ()), (FAREWELL, knew))
        changes = (*state.changes, ("leave", p))
        return state._replace(changes=changes, links=tuple(sorted(links.items()))).replaced(heard=(p, knew))

    def join(self, state):
        p = len(state.machines)
        machine = make(self.facts, p, p + 1)
        for q in sorted(state.gone()):
            assert not machine.leave(q) + machine.close(q)
        return state._replace(
            machines=(*state.machines, machine.snapshot()),
            sent=(*state.sent, 0),
            known=(*state.known, frozenset()),
            orders=(*state.orders, ()),
            changes=(*state.changes, ("join", p)),
            heard=(*state.heard, len(state.changes) + 1),
            closed=(*state.closed, frozenset(state.gone())),
        )

    def hear(self, state, p):
        kind, who = state.changes[state.heard[p]]
        machine = self.machine(state, p)
        if kind == "expel":  # from now on it does not listen to that one
            state = state._replace(links=tuple(each for each in state.links if each[0] != (who, p)))
        state = state.replaced(heard=(p, state.heard[p] + 1))
        effects = {"join": machine.join, "leave": machine.leave, "expel": machine.expel}[kind](who)
        return self.performed(state, p, machine, effects)

    def close(self, state, p):
        machine, due = self.machine(state, p), self.to_close(state, p)
        state = state.replaced(closed=(p, state.closed[p] | set(due)))
        return self.performed(state, p, machine, [effect for q in due for effect in machine.close(q)])

    def performed(self, state, p, machine, effects):
        links, expelled = dict(state.links), state.gone("expel")
        for effect in effects:
            if isinstance(effect, Send):
                if effect.to not in expelled:
                    packet = (wire.encode(effect.message), state.heard[p])
                    links[p, effect.to] = (*links.get((p, effect.to), ()), packet)
            else:
                state = self.delivered(state, p, (effect.sender, effect.clock))
        state = state.replaced(machines=(p, machine.snapshot()))
        return state._replace(links=tuple(sorted(links.items())))

    # What must hold.

    def delivered(self, state, p, name):
        past = {message: (to, known) for message, to, known in state.past}
        assert p in past[name][0] and name not in state.orders[p], f"{name} is not for {p}, or comes twice"
        if self.facts.order.is_causal:
            lost = state.gone("expel")
            for other in past[name][1]:
                due = p in past[other][0] and other not in state.orders[p] and other[0] not in lost
                assert not due, f"{name} overtakes {other} at {p}"
            late = [m for m in state.orders[p] if name in past[m][1]]
            assert not late, f"{name} comes to {p} after {late}, which it precedes"
        known = state.known[p] | {name, *past[name][1]}
        return state.replaced(orders=(p, (*state.orders[p], name)), known=(p, known))

    def judge(self, state):
        """Nothing more happens, unless members change now."""
        staying, lost = state.staying(), state.gone("expel")
        for name, to, _ in state.past:
            if name[0] not in lost:
                for p in to:
                    assert p not in staying or name in state.orders[p], f"{name} is not delivered at {p}"
        for p in staying:
            machine = self.machine(state, p)
            assert not machine.pending() and not machine.queued, f"{p} waits"
        if self.facts.order.is_total:
            judged = [order for p, order in enumerate(state.orders) if p not in lost]
            for one, other in combinations(judged, 2):
                both = set(one) & set(other)
                assert [m for m in one if m in both] == [m for m in other if m in both]


def is_leaving(links, leaver, p):
    """Whether its farewell is still on its way."""
    return any(frame == FAREWELL for frame, _ in links.get((leaver, p), ()))
