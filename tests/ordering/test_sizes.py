"""What the comparison protocols carry: the table of docs/ordering.md, at n = 10 and fewer messages."""

import pytest

from happened.ordering import create
from happened.sim.ledger import Ledger
from happened.sim.simulation import Simulation
from happened.sim.workload import Workload

# Dependents and model bytes per message that a prototype of its own measured at n = 10, with an exponential
# delay of mean 0.1 s: the study of Jang et al. (1997), whose curves give no figures (see docs/papers.md).
TABLE = {
    ("ks", "unicast"): (20, 145),
    ("ks", "multicast"): (11, 88),
    ("pruning", "unicast"): (19, 143),
    ("pruning", "multicast"): (11, 97),
    ("prs", "unicast"): (72, 467),
    ("prs", "multicast"): (34, 242),
    ("rst", "unicast"): (100, 400),
    ("rst", "multicast"): (100, 400),
    ("ses", "unicast"): (9, 418),
    ("ses", "multicast"): (9, 418),
}


@pytest.mark.parametrize(("name", "pattern"), TABLE)
def test_entries_and_model_bytes_are_those_of_the_table(name, pattern, seed):
    dependents, size = TABLE[name, pattern]
    ledger = Ledger()
    messages = 3000 if pattern == "unicast" else 1000

    def make(me, n):
        return create(name, me, n)

    left = Simulation(make, 10, messages, seed=seed, workload=Workload(pattern), ledger=ledger).run()
    totals = ledger.totals()
    assert left == []
    # The first messages carry little: the mean from the start stays a few per cent below the steady one.
    assert totals["entries"]["mean"] == pytest.approx(dependents, rel=0.1)
    assert totals["model_bytes"]["mean"] == pytest.approx(size, rel=0.1)


def test_a_ses_message_names_its_own_sender_only_while_something_to_itself_is_under_way():
    zero, one = create("ses", 0, 2), create("ses", 1, 2)
    back, there = (send.message for send in zero.multicast([0, 1], b"").effects)
    assert [d for d, _ in zero.multicast([1], b"").effects[0].message.pairs] == [0, 1]
    zero.receive(back)
    assert [d for d, _ in zero.multicast([1], b"").effects[0].message.pairs] == [1]
    one.receive(there)
    assert [d for d, _ in one.multicast([0], b"").effects[0].message.pairs] == [0]
