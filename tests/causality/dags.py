"""Random DAGs of many shapes, and traces of them."""

import pyarrow as pa

from happened.trace import SCHEMA
from happened.trace.readers.dag import find_chains

SHAPES = ("chain", "grid", "fan", "branches", "dense", "sparse", "forest")


def dag(random, shape, nodes):
    """The parents of each node, which have smaller numbers; some are given twice, and some are redundant."""
    make = {
        "chain": lambda i: [i - 1],
        "grid": lambda i: [p for p in (i - 1 if i % 20 else -1, i - 20) if p >= 0],
        "fan": lambda i: [*range(i - i % 40, i)] if i % 40 == 39 else [i - i % 40 - 1],
        "branches": lambda i: random.choices(range(max(0, i - 30), i), k=random.choice((1, 1, 1, 2))),
        "dense": lambda i: random.choices(range(max(0, i - 90), i), k=random.randint(1, 6)),
        "sparse": lambda i: random.choices(range(i), k=random.choice((0, 1, 2))),
        "forest": lambda i: [random.randrange(i)] if random.random() < 0.7 else [],
    }[shape]
    parents = []
    for i in range(nodes):
        of = [p for p in (make(i) if i else []) if 0 <= p < i]
        if of and random.random() < 0.1:  # an ancestor of a parent
            of += parents[random.choice(of)][:1]
        if of and random.random() < 0.05:
            of.append(of[0])
        random.shuffle(of)
        parents.append(of)
    return parents


def trace_of(parents, relevant=None, computation=""):
    """Events on chains that add no order, node i in row i, and the parents as causes."""
    distinct = [[*dict.fromkeys(of)] for of in parents]
    chains = find_chains(range(len(parents)), distinct, ["chain"] * len(parents))
    names = chains.names
    place = [{"process": names[chain], "seq": seq} for chain, seq in chains.place]
    rows = [
        {
            "computation": computation,
            **place[i],
            "kind": "internal",
            "relevant": relevant is None or relevant[i],
            "causes": [place[p] for p in of],
        }
        for i, of in enumerate(parents)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def apart(nodes, computation="", message=None):
    """Nodes that each have a process of their own, and the first one as their cause; `message` is one that
    the second sends to the last."""
    first = [{"process": f"p{0:06d}", "seq": 1}]
    columns = {
        "computation": [computation] * nodes,
        "process": [f"p{i:06d}" for i in range(nodes)],
        "seq": [1] * nodes,
        "kind": ["internal"] * nodes,
        "relevant": [True] * nodes,
        "causes": [None, *[first] * (nodes - 1)],
        "message": [None] * nodes,
        "to": [None] * nodes,
    }
    if message is not None:
        columns["kind"][1], columns["kind"][-1] = "send", "deliver"
        columns["message"][1] = columns["message"][-1] = message
        columns["to"][1] = [columns["process"][-1]]
    arrays = [
        pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(nodes, field.type)
        for field in SCHEMA
    ]
    return pa.table(arrays, schema=SCHEMA)
