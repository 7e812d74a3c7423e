"""Many computations analysed as one union say what each says alone."""

import random
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import effort
from causality import traces
from happened.causality import computation, encode
from happened.causality.analysis import TABLES, analyse
from happened.causality.computation import unite
from happened.core.errors import TraceFormatError


def wild_tables(seed, count):
    """Computations of all sizes that break every rule, some with clocks and times; a few cause themselves."""
    dice = random.Random(seed)
    tables = []
    for number in range(count):
        rows = traces.wild(dice, f"c{number}")
        ahead = {row["process"]: dice.randint(-200, 200) for row in rows}
        for row in rows:
            row["relevant"] = number % 3 == 0 and dice.random() < 0.5
            if number % 2:
                row["time"] = row["seq"] * 10 + ahead[row["process"]] + dice.randint(0, 5)
            if number % 5 == 0 and dice.random() < 0.5:
                names = [*ahead, "nobody"]
                row["clock"] = [(name, dice.randint(0, 3)) for name in dice.sample(names, min(2, len(names)))]
        if number % 50 == 7 and rows:
            rows[0]["causes"] = [{"process": rows[0]["process"], "seq": rows[0]["seq"]}]
        tables.append(traces.table(rows))
    return tables


def is_sound(table):
    if not table.num_rows:
        return False
    try:
        encode(table)
    except TraceFormatError:
        return False
    return True


@pytest.mark.sampled
@pytest.mark.parametrize("cells", [16_000_000, 200], ids=["one union", "many"])
def test_a_union_says_what_its_computations_say(seed, monkeypatch, cells):
    monkeypatch.setattr(computation.unite, "__defaults__", (cells,))
    tables = wild_tables(seed, 300 if effort.THOROUGH else 120)
    least = 20 if effort.THOROUGH else 8
    together = analyse(pa.concat_tables(tables))
    alone = [analyse(table) for table in tables]
    totals = sum((each.totals for each in alone), Counter())
    assert together.totals == totals
    assert totals["causal_violations"] > least
    assert totals["clock_mismatches"] > least
    assert totals["quarantined"] > 0
    for name in TABLES:
        expected = pa.concat_tables([each.table(name) for each in alone])
        assert traces.rows_of(together.table(name), name) == traces.rows_of(expected, name), name


def test_unions_keep_within_their_cells(seed):
    tables = [table for table in wild_tables(seed, 200) if is_sound(table)]
    unions = unite(pa.concat_tables(tables), cells=1000)
    assert sum(len(union.computation_names) for union in unions) == len(tables)
    assert len(unions) > 5
    for union in unions:
        assert union.events * union.width <= 1000 or len(union.computation_names) == 1


def test_one_broken_among_many_is_found_by_halving(seed, monkeypatch):
    """Looking at each of n computations by itself would take n looks; halving takes about 2 log n."""
    sound = [table for table in wild_tables(seed, 400) if is_sound(table)]
    dice = random.Random(seed)
    cyclic = traces.table(
        [
            {
                "computation": "bad",
                "process": "a",
                "seq": 1,
                "kind": "internal",
                "relevant": False,
                "causes": [{"process": "a", "seq": 1}],
            },
        ]
    )
    sound.insert(dice.randrange(len(sound)), cyclic)
    looks = []
    honest = computation._Columns.__init__

    def counting(self, table, gaps):
        looks.append(table.num_rows)
        honest(self, table, gaps)

    monkeypatch.setattr(computation._Columns, "__init__", counting)
    found = analyse(pa.concat_tables(sound))
    assert found.table("quarantine")["computation"].to_pylist() == ["bad"]
    assert pc.count_distinct(found.table("stamps")["computation"]).as_py() == len(sound) - 1
    assert len(looks) < 30


def test_processes_are_numbered_by_name_whatever_the_order_of_the_rows(seed):
    """Estimates in floating point (drift) depend on that order in their last bits."""
    dice = random.Random(seed)
    rows = traces.number(traces.causal(dice))
    for _ in range(5):
        dice.shuffle(rows)
        (c,) = encode(traces.table(rows))
        assert list(c.process_names) == sorted(c.process_names)
