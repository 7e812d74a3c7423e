"""The studies of chapter 7 (Rodrigues and Veríssimo) on short runs: what must be larger than what."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from happened.cli import main
from happened.core.errors import LocalProtocolError
from happened.experiments.separator_study import baselines, cases, figure_7_5, measure, study, table_7_1
from happened.topology import load, problems

EXAMPLES = Path(__file__).parents[2] / "examples" / "topologies"


def rows(figure, seed, messages, **which):
    chosen = [case for case in cases() if case.study == figure]
    for name, value in which.items():
        chosen = [case for case in chosen if getattr(case, name) == value]
    return list(study(chosen, messages=messages, seed=seed))


@pytest.mark.parametrize("network", ["n = 6", pytest.param("n = 10", marks=pytest.mark.slow)])
def test_table_7_1_more_separators_give_smaller_timestamps(seed, network):
    found = rows("Table 7.1", seed, 2000, network=network)
    assert [len(row.case.filter_at) for row in found] == [0, 1, 3]
    assert all(more.entries > fewer.entries for more, fewer in pairwise(found))
    assert found[0].histories["d3"] > found[-1].histories["d3"]
    assert found[0].entries == pytest.approx(float(found[0].case.paper), rel=0.15)
    assert len({row.timestamps for row in found}) == 1, "the same sends, whoever filters"


@pytest.mark.slow
def test_figure_7_5_a_large_group_behind_a_gateway_is_not_felt(seed):
    without, at_the_gateway = rows("Figure 7.5", seed, 1200, timestamp_redundancy=False)
    assert without.entries >= 5 * at_the_gateway.entries and at_the_gateway.entries < 5
    assert without.entries > 20, "an entry for nearly everybody"
    with_r7, both = rows("Figure 7.5", seed, 600, timestamp_redundancy=True)
    assert without.entries > 5 * with_r7.entries, "R7 alone saves as much"
    assert with_r7.entries > both.entries
    assert with_r7.histories["p1"] > 3 * both.histories["p1"]


def test_figure_7_6_two_gateways_filter_together(seed):
    without, at_the_boundaries = rows("Figure 7.6", seed, 2000)
    assert without.entries > at_the_boundaries.entries
    assert without.histories["p1"] > 2 * at_the_boundaries.histories["p1"]


def test_the_paper_s_other_columns_follow_from_the_groups():
    assert all(baseline.paper == baseline.entries for baseline in baselines())


def test_the_network_of_the_table_is_the_example():
    example, network = load(EXAMPLES / "two-gateways.yaml"), table_7_1(6)
    assert {frozenset(link) for link in example.graph.edges} == {
        frozenset(link) for link in network.graph.edges
    }
    assert (example.zones, example.groups) == (network.zones, network.groups)
    assert all(not problems(case.topology) for case in cases())


def test_one_seed_gives_one_result(seed):
    case = cases()[0]
    assert measure(case, messages=200, seed=seed) == measure(case, messages=200, seed=seed)
    assert (
        measure(case, messages=200, seed=seed).entries != measure(case, messages=200, seed=seed + 1).entries
    )


def test_runs_too_short_to_say_anything_are_refused():
    with pytest.raises(LocalProtocolError, match="at least one message"):
        list(study(cases(), messages=0, seed=1))
    gateway = next(case for case in cases() if case.study == "Figure 7.5")
    with pytest.raises(LocalProtocolError, match="no message of group G1"):
        measure(gateway, messages=1, seed=next(s for s in range(99) if first_sender(s) > 3))


def first_sender(seed):
    """Who sends first in the network of Figure 7.5, of which 0 to 3 are the small group."""
    from random import Random

    pauses = Random(f"{seed}/timing")
    n = len(figure_7_5().graph)
    return min(range(n), key=[pauses.expovariate(10.0) for _ in range(n)].__getitem__)


def test_the_command_prints_every_case(capsys):
    assert main(["topology", "study", "--messages", "200", "--seed", "7", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["seed"] == 7 and len(document["rows"]) == len(cases()) == 12
    assert [row["paper"] for row in document["rows"][:6]] == ["3.55", "2.70", "2.10", "3.46", "3.09", "2.76"]
