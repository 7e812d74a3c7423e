"""The README says of every protocol what its facts say."""

from pathlib import Path

import pytest

from happened.core.orders import Order
from happened.ordering import protocols
from happened.ordering.facts import BROADCAST, UNICAST, MembershipChanges, Relays

README = Path(__file__).resolve().parents[1] / "README.md"
HEAD = "| name | what it is | order | assumes | bytes | paper |"
ORDERS = {
    Order.FIFO: "FIFO",
    Order.CAUSAL: "causal",
    Order.TOTAL: "total",
    Order.CAUSAL_TOTAL: "causal and total",
}


def rows():
    lines = README.read_text().splitlines()
    start = lines.index(HEAD) + 2
    table = [line.strip("| ").split(" | ") for line in lines[start : lines.index("", start)]]
    return {name.strip("`"): cells for name, *cells in table}


def test_the_table_has_every_protocol_in_the_order_of_the_registry():
    assert list(rows()) == list(protocols())


@pytest.mark.parametrize("name", protocols())
def test_a_row_says_what_the_facts_say(name):
    facts = protocols()[name]
    what, order, _, cost, paper = rows()[name]
    promised = ORDERS[facts.order]
    if facts.promises.longest_chain is not None:
        promised += f"; causal over chains of {('one', 'two', 'three')[facts.promises.longest_chain - 1]}"
    assert (what, order, paper) == (facts.description, promised, facts.paper)
    assert cost.split()[0].isdigit() or "entry" in cost


@pytest.mark.parametrize("name", protocols())
def test_a_row_says_what_the_protocol_assumes(name):
    assumed, words = rows()[name][2], must_say(protocols()[name])
    assert all(word in assumed for word in words)
    assert (assumed == "–") == (not words)


def must_say(facts):
    words = {
        "broadcast": facts.assumes.casts == {BROADCAST} and not facts.assumes.fixed_groups,
        "unicast": facts.assumes.casts == {UNICAST},
        "groups": facts.assumes.fixed_groups,
        "fixed": not facts.membership.joins,
        "FIFO": facts.assumes.fifo_links,
        "one process": facts.assumes.serialized,
        " ": facts.copies.relays is Relays.ROUTERS,  # where they stand, in the protocol's own words
    }
    return [word for word, says in words.items() if says]


USUAL = MembershipChanges().changes()
"""What happens when members change, unless a protocol says something else."""


def said_of_changes():
    lines = (README.parent / "docs" / "runtime.md").read_text().splitlines()
    start = lines.index("| protocol | who joins | who leaves | who is expelled |") + 2
    table = [line.strip("| ").split(" | ") for line in lines[start : lines.index("", start)]]
    return {name.strip("`"): dict(zip(USUAL, cells, strict=True)) for name, *cells in table}


def test_the_page_on_nodes_says_what_happens_when_members_change():
    said = said_of_changes()
    assert said.pop("all others") == USUAL
    assert said == {
        name: facts.membership.changes()
        for name, facts in protocols().items()
        if facts.membership.changes() != USUAL
    }
