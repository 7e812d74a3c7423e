"""Random traces to ask."""

from causality.traces import wild


def rows_of(random, across=False):
    """One computation or several, some with times, services, requests and relevant events.

    across   whether a request may be in several computations
    """
    rows = []
    timed, marked, traced, served = (random.random() < 0.5 for _ in range(4))
    for computation in random.choice(([""], [f"c{i}" for i in range(8)], [f"run-{i}" for i in range(8)])):
        for row in wild(random, computation, steps=25):
            if timed and random.random() < 0.9:
                row["time"] = random.randrange(1000)
            row["relevant"] = marked and random.random() < 0.2
            attributes = {}
            if traced and random.random() < 0.9:
                attributes["trace"] = random.choice("xyz") + ("" if across else computation[-1:])
            if served:
                attributes["service"] = "front" if row["process"] in "pq" else "back"
            rows.append(row | {"attributes": list(attributes.items())})
    return rows
