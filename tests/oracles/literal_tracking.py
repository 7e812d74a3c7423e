"""The protocols of Hélary, Melideo & Raynal (2000) as their rules read, on lists of lists, with a switch that
breaks each rule.

One class for P1, P2, P3 and the reduced P3, since they share their rules; `faults` names the rules to alter:
the misprints of the paper, the combinations it allows and must not, and every rule left out.
"""

import json
from dataclasses import dataclass
from typing import NamedTuple

from happened.tracking import Timestamp


class Entry(NamedTuple):
    process: int
    count: int
    immediate: int
    column: tuple[int, ...] | None


@dataclass(frozen=True)
class LiteralPiggyback:
    carried: tuple[Entry, ...]
    forced: Timestamp | None = None

    @property
    def entries(self):
        return len(self.carried)


@dataclass(frozen=True)
class Rules:
    """Which protocol: P1; with b, P2; with `immediate`, P3; with both it and `reduced`, the reduced P3."""

    immediate: bool = False
    reduced: bool = True  # whether there is a matrix at all
    b: int | None = None
    primed: bool = False
    fifo: bool = False
    faults: frozenset[str] = frozenset()

    def __call__(self, me, n):
        return LiteralTracker(me, n, self)


class LiteralTracker:
    def __init__(self, me, n, rules):
        self.me, self.n, self._rules = me, n, rules
        self.vc, self.ip = [0] * n, [0] * n
        self.m = [[1] * n for _ in range(n)]
        self.sent = [[0] * n for _ in range(n)]

    def _broken(self, fault):
        return fault in self._rules.faults

    def _others(self):
        return [process for process in range(self.n) if process != self.me]

    def _nobody_knows(self, k):
        for other in self._others():
            if other != k or not self._broken("owners always know"):
                self.m[other][k] = 0
                self.sent[other][k] = 0

    # R1

    def relevant(self, null=False):
        i, rules = self.me, self._rules
        if self._broken("increment first"):
            self.vc[i] += 1
        immediate = frozenset((k, self.vc[k]) for k in range(self.n) if self.ip[k])
        if not self._broken("increment first"):
            self.vc[i] += 1
        if rules.immediate:
            self._separate_predecessors()
        if rules.b is not None and not self._broken("keep the matrix"):
            self._forget_the_past()
        if not self._broken("no reset") and (self.vc[i] == 1 or not self._broken("reset once")):
            self._nobody_knows(i)
        counts = tuple(self.vc)
        if rules.b is not None:
            return Timestamp(i, self.vc[i], dependencies=counts, null=null)
        return Timestamp(i, self.vc[i], counts, immediate=immediate if rules.immediate else None)

    def _forget_the_past(self):
        for row in range(self.n):
            for k in self._others():
                self.m[row][k] = 1

    def _separate_predecessors(self):
        if not self._broken("keep ip"):
            for k in self._others():
                if self.ip[k]:
                    self.ip[k] = 0
                    if not self._broken("successors stay secret"):
                        self._nobody_knows(k)
        if not self._broken("own ip off"):
            self.ip[self.me] = 1

    # R2

    def on_send(self, to):
        rules, forced = self._rules, None
        if rules.b is not None and len(self._due(to)) > rules.b and not self._broken("no test"):
            if self._broken("reset without an event"):
                self._forget_the_past()
            else:
                forced = self.relevant(null=True)
        due = self._due(to)
        carried = tuple(Entry(k, self.vc[k], self.ip[k], self._column(k)) for k in due)
        if rules.fifo:
            marks = self.m if self._broken("fifo marks in m") else self.sent
            for k in due:
                marks[to][k] = 1
        return LiteralPiggyback(carried, forced)

    def _column(self, k):
        if not self._rules.primed:
            return None
        return tuple(self.m[k]) if self._broken("row for column") else tuple(row[k] for row in self.m)

    def _due(self, to):
        if not self._rules.reduced:
            return list(range(self.n))
        return [k for k in range(self.n) if not self.m[to][k] and not self.sent[to][k]]

    # R3

    def on_receive(self, sender, piggyback):
        for entry in piggyback.carried:
            k = entry.process
            if k == self.me and self._broken("ignore own entry"):
                continue
            news = self._news(entry)
            if news > 0 or (news < 0 and self._broken("adopt older")):
                self._adopt(sender, entry)
            elif news == 0:
                self._same(sender, entry)
            elif self._broken("mark on older"):
                self.m[sender][k] = 1
            elif self._broken("take columns of older"):
                self._take_column(entry, max)

    def _news(self, entry):
        """Positive: newer than what we have; zero: the same; negative: older."""
        k = entry.process
        if entry.count != self.vc[k]:
            return entry.count - self.vc[k]
        if self._broken("equal keeps ip"):
            return 0
        if self._broken("equal takes the larger ip"):
            return entry.immediate - self.ip[k]
        return self.ip[k] - entry.immediate

    def _adopt(self, sender, entry):
        k, immediate = entry.process, self._rules.immediate
        if not self._broken("adopt nothing"):
            self.vc[k] = entry.count
            if not self._broken("newer keeps ip"):
                self.ip[k] = entry.immediate
        for row in range(self.n):
            self.sent[row][k] = 0
        if entry.column is not None:
            self._take_column(entry, lambda _, theirs: theirs)
            return
        if not self._broken("keep the column"):
            for row in self._others():
                self.m[row][k] = 0
        if not self._broken("sender not marked"):
            self.m[sender][k] = 1
        owner_knows = entry.immediate or not immediate or self._broken("owners always know")
        if owner_knows and not self._broken("owner not marked"):
            self.m[k][k] = 1

    def _same(self, sender, entry):
        if self._broken("nothing on equal"):
            return
        if entry.column is not None:
            self._take_column(
                entry, (lambda _, theirs: theirs) if self._broken("overwrite on equal") else max
            )
        else:
            self.m[sender][entry.process] = 1

    def _take_column(self, entry, merge):
        rows = range(self.n) if self._broken("take our own row") else self._others()
        for row in rows:
            self.m[row][entry.process] = merge(self.m[row][entry.process], entry.column[row])

    def snapshot(self):
        return json.dumps([self.vc, self.ip, self.m, self.sent]).encode()

    def restore(self, data):
        self.vc, self.ip, self.m, self.sent = json.loads(data)
