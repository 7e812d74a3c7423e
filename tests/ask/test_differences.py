"""happened.ask.diff: by hand, and against all pairs of events that two random runs have in common."""

from collections import Counter
from graphlib import CycleError
from itertools import chain
from random import Random

import pytest
from brute import Brute

from causality.traces import number, table, wild
from effort import samples
from happened import ask
from happened.ask.difference import _sorts
from happened.core.errors import CausalityError


def internal(label):
    return {"kind": "internal", "label": label}


def send(message, *to):
    return {"kind": "send", "message": message, "to": list(to)}


def deliver(message, label=None):
    return {"kind": "deliver", "message": message, "label": label}


def told(caused):
    return [(each.cause.id, each.effect.id, each.instead) for each in caused]


def test_a_run_does_not_differ_from_itself():
    rows = number({"p": [send("m", "q"), internal("x")], "q": [deliver("m")]})
    answer = ask.diff(table(rows), table(rows))
    assert answer.is_empty and answer.common == 3


def test_a_cause_that_the_other_run_lacks():
    first = {"web": [send("go", "bank")], "bank": [deliver("go"), internal("charge")]}
    second = {"web": [send("go", "bank")], "bank": [internal("charge"), deliver("go"), internal("log")]}
    answer = ask.diff(table(number(first)), table(number(second)))
    assert told(answer.caused_first) == [("bank#1", "bank#2", "after")]
    assert told(answer.caused_second) == [("bank#1", "bank#2", "after")]
    assert (answer.only_first, [event.label for event in answer.only_second]) == ((), ["log"])


def test_instances_and_ids_differ_from_run_to_run():
    """Services are compared, not the pods that they ran in; labels, not the ids of messages."""

    def run(pod, id):
        rows = number(
            {
                f"web-{pod}": [send(id, f"bank-{pod}") | {"label": "POST"}],
                f"bank-{pod}": [deliver(id, "charge"), internal("done")],
            },
            f"trace-{id}",
        )
        return table([row | {"attributes": [("service", row["process"].partition("-")[0])]} for row in rows])

    assert ask.diff(run("a1", "17"), run("b2", "99")).is_empty


def test_runs_that_have_nothing_in_common():
    with pytest.raises(CausalityError, match="no event in common"):
        ask.diff(table(number({"p": [internal("x")]})), table(number({"q": [internal("x")]})))


@pytest.mark.sampled
def test_differences_are_those_of_all_pairs(seed):
    """There is none iff the common events are ordered alike; each that is told is an immediate cause."""
    different = 0
    for n in range(samples(800)):
        random = Random(seed * 6151 + n)
        one = wild(random, "run", steps=14)
        other = changed(random, one)
        try:
            worlds = [Brute(rows) for rows in (one, other)]
        except CycleError:
            continue
        names = [keys(world) for world in worlds]
        common = names[0].keys() & names[1].keys()
        if not common:
            continue
        answer = ask.diff(table(one), table(other))
        assert answer.common == len(common)
        for (mine, of), (yours, there), caused, only in (
            ((worlds[0], names[0]), (worlds[1], names[1]), answer.caused_first, answer.only_first),
            ((worlds[1], names[1]), (worlds[0], names[0]), answer.caused_second, answer.only_second),
        ):
            assert {(e.process, e.seq) for e in only} == {n[1:] for k, n in of.items() if k not in common}
            expected = set()
            for cause in common:
                for effect in common:
                    before = mine.past(of[effect])
                    if of[cause] not in before or there[cause] in yours.past(there[effect]):
                        continue
                    between = (of[k] for k in common if of[k] in before)
                    if not any(of[cause] in mine.past(k) for k in between):
                        expected.add((of[cause][1:], of[effect][1:]))
            assert {(each.cause[1:3], each.effect[1:3]) for each in caused} == expected
            different += len(expected)
    assert different > samples(800) // 2  # or the runs were hardly different, and little was tried


