"""Applications that manage their histories: every interleaving of small ones, judged by plain sets.

An application is a list of sends: (process, destinations, basis, priority). The basis is the set of earlier
sends, by number, whose histories are merged for this one; the process must have sent or delivered each.
"""

from itertools import combinations, product

from happened.ordering.causal.incomplete import NOTHING, CausalHistory, ManagedHistories


class Run:
    """One state: machines, packets, what was delivered, and the histories each process holds."""

    def __init__(self, sends, n=3, machine=ManagedHistories):
        self.sends, self.n, self.machine = sends, n, machine
        self.past = []  # of each send: the numbers of all sends it must follow
        for _, _, basis, *_ in sends:
            self.past.append(set(basis).union(*(self.past[b] for b in basis)))

    def must_precede(self, i, d):
        """The sends to d that this one may not overtake there."""
        return {j for j in self.past[i] if d in self.sends[j][1] and self.priority(j) >= self.priority(i)}

    def priority(self, i):
        return self.sends[i][3] if len(self.sends[i]) > 3 else 0

    def explore(self):
        """(states, the first fault found or None): every order of sends and arrivals."""
        start = tuple(self.machine(p, self.n).snapshot() for p in range(self.n)), (), (), ()
        seen, todo = {start}, [start]
        while todo:
            state = todo.pop()
            steps = [*self.steps(state)]
            for after in steps:
                if isinstance(after, str):
                    return len(seen), after
                if after not in seen:
                    seen.add(after)
                    todo.append(after)
            if not steps and (fault := self.unfinished(state)):
                return len(seen), fault
        return len(seen), None

    def steps(self, state):
        _, packets, _, held = state
        done = {(i, p) for i, p, _ in held}
        for i, (p, _, basis, *_) in enumerate(self.sends):
            sent_before = all((j, p) in done for j in range(i) if self.sends[j][0] == p)
            if (i, p) not in done and sent_before and all((b, p) in done for b in basis):
                yield self.send(state, i)
        for k, packet in enumerate(packets):
            if packet not in packets[:k]:
                yield self.arrive(state, k)

    def send(self, state, i):
        machines, packets, delivered, held = state
        p, to, basis, *_ = self.sends[i]
        machine = self.restored(p, machines[p])
        values = [value for j, q, value in held if q == p and j in basis]
        history = values[0].merge(*values[1:]) if values else NOTHING
        sends, after = machine.send(to, b"%d" % i, history, priority=self.priority(i))
        packets = (*packets, *((send.to, send.message) for send in sends))
        return self.state(state, p, machine, packets, delivered, (*held, (i, p, after)))

    def arrive(self, state, k):
        _, packets, delivered, held = state
        d, message = packets[k]
        machine = self.restored(d, state[0][d])
        for delivery in machine.receive(message):
            i = int(delivery.payload)
            missing = self.must_precede(i, d) - {j for j, q in delivered if q == d}
            if missing:
                return f"{d} delivers {i} before {sorted(missing)}"
            if (i, d) in delivered:
                return f"{d} delivers {i} twice"
            delivered = (*delivered, (i, d))
            held = (*(h for h in held if h[:2] != (i, d)), (i, d, delivery.history))
        return self.state(state, d, machine, packets[:k] + packets[k + 1 :], delivered, held)

    def state(self, state, p, machine, packets, delivered, held):
        machines = (*state[0][:p], machine.snapshot(), *state[0][p + 1 :])
        held = tuple(sorted(held, key=lambda h: h[:2]))
        return machines, tuple(sorted(packets)), tuple(sorted(delivered)), held

    def restored(self, p, data):
        machine = self.machine(p, self.n)
        machine.restore(data)
        return machine

    def unfinished(self, state):
        machines, _, delivered, _ = state
        missing = {(i, d) for i, (_, to, *_) in enumerate(self.sends) for d in to} - set(delivered)
        held = sum(len(self.restored(p, data).pending()) for p, data in enumerate(machines))
        return f"never delivered: {sorted(missing)}, {held} held" if missing or held else ""


def applications(messages, n=3, most=2):
    """Every application of so many sends whose bases can be known to their senders, process 0 first."""
    others = {p: [q for q in range(n) if q != p] for p in range(n)}
    choices = {p: [c for size in range(1, most + 1) for c in combinations(others[p], size)] for p in others}

    def extend(sends):
        if len(sends) == messages:
            yield sends
            return
        for p in range(n) if sends else (0,):
            known = [j for j, (q, to, _) in enumerate(sends) if q == p or p in to]
            bases = [c for size in range(len(known) + 1) for c in combinations(known, size)]
            for to, basis in product(choices[p], bases):
                yield from extend([*sends, (p, to, basis)])

    return extend([])


class LastClock(ManagedHistories):
    """R5: one clock for each sender, that of the last message delivered."""

    def _missing(self, message):
        for sender, clock in super()._missing(message):
            deliveries = self._delivered.get(sender)
            if deliveries is None or max([deliveries._upto, *deliveries._early.values()]) < clock:
                yield sender, clock


class LeaveOutWhatWasTold(ManagedHistories):
    """R7: what all recipients were told of is left out of the message."""

    def _stamp(self, history, dests):
        return tuple(cause for cause in history if dests & ~cause.told)


class SameSender(ManagedHistories):
    """R6.3: whoever gets a later message of the same sender gets the earlier ones before it."""

    def _after(self, history, last):
        return super()._after(self._inferred(history), last)

    def _stamp(self, history, dests):
        return super()._stamp(self._inferred(history), dests)

    def _inferred(self, history):
        causes = []
        for cause in history:
            for later in history:
                if later.sender == cause.sender and later.clock > cause.clock:
                    cause = cause._replace(told=cause.told | later.dests)
            if cause.dests & ~cause.told:
                causes.append(cause)
        return CausalHistory(causes)


class ToldApart(ManagedHistories):
    """Carbon copies kept by the process for all its histories, instead of inside each value."""

    def __init__(self, me, n):
        super().__init__(me, n)
        self._told = {}

    def _after(self, history, last):
        after = super()._after(history, last)
        for cause in (*history, last):
            reported = last.dests if cause is not last else 0
            self._told[cause[:2]] = self._told.get(cause[:2], 0) | cause.told | reported
        return self._known(after)

    def _stamp(self, history, dests):
        return tuple(self._known(history))

    def _known(self, history):
        told = [cause._replace(told=cause.told | self._told.get(cause[:2], 0)) for cause in history]
        return CausalHistory(cause for cause in told if cause.dests & ~cause.told)

    def save(self):
        return {**super().save(), "told": tuple(sorted((*k, v) for k, v in self._told.items()))}

    def load(self, state):
        super().load(state)
        self._told = {(s, c): told for s, c, told in state["told"]}


class Covered(ManagedHistories):
    """A message of any priority counts as telling its recipients."""

    def _after(self, history, last):
        causes = (cause._replace(told=cause.told | last.dests) for cause in history)
        return super()._after(CausalHistory(causes), last)
