"""Random traces for the judge: wild ones that break every rule, and ones that keep causal order."""

from collections import Counter
from itertools import count

import pyarrow as pa

from happened.trace import SCHEMA

PROCESSES = ("p", "q", "r", "s")


def table(rows, chunk=7):
    """In chunks, as a trace read from several parts is."""
    rows = [{"computation": "", "relevant": False} | row for row in rows]
    chunks = [rows[at : at + chunk] for at in range(0, len(rows), chunk)] or [[]]
    return pa.concat_tables([pa.Table.from_pylist(part, schema=SCHEMA) for part in chunks])


def number(chains, computation=""):
    """Rows of events given per process, in order: seq is the place in the chain."""
    return [
        {"computation": computation, "process": process, "seq": seq, "relevant": False} | event
        for process, events in chains.items()
        for seq, event in enumerate(events, start=1)
    ]


def wild(random, computation="", steps=40):
    """Deliveries in any order, lost, duplicated, astray or of nothing sent; causes to any earlier event."""
    processes = PROCESSES[: random.choice((1, 2, 3, 4, 4))]
    handover = random.choice((["deliver"], ["deliver"], ["receive"], ["receive", "deliver"]))
    chains = {process: [] for process in processes}
    flying, sent = [], 0
    for _ in range(random.randint(0, steps)):
        process = random.choice(processes)
        chance = random.random()
        if chance < 0.08:
            event = {"kind": "internal"}
        elif chance < 0.1:
            event = {"kind": random.choice(handover), "message": "unsent"}
        elif chance < 0.4 or not flying:
            message = f"{process}:{sent}"
            to = [x for x in processes if random.random() < 0.6] + ["absent"] * (random.random() < 0.1)
            event = {"kind": "send", "message": message, "to": to}
            flying += [(message, x) for x in to if x != "absent"]
            sent += 1
        else:
            message, process = random.choice(flying)
            if random.random() < 0.9:
                flying.remove((message, process))
            if random.random() < 0.05:
                process = random.choice(processes)
            event = {"kind": random.choice(handover), "message": message}
        if random.random() < 0.1 and any(chains.values()):
            cause = random.choice([p for p in processes if chains[p]])
            event["causes"] = [{"process": cause, "seq": random.randint(1, len(chains[cause]))}]
        chains[process].append(event)
    return number(chains, computation)


def busy(random, computation=""):
    """A wild computation of fifteen events or more: some are all but empty."""
    return next(rows for _ in count() if len(rows := wild(random, computation)) >= 15)


def causal(random, processes=PROCESSES, messages=10):
    """Chains in causal order by construction: a message knows the set of those sent in its past."""
    chains = {process: [] for process in processes}
    known = {process: set() for process in processes}  # messages sent in the causal past
    past, to, delivered, flying = {}, {}, set(), []
    while len(past) < messages or flying:
        deliverable = [
            (m, x) for m, x in flying if all((k, x) in delivered or x not in to[k] for k in past[m])
        ]
        if len(past) < messages and (not deliverable or random.random() < 0.4):
            process = random.choice(processes)
            message = f"{process}:{len(past)}"
            to[message] = random.sample(processes, random.randint(1, len(processes)))
            past[message] = set(known[process])
            known[process].add(message)
            chains[process].append({"kind": "send", "message": message, "to": to[message]})
            flying += [(message, x) for x in to[message]]
        else:
            message, x = random.choice(deliverable)
            flying.remove((message, x))
            delivered.add((message, x))
            known[x] |= past[message] | {message}
            chains[x].append({"kind": "deliver", "message": message})
    return chains


def rows_of(table, name):
    """A table's rows without what may differ: the epoch, and which of several overtaken messages is named."""
    rows = []
    if name == "epochs":  # the last of them ends where the computation does
        last = {(row["computation"], row["process"]): row["last"] for row in _by_epoch(table)}
        return Counter((*key, end) for key, end in last.items())
    for row in table.to_pylist():
        if name == "stamps":
            clock = None if row["clock"] is None else tuple(row["clock"])
            entries = row["entries"]
            if entries is not None:
                entries = frozenset((entry["p"], entry["seq"]) for entry in entries)
            row = (row["computation"], row["process"], row["seq"], row["event"], clock, entries)
        elif name == "violations":
            row = tuple(
                row[key]
                for key in ("computation", "order_name", "process", "early", "early_seq", "early_event")
            )
            if row[1] == "total":  # which pair of messages stands for a disagreement may differ
                continue
        elif name == "lost_causes":
            row = tuple(value for key, value in row.items() if key != "path")
        else:
            row = tuple(row.values())
        rows.append(row)
    return Counter(rows)


def _by_epoch(table):
    return sorted(table.to_pylist(), key=lambda row: row["epoch"])
