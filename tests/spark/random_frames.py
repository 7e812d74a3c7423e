"""Random computations with planted defects, and an oracle for them that knows nothing of the pipeline.

The oracle takes rows as dictionaries and computes happened-before as a transitive closure over sets of
events: no vectors, no epochs, no Spark. It says of each computation whether it must be refused, whether some
of it must be quarantined, and otherwise every answer.
"""

from dataclasses import dataclass, field

KINDS = {"send", "unordered", "receive", "deliver", "internal"}
SENDS = {"send", "unordered"}
PROCESSES = ("p", "q", "r", "s", "P", "é", "e\u0301", "p#1", "a b", "名", "🙂", "", " p", "null", "p,q")
MESSAGES = ("m", "", "ü", "a:1", "🙂")


@dataclass
class Expected:
    """What the answers must say of one computation."""

    refused: bool = False
    named: int = 0  # rows of the quarantine that must name it, where it is not refused
    duplicates: int = 0
    stamps: dict = field(default_factory=dict)
    predecessors: set = field(default_factory=set)
    violations: dict = field(default_factory=dict)  # (order, process, early, early_seq) -> possible overtaken
    lost: set = field(default_factory=set)  # (order, process, lost)
    messages: set = field(default_factory=set)
    before: set = field(default_factory=set)  # pairs of events, the first of which happened before the second


def is_event(row):
    if row["process"] is None or row["seq"] is None or row["seq"] < 1 or row["kind"] not in KINDS:
        return False
    if row["kind"] != "internal" and row["message"] is None:
        return False
    if None in (row["to"] or ()):
        return False
    return row["kind"] not in SENDS or row["to"] is not None


def _frozen(value):
    if isinstance(value, dict):
        return tuple((name, _frozen(value[name])) for name in sorted(value))
    return tuple(_frozen(item) for item in value) if isinstance(value, list | tuple) else value


def expect(rows, streamed=False):
    """What must be said of the computation that has these rows.

    A stream does not know of rows to come: it takes only deliveries for deliveries, and asks for predecessors
    among all events. It compares rows in the columns that it looks at.
    """
    ignored = ("label", "time") if streamed else ()
    expected = Expected()
    events, seen = {}, set()
    for row in rows:
        if not is_event(row):
            expected.named += 1
            continue
        name = (row["process"], row["seq"])
        compared = {column: row[column] for column in row if column not in ignored}
        compared = _frozen(compared | {"relevant": bool(row["relevant"])})
        if compared in seen:
            expected.duplicates += 1
        expected.refused |= name in events and compared not in seen
        seen.add(compared)
        events[name] = row
    for process, seq in events:
        expected.refused |= seq > 1 and (process, seq - 1) not in events
    sent = [row["message"] for row in events.values() if row["kind"] in SENDS]
    expected.refused |= len(sent) != len({*sent})
    return expected if expected.refused else _answers(expected, events, streamed)


def _deliveries(events, streamed):
    """The deliveries of each message at each process, in the order of seq."""
    delivered = streamed or any(row["kind"] == "deliver" for row in events.values())
    stands_in = "deliver" if delivered else "receive"
    found = {}
    for name in sorted(events):
        if events[name]["kind"] == stands_in:
            found.setdefault((events[name]["message"], name[0]), []).append(name)
    return found


def _answers(expected, events, streamed):
    sends = {row["message"]: name for name, row in events.items() if row["kind"] in SENDS}
    arrivals = _deliveries(events, streamed)
    edges = {((p, seq - 1), (p, seq)) for p, seq in events if seq > 1}
    for (message, _), [first, *_] in arrivals.items():
        if message in sends and events[sends[message]]["kind"] == "send":
            edges.add((sends[message], first))
    for name, row in events.items():
        for cause in row["causes"] or ():
            cause = (cause and cause[0], cause and cause[1])
            if cause in events:
                edges.add((cause, name))
            else:
                expected.named += 1
    arrived = {row["kind"] for row in events.values()} & {"receive", "deliver"}
    expected.named += streamed and arrived == {"receive"}  # which the stream cannot know in time
    past = _closure(events, edges)
    if past is None:
        expected.refused = True
        return expected
    expected.before = {(cause, name) for name in events for cause in past[name]}
    _stamps(expected, events, past, streamed)
    _orders(expected, events, past, sends, arrivals)
    _fates(expected, events, sends, arrivals)
    return expected