def test_sorts_and_partners_are_those_of_a_plain_count():
    """Sorts against a dictionary of tuples; partners are of one sort, and as many as the smaller run has."""
    for n in range(60):
        random = Random(n)
        tables = [mixed(random), mixed(random)]
        one, other = (ask.load(of) for of in tables)
        names = {*one.union.computation_names} & {*other.union.computation_names}
        runs = [[sort_of(row, before, names) for row, before in counted(of)] for of in tables]
        numbered = []
        for history, sorts in zip((one, other), _sorts(one, other), strict=True):
            numbered.append(sorts[history.event_of_row].tolist())
        numbers, tuples = [*chain(*numbered)], [*chain(*runs)]
        assert len({*zip(numbers, tuples, strict=True)}) == len({*numbers}) == len({*tuples})
        if {*runs[0]} & {*runs[1]}:
            fewer = sum((Counter(runs[0]) & Counter(runs[1])).values())
            assert ask.diff(*tables).common == fewer


def mixed(random):
    """Processes with and without services, in computations that the other run may not have."""
    rows = []
    for computation in random.sample(["r", "s", "t"], 2):
        for process in "pq":
            served = random.random() < 0.5
            for seq in range(1, random.randint(2, 8)):
                event = {"computation": computation, "process": process, "seq": seq, "kind": "internal"}
                event["label"] = random.choice(["x", "y", "", None])
                rows.append(event | ({"attributes": [("service", "shop")]} if served else {}))
    return table(rows)


def counted(of):
    """The rows of a table, and how many like each came before it on its process."""
    rows, seen = of.to_pylist(), Counter()
    found = {}
    for at in sorted(range(len(rows)), key=lambda at: (rows[at]["process"], rows[at]["seq"])):
        key = tuple(rows[at][name] or "" for name in ("computation", "process", "kind", "label"))
        found[at] = seen[key]
        seen[key] += 1
    return [(row, found[at]) for at, row in enumerate(rows)]


def sort_of(row, before, names):
    service = dict(row["attributes"] or []).get("service")
    computation = row["computation"] if row["computation"] in names else ""
    return computation, service or row["process"], row["kind"], row["label"] or "", 0 if service else before


def plan(random, depth=0):
    """A call at random: (service, operation, calls that it makes at once)."""
    calls = random.choice([0, 1, 2, 3]) if depth < 3 else 0
    return (
        random.choice("abc"),
        random.choice(["get", "put"]),
        [plan(random, depth + 1) for _ in range(calls)],
    )


def run_of(random, plans):
    """Each plan as a request: ids, lanes and the order of everything concurrent are this run's own."""
    rows = []

    def event(id, service, label, causes):
        name = {"process": f"{service}~{random.getrandbits(60)}", "seq": 1}
        about = {"computation": id, "kind": "internal", "label": label, "causes": causes}
        rows.append(name | about | {"attributes": {"service": service}})
        return name

    def serve(id, plan, causes):
        service, operation, calls = plan
        start = event(id, service, operation, causes)
        answers = [serve(id, call, [start]) for call in random.sample(calls, len(calls))]
        return event(id, service, f"{operation} (end)", answers or [start])

    for each in random.sample(plans, len(plans)):
        serve(f"{random.getrandbits(60):x}", each, [])
    return table(random.sample(rows, len(rows)))


@pytest.mark.sampled
def test_what_is_concurrent_may_come_in_any_order(seed):
    """The same requests again have no difference; one call more is the difference, and nothing else is."""
    for n in range(samples(100)):
        random = Random(seed * 6151 + n)
        plans = [plan(random) for _ in range(random.randint(1, 6))]
        first = run_of(random, plans)
        assert ask.diff(first, run_of(random, plans)).is_empty
        more = random.choice(plans)
        plans[plans.index(more)] = (*more[:2], [*more[2], ("d", "log", [])])
        answer = ask.diff(first, run_of(random, plans))
        assert (answer.common, answer.only_first) == (first.num_rows, ())
        assert [event.label for event in answer.only_second] == ["log", "log (end)"]
        assert not (answer.caused_first or answer.caused_second)


def changed(random, rows):
    """Another run of the same program: some events are missing, and some came in another order."""
    chains = {}
    for row in rows:
        if random.random() < 0.9:
            event = {key: row.get(key) for key in ("kind", "message", "to")}
            on = chains.setdefault(row["process"], [])
            on.insert(len(on) - (random.random() < 0.2), event)
    return number(chains, "run")


def keys(world):
    """Events by process, kind, message and how many like it came before."""
    found, seen = {}, {}
    for name in sorted(world.rows):
        row = world.rows[name]
        sort = (row["process"], row["kind"], row.get("message") or "")
        seen[sort] = seen.get(sort, -1) + 1
        found[*sort, seen[sort]] = name
    return found
