"""R2 to R9 of Rodrigues & Veríssimo (1995) on plain sets, as docs/large-systems.md writes them with the
corrections of docs/papers.md, and beside them the events themselves: what a story of routers must tell."""

from collections import Counter


class PaperHistory:
    """One process. Messages are names (sender, clock); `told` counts (rule, about, processes) until cleared.

    `separators` are pairs: the members, and the components of what is left without them. R7 can be off.
    """

    def __init__(self, me, separators, *, redundancy=True):
        self.me, self.separators, self.redundancy = me, separators, redundancy
        self.h, self.c, self.d = {}, {}, {}
        self.told = Counter()

    def _tell(self, rule, about, who=()):
        if who or rule in ("R4", "R5"):
            self.told[rule, about, frozenset(who)] += 1

    def beyond(self, n, r):
        """R9 for one recipient: a separator that keeps n from r."""
        for members, components in self.separators:
            (side,) = [c for c in components if r in c] or [None]
            if side is not None and members - {self.me} <= self.c[n] and not side & self.h[n]:
                return True
        return False

    def stamp(self, to):
        """The names that a message to this set carries."""
        carried = set()
        for n in self.h:
            knowing = to & self.c[n] if self.redundancy else set()
            lacking = {r for r in to - knowing if not self.beyond(n, r)}
            if lacking:
                carried.add(n)
                self._tell("R2", n, lacking)
            else:
                self._tell("R7", n, knowing)
                self._tell("R9", n, to - knowing)
        return carried

    def send(self, m, to):
        for n in self.h:
            self._gain("R6.2", n, to | {self.me})
        self.h[m], self.c[m], self.d[self.me] = set(to), {self.me}, m[1]
        self._tell("R4", m)
        self._forget()

    def _gain(self, rule, n, who):
        self._tell(rule, n, who - self.c[n])
        self.c[n] |= who

    def may_deliver(self, timestamp):
        return all(self.d.get(n[0], 0) >= n[1] for n, (to, _) in timestamp.items() if self.me in to)

    def deliver(self, m, to, timestamp):
        """`timestamp`: of each message that m names, the destinations, and with R6.1 the carbon copies."""
        assert self.may_deliver(timestamp), f"{m} is taken too early at {self.me} (R3)"
        if m[0] in self.d:
            self._tell("R5", m)
        self.d[m[0]] = m[1]
        before = {n: set(c) for n, c in self.c.items()}
        for n, (addressed, copied) in [*timestamp.items(), (m, (to, set()))]:
            if n not in self.h:
                self.h[n], self.c[n] = set(addressed), set()
                self._tell("R4", n)
            self.c[n] |= {m[0], self.me} if n == m else to | {m[0]} | copied
        direct = {n: set(c) for n, c in self.c.items()}
        for n in self.h:
            for i in self.h:
                if i[0] == n[0] and i[1] > n[1]:
                    self.c[n] |= self.h[i]
        for n in self.h:
            self._tell("R6.3", n, direct[n] - before.get(n, set()))
            self._tell("R6.3", n, self.c[n] - direct[n])
        self._forget()

    def _forget(self):
        for n in [n for n in self.h if self.h[n] <= self.c[n]]:
            self._tell("R8", n, self.h[n])
            del self.h[n], self.c[n]


class Events:
    """Who can know of what: sets of sends and deliveries, without any history."""

    def __init__(self):
        self.past, self.before, self.to = {}, {}, {}

    def send(self, m, to):
        past = self.past.setdefault(m[0], set())
        self.before[m], self.to[m] = frozenset(past), frozenset(to)
        past.add(m)

    def deliver(self, p, m):
        self.past.setdefault(p, set()).update(self.before[m] | {m})

    def is_told(self, p, n, r):
        """Whether p can know that r delivers nothing of p's future before n: r sent n, or is p, which has it,
        or p's past has a message by r, or to r, that follows n."""
        past = self.past.get(p, set())
        if r == n[0] or (r == p and n in past):
            return True
        return any(n in self.before[m] and (m[0] == r or r in self.to[m]) for m in past)