def _closure(events, edges):
    """The events before each, or None if some event is before itself."""
    past = {name: {cause for cause, effect in edges if effect == name} for name in events}
    grown = True
    while grown:
        grown = False
        for known in past.values():
            more = {earlier for cause in known for earlier in past[cause]} - known
            if more:
                known |= more
                grown = True
    return None if any(name in known for name, known in past.items()) else past


def _stamps(expected, events, past, streamed):
    for name in events:
        clock = {}
        for process, _ in past[name] | {name}:
            clock[process] = clock.get(process, 0) + 1
        expected.stamps[name] = frozenset(clock.items())
    marked = set() if streamed else {name for name, row in events.items() if row["relevant"]}
    relevant = marked or {*events}
    for name in relevant:
        known = past[name] & relevant
        nearest = known - {earlier for cause in known for earlier in past[cause]}
        expected.predecessors |= {(name, cause) for cause in nearest}


def _orders(expected, events, past, sends, arrivals):
    judged = [message for message, send in sends.items() if events[send]["kind"] == "send"]
    for late in judged:
        for soon in judged:
            if sends[soon] not in past[sends[late]]:
                continue
            orders = ("fifo", "causal") if sends[soon][0] == sends[late][0] else ("causal",)
            for process in {*events[sends[soon]]["to"]} & {*events[sends[late]]["to"]}:
                late_at, soon_at = (arrivals.get((message, process)) for message in (late, soon))
                if late_at is None:
                    continue
                for order in orders:
                    if soon_at is None:
                        expected.lost.add((order, process, soon))
                    elif late_at[0][1] < soon_at[0][1]:
                        key = (order, process, late, late_at[0][1])
                        expected.violations.setdefault(key, set()).add((soon, soon_at[0][1]))


def _fates(expected, events, sends, arrivals):
    for message, send in sends.items():
        for process in {*events[send]["to"]}:
            at = arrivals.get((message, process), [])
            fate = ("lost", "delivered")[len(at)] if len(at) < 2 else "duplicated"
            expected.messages.add((message, *send, process, at[0][1] if at else None, len(at), fate))
    for (message, process), at in arrivals.items():
        send = sends.get(message)
        if send is None:
            expected.messages.add((message, None, None, process, at[0][1], len(at), "never_sent"))
        elif process not in events[send]["to"]:
            expected.messages.add((message, *send, process, at[0][1], len(at), "misdelivered"))


def sound(random, computation, most=20):
    """A computation that can be judged; its messages may be late, doubled, lost, astray or never sent."""
    processes = random.sample(PROCESSES, random.randint(1, 4))
    absent = random.choice(["nobody", processes[0]])
    word, receives_only, marks = random.choice(MESSAGES), random.random() < 0.15, random.random() < 0.3
    rows, network, last, clock = [], [], dict.fromkeys(processes, 0), 0
    for number in range(random.randint(1, most)):
        process = random.choice(processes)
        waiting = [message for message, to in network if to == process]
        kind = random.choice(
            ["send", "send", "internal", "unordered", "deliver", "deliver", "deliver", "receive"]
        )
        message = to = None
        if kind in SENDS:
            kind = kind if random.random() < 0.5 else "send"
            message = f"{word}{number}" if number else word
            to = random.choices([*processes, absent], k=random.randint(1, 3))
            network += [(message, receiver) for receiver in {*to}]
        elif kind in ("deliver", "receive"):
            luck = random.random()
            if waiting and luck < 0.9:
                message = random.choice(waiting)
                if kind == "deliver" and luck < 0.8:
                    network.remove((message, process))
            elif network and luck < 0.95:
                message = random.choice(network)[0]
            else:
                message = f"unsent{number}"
            kind = "receive" if receives_only else kind
        last[process] += 1
        clock += random.randint(0, 3)
        causes = [(row["process"], row["seq"]) for row in random.sample(rows, min(len(rows), 2))]
        rows.append(
            {
                "computation": computation,
                "process": process,
                "seq": last[process],
                "kind": kind,
                "message": message,
                "to": to,
                "time": clock if random.random() < 0.9 else None,
                "relevant": random.random() < 0.5 if marks else random.choice([None, False]),
                "causes": random.choice([None, [], causes, causes[:1]]) if random.random() < 0.3 else None,
                "label": random.choice([None, "", "x"]),
            }
        )
    return rows


