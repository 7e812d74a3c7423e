"""Graphviz: a node per event, processes as clusters, edges of process order and of messages and causes."""

from collections.abc import Iterator, Sequence

from ..prepared import Prepared
from .event_texts import told

SHAPES = {
    "send": "circle",
    "unordered": "circle",
    "receive": "circle",
    "deliver": "diamond",
    "internal": "box",
}


def write(computations: Sequence[Prepared]) -> Iterator[str]:
    yield 'digraph happened {\n  rankdir=LR; node [fontsize=10, fontname="sans-serif"];\n'
    for number, each in enumerate(computations):
        yield from _computation(each, number)
    yield "}\n"


def _computation(each: Prepared, number: int) -> Iterator[str]:
    c = each.c
    events = list(told(each))
    for p, name in enumerate(c.process_names):
        chain = c.chain[c.chain_offsets[p] : c.chain_offsets[p + 1]].tolist()
        if not chain:
            continue
        yield f"  subgraph cluster_{number}_{p} {{ label={_quoted(name)};\n"
        for e in chain:
            shape = SHAPES[events[e].row["kind"]]
            label = _quoted(f"{events[e].row['seq']} {events[e].deed}")
            yield f"    e{number}_{e} [shape={shape}, label={label}];\n"
        yield "  }\n"
        if len(chain) > 1:
            yield f"  {' -> '.join(f'e{number}_{e}' for e in chain)} [weight=8, color=gray];\n"
    for e in range(c.events):
        if c.source[e] >= 0:
            about = _quoted(c.message_name(int(c.message[e])))
            yield f"  e{number}_{c.source[e]} -> e{number}_{e} [label={about}, constraint=true];\n"
        for u in c.causes[c.cause_offsets[e] : c.cause_offsets[e + 1]].tolist():
            yield f"  e{number}_{u} -> e{number}_{e} [style=dashed];\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\0", "")
    return f'"{escaped}"'
