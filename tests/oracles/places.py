"""Small communication graphs and the places of their processes, by brute force over plain sets."""

from itertools import combinations, product

from happened.core.destinations import pack
from happened.core.places import Branch, Place, Separator, WatchedForwarder


class Graph:
    def __init__(self, n, edges):
        self.n = n
        self.edges = frozenset(frozenset(edge) for edge in edges)

    def neighbours(self, p):
        return {q for edge in self.edges if p in edge for q in edge if q != p}

    def components(self, without=()):
        left = set(range(self.n)) - set(without)
        found = []
        while left:
            todo = [left.pop()]
            component = set(todo)
            while todo:
                new = self.neighbours(todo.pop()) & left
                left -= new
                component |= new
                todo += new
            found.append(component)
        return sorted(found, key=min)

    def separators(self, most=3):
        """Every vertex cut of at most this many members."""
        for size in range(1, most + 1):
            for members in combinations(range(self.n), size):
                if len(self.components(members)) > 1:
                    yield members

    def separator(self, members):
        return Separator(pack(members), tuple(pack(c) for c in self.components(members)))


def hop_places(graph, separators=None):
    """Where only neighbours are addressed and nothing is routed."""
    chosen = list(graph.separators() if separators is None else separators)
    return [
        Place(pack(graph.neighbours(p)), (), tuple(graph.separator(s) for s in chosen if p in s))
        for p in range(graph.n)
    ]


def links_in_use(n, tree, witnesses=None):
    """The graph of the links that messages take: within blocks, and for the copies that witnesses get."""
    edges = [edge for block in tree for edge in combinations(block, 2)]
    for forwarder, watching in (witnesses or {}).items():
        around = {q for block in tree if forwarder in block for q in block} | {forwarder, *watching}
        edges += [(w, q) for w in watching for q in around - {w}]
    return Graph(n, edges)


def routed_places(graph, tree, *, witnesses=None, separators=None, reports=True, in_use=False):
    """Places on a spanning tree: blocks are links, or the cliques given as sets of more than two processes.

    `witnesses` are the other members of a forwarder's separator, by forwarder; where it does not `report`,
    they only get what is sent to it. Separators are cuts of the graph, or of its links `in_use`; by default
    all of at most three members.
    """
    witnesses = witnesses or {}
    blocks = [frozenset(block) for block in tree]
    cut = links_in_use(graph.n, tree, witnesses) if in_use else graph
    chosen = list(cut.separators() if separators is None else separators)

    def behind(start, block):
        reached, todo = {start}, [(start, block)]
        while todo:
            p, came = todo.pop()
            for other in blocks:
                if other != came and p in other:
                    reached |= other
                    todo += [(q, other) for q in other if q != p]
        return pack(reached)

    def branches(p):
        return tuple(
            Branch(q, behind(q, block), number, pack(set(witnesses.get(q, ())) - {p}))
            for number, block in enumerate(blocks)
            if p in block
            for q in sorted(block - {p})
        )

    return [
        Place(
            pack(graph.neighbours(p)),
            branches(p),
            tuple(cut.separator(s) for s in chosen if p in s),
            pack(witnesses.get(p, ())) if reports else 0,
            tuple(WatchedForwarder(f, branches(f)) for f, w in witnesses.items() if p in w and reports),
        )
        for p in range(graph.n)
    ]


def path(n):
    return Graph(n, [(i, i + 1) for i in range(n - 1)])


def ring(n):
    return Graph(n, [(i, (i + 1) % n) for i in range(n)])


def star(n):
    return Graph(n, [(0, i) for i in range(1, n)])


def grid(rows, columns):
    def at(r, c):
        return r * columns + c

    right = [(at(r, c), at(r, c + 1)) for r in range(rows) for c in range(columns - 1)]
    down = [(at(r, c), at(r + 1, c)) for r in range(rows - 1) for c in range(columns)]
    return Graph(rows * columns, right + down)


def random_graph(dice, n, extra):
    """A random tree and some more edges; returns the graph and the tree."""
    tree = [(i, dice.randrange(i)) for i in range(1, n)]
    others = [e for e in combinations(range(n), 2) if set(e) not in [set(t) for t in tree]]
    return Graph(n, tree + dice.sample(others, min(extra, len(others)))), tree


def two_gateways():
    """Processes 0, 1 on one side, 4, 5 on the other; 2 forwards between them and 3 is its witness."""
    sides = [(0, 1), (4, 5)]
    edges = sides + [(d, p) for d in (2, 3) for p in (0, 1, 4, 5)] + [(2, 3)]
    tree = [(0, 1, 2), (2, 4, 5), (2, 3)]
    return Graph(6, edges), tree, {2: {3}}


def zones_in_a_row(n, zones, gateways, *, in_use=False):
    """Broadcast networks with a list of gateways between each two: the first forwards, the others witness.

    Whoever is in none of these is linked with nobody. They filter at the gateways, or at every cut of the
    links in use.
    """
    edges, blocks = [], []
    for i, zone in enumerate(zones):
        beside = gateways[max(i - 1, 0) : i + 1]
        edges += combinations(zone, 2)
        edges += [(g, p) for gates in beside for g in gates for p in zone]
        edges += [link for sides in combinations(beside, 2) for link in product(*sides)]
        blocks.append((*zone, *(gates[0] for gates in beside)))
    for forwarder, *watching in gateways:
        edges += combinations((forwarder, *watching), 2)
        blocks += [(forwarder, w) for w in watching]
    graph = Graph(n, edges)
    return routed_places(
        graph,
        [block for block in blocks if len(block) > 1],
        witnesses={forwarder: set(watching) for forwarder, *watching in gateways if watching},
        separators=None
        if in_use
        else [tuple(gates) for gates in gateways if len(graph.components(gates)) > 1],
        in_use=in_use,
    )