def _repeat(random, rows):
    rows += [dict(random.choice(rows)) for _ in range(random.randint(1, 3))]


def _double_all(random, rows):
    rows += [dict(row) for row in rows]


def _contradict(random, rows):
    row = dict(random.choice(rows))
    name, value = random.choice(
        [("label", "other"), ("time", -5), ("kind", "internal"), ("message", "other")]
    )
    rows.append(row | {name: value})


def _gap(random, rows):
    rows.remove(random.choice(rows))


def _filter(random, rows):
    rows[:] = [row for row in rows if random.random() < 0.7] or rows


def _null(random, rows):
    random.choice(rows)[random.choice(["process", "seq", "kind", "message", "to", "time", "causes"])] = None


def _wrong_kind(random, rows):
    random.choice(rows)["kind"] = random.choice(["Send", "recv", "", "deliver ", "local"])


def _wrong_seq(random, rows):
    random.choice(rows)["seq"] = random.choice([0, -1, 1, 2, 2**31, 2**62])


def _circle(random, rows):
    first, second = random.choice(rows), random.choice(rows)
    for row, other in ((first, second), (second, first)):
        row["causes"] = [*(row["causes"] or ()), (other["process"], other["seq"])]


def _own_message_first(random, rows):
    process = random.choice(["own", "p"])
    top = max((row["seq"] for row in rows if row["process"] == process), default=0)
    made = dict.fromkeys(rows[0]) | {"computation": rows[0]["computation"], "process": process}
    kind = random.choice(["deliver", "receive"])
    rows.append(made | {"seq": top + 1, "kind": kind, "message": "own"})
    rows.append(made | {"seq": top + 2, "kind": "send", "message": "own", "to": [process]})


def _absent_cause(random, rows):
    cause = random.choice([("nobody", 1), ("p", 99), (None, 1), ("p", None), None, ("p", 0)])
    row = random.choice(rows)
    row["causes"] = [*(row["causes"] or ()), cause]


def _send_again(random, rows):
    row = dict(random.choice(rows))
    row["seq"] = max(other["seq"] for other in rows if other["process"] == row["process"]) + 1
    rows.append(row)


def _to_nobody(random, rows):
    row = random.choice(rows)
    row["to"] = random.choice([[], [None], ["p", None], None])


def _swap(random, rows):
    first, second = random.choice(rows), random.choice(rows)
    for name in ("process", "seq"):
        first[name], second[name] = second[name], first[name]


DEFECTS = (
    *(_repeat, _double_all, _contradict, _gap, _filter, _null, _wrong_kind, _wrong_seq, _circle),
    *(_own_message_first, _absent_cause, _send_again, _to_nobody, _swap),
)


def computation(random, name, defective):
    """Rows of one computation, with up to two defects."""
    rows = sound(random, name)
    for defect in random.choices(DEFECTS, k=random.choice([1, 1, 2])) if defective else ():
        if rows and all(row["seq"] is not None for row in rows):
            defect(random, rows)
    return rows


NAMES = ("c{}", "C{}", "é{}", "e\u0301{}", "{} ", " {}", "{}\t🙂", "a/b={}", "名{}", "%{}", "c{}\u0000")


def computations(random, count, defective=0.5):
    """Rows of so many computations by name; one of them may be nameless."""
    names = [random.choice(NAMES).format(number) for number in range(count)]
    if random.random() < 0.5:
        names[0] = ""
    made = {name: computation(random, name, random.random() < defective) for name in names}
    return {name: rows for name, rows in made.items() if rows}
