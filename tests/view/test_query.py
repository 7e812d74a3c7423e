"""What a query means: the server's answer over a whole computation is that of the page."""

from random import Random

import numpy as np
import pytest

from causality.traces import busy, number, table
from effort import samples
from happened import causality
from happened.view.prepared import Prepared
from happened.view.query import matching

LABELS = ("put x", "GET /a=b", "Ärger", "x\u2028y", 'he said "no"', "%", "a\\b", None)
ATTRIBUTES = ({"http.status": "500", "Zone": "east"}, {"": "p:1"}, {}, None, {"a=b": "time>1"})
QUERIES = (
    "", "  ", "p", "process:p", "kind:send p", "kind:deliver message:q", "label:PUT", "ärger", '"he said"',
    "zone=EAST", "http.status=5", "zone=", "=", "to=q", "time>2us", "time<1.5us time>-1", "time>1.2.3",
    "event:q#1", "q#2", "control", "control bytes=7", '"put x" kind:internal', "nothing", "%", "\\", "a=b",
    "unordered", "a.c",
)  # fmt: skip


def told(random, rows):
    for row in rows:
        row["label"] = random.choice(LABELS)
        row["attributes"] = random.choice(ATTRIBUTES)
        row["time"] = random.choice((None, random.randrange(5_000)))
        row["control_entries"], row["control_bytes"] = random.choice(((None, None), (3, 7)))
        if row["kind"] == "send" and random.random() < 0.1:
            row["kind"] = "unordered"
    return rows


def found(prepared, query):
    mask = matching(prepared, query)
    return None if mask is None else {prepared.c.event(int(e)).id for e in np.flatnonzero(mask)}


@pytest.mark.sampled
def test_the_page_and_the_server_mean_the_same(look, seed):
    for k in range(samples(8)):
        random = Random(seed + k)
        whole = table(told(random, busy(random)))
        (c,) = causality.encode(whole)
        prepared = Prepared(c, whole)
        tab = look(whole)
        for query in QUERIES:
            tab.page.fill("#search", query)
            matches = tab.ask("happened.matches()")
            assert found(prepared, query) == (None if matches is None else set(matches)), query


def test_a_long_text_is_looked_at_to_its_end():
    rows = number({"p": [{"kind": "internal", "label": "x" * 3_000 + "needle"}, {"kind": "internal"}]})
    whole = table(rows)
    (c,) = causality.encode(whole)
    assert found(Prepared(c, whole), "needle") == {"p#1"}
    assert found(Prepared(c, whole), "time>1s") == set()


def test_one_computation_of_several_is_searched():
    whole = table(
        [
            *number({"p": [{"kind": "internal", "label": "a"}] * 3}, "c"),
            *number({"q": [{"kind": "internal", "label": "a"}]}, "d"),
        ]
    )
    names = {c.name: found(Prepared(c, whole), "label:a") for c in causality.encode(whole)}
    assert names == {"c": {"p#1", "p#2", "p#3"}, "d": {"q#1"}}
