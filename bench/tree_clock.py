"""Would tree clocks (Mathur, Tunç, Pavlogiannis & Viswanathan, ASPLOS 2022) make `vector`'s joins cheaper?

    python bench/tree_clock.py [--messages 2000]

A tree clock stores, with each entry, the process that told us and our step at that time, so that a join skips
entries that the receiver must already know. It pays if a join would touch n words and few of them are new.
Here the vector is one integer, whose join is a few passes in C; and a message must carry the tree of its
moment, which costs a copy of n entries per send. Measured on the same computations as bench/tracking.py.
"""

import argparse
from functools import partial

from happened.tracking import create
from tracking import RECEIVE, SEND, computation, measure


class TreeClock:
    """Entries [count, attached at, parent], children by list, most recently attached first."""

    def __init__(self, me, n):
        self._me = me
        self._count, self._attached, self._parent = [0] * n, [0] * n, [None] * n
        self._children = [[] for _ in range(n)]

    def relevant(self):
        self._count[self._me] += 1

    def on_send(self, to):
        self._count[self._me] += 1  # a send is an event: the tree needs a count that grows between messages
        children = [list(children) for children in self._children]
        return self._me, list(self._count), list(self._attached), children

    def on_receive(self, sender, carried):
        root, count, attached, children = carried
        news = []
        self._collect(root, count, attached, children, news)
        for k, parent in reversed(news):
            if self._parent[k] is not None:
                self._children[self._parent[k]].remove(k)
            self._count[k], self._parent[k] = count[k], parent
            # Whoever knows us at our present count has not heard of this: it shows in our next send.
            self._attached[k] = attached[k] if k != root else self._count[self._me] + 1
            self._children[parent].insert(0, k)

    def _collect(self, k, count, attached, children, news, parent=None):
        """The new entries, parents first; subtrees attached before the count that we know are skipped."""
        if count[k] <= self._count[k] or k == self._me:
            return
        known = self._count[k]
        news.append((k, self._me if parent is None else parent))
        for child in children[k]:
            if attached[child] <= known and count[child] <= self._count[child]:
                break
            self._collect(child, count, attached, children, news, k)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=2000)
    messages = parser.parse_args().messages
    check(12)
    for n in (50, 200, 800):
        contestants = {"vector": (partial(create, "vector"), False), "tree": (TreeClock, False)}
        found = measure(contestants, n, messages, 5)
        ratio = found["tree"] / found["vector"]
        print(
            f"n = {n:4}  packed vector {found['vector']:7.1f} µs   tree clock {found['tree']:7.1f} µs   "
            f"{ratio:5.1f} ×"
        )


def check(n):
    """Check that the tree clock is right, by comparing it with vectors that count sends too."""
    trees, vectors, carried = [TreeClock(me, n) for me in range(n)], [[0] * n for _ in range(n)], {}
    for what, p, peer, number in computation(n, 2000, 3, fifo=False):
        if what == RECEIVE:
            tree, vector = carried.pop(number)
            trees[p].on_receive(peer, tree)
            vectors[p] = list(map(max, vectors[p], vector))
            continue
        vectors[p][p] += 1
        if what == SEND:
            carried[number] = trees[p].on_send(peer), list(vectors[p])
        else:
            trees[p].relevant()
        assert trees[p]._count == vectors[p]


if __name__ == "__main__":
    main()
