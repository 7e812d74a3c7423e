"""Who failed last, judged by the order in which members really failed."""

import pytest

from happened.core.destinations import pack, unpack
from happened.core.errors import LocalProtocolError
from happened.ordering.last_to_fail import last_to_fail


def failures(dice, n, seen):
    """Members fail in rounds; who is alive after a round records each of its failures with this chance."""
    left, recorded = list(range(n)), dict.fromkeys(range(n), 0)
    while left:
        dice.shuffle(left)
        together = dice.randint(1, len(left)) if dice.random() < 0.3 else 1
        failed, left = left[:together], left[together:]
        for p in left:
            recorded[p] |= pack(q for q in failed if dice.random() < seen)
    return recorded, set(failed)


def outlived_by_nobody(recorded):
    """Whom no member recorded: the definition, with the records of all."""
    everybody = set(recorded)
    return everybody - {q for failed in recorded.values() for q in unpack(failed)}


@pytest.mark.parametrize("seen", [1.0, 0.6], ids=["everybody sees all", "some see some"])
def test_the_last_are_those_whom_the_records_of_all_name_as_failed_nowhere(dice, seen):
    early = 0
    for _ in range(300):
        n = dice.randint(1, 6)
        recorded, last = failures(dice, n, seen)
        truth = outlived_by_nobody(recorded)
        assert truth >= last and (seen < 1 or truth == last)
        recovered = {}
        for p in dice.sample(range(n), n):
            recovered[p] = recorded[p]
            try:
                found = last_to_fail((1 << n) - 1, recovered)
            except LocalProtocolError as error:
                assert len(recovered) < n and "not known before" in str(error)
                continue
            assert set(unpack(found)) == truth
            early += len(recovered) < n
    assert early, "it is sometimes known before all are back"


def test_it_waits_for_whoever_may_have_outlived_the_candidates():
    group = 0b111
    with pytest.raises(LocalProtocolError, match="before 1, 2 recovers"):
        last_to_fail(group, {0: 0})
    with pytest.raises(LocalProtocolError, match="before 2 recovers"):
        last_to_fail(group, {0: 0, 1: 0b001})
    assert last_to_fail(group, {1: 0b101}) == 0b010, "it outlived both others"


def test_what_was_recorded_by_those_it_outlived_counts():
    """2 saw only 1 fail, and 1 saw 0: with both records, 2 alone was last."""
    assert last_to_fail(0b111, {2: 0b010, 1: 0b001}) == 0b100
    with pytest.raises(LocalProtocolError, match="before 0 recovers"):
        last_to_fail(0b111, {2: 0b010})
