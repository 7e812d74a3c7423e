"""The coordinator's role changes hands, whatever is in flight."""

import pytest

import effort
from happened.core.effects import Deliver
from happened.core.errors import LocalProtocolError
from happened.ordering import create
from happened.ordering.machine import Multicast
from happened.ordering.total.sequencer import SequencerTotalOrder
from happened.ordering.total.sequencer_office import (
    SequencerAnnouncement,
    SequencerHandover,
    SequencerReport,
    SequencerRequest,
    succeed,
)
from happened.sim.explore import explore


class HandsOverAfter(SequencerTotalOrder):
    """Hands the role to the next process once it has put so many messages in order."""

    after = 1

    def multicast(self, to, payload):
        clock, effects = super().multicast(to, payload)
        return Multicast(clock, self._then_hand_over(effects))

    def receive(self, message):
        return self._then_hand_over(super().receive(message))

    def _then_hand_over(self, effects):
        if self._office is not None and self._epoch < 2 and len(self._office.taken) >= self.after:
            effects = [*effects, *self.hand_over((self.me + 1) % self.n)]
        return effects


class HandsOverAtOnce(HandsOverAfter):
    """The first coordinator hands over before it has ordered anything, its successor after one message."""

    def multicast(self, to, payload):
        early = self.hand_over(2) if self._office is not None and not self._epoch else []
        clock, effects = super().multicast(to, payload)
        return Multicast(clock, [*early, *effects])


@pytest.mark.sampled
@pytest.mark.long
@pytest.mark.parametrize("machine", [HandsOverAfter, HandsOverAtOnce])
def test_handing_over_twice_is_safe_live_and_agreed_in_every_interleaving(machine, some_programs):
    result = explore(machine, 3, 2, order="causal-total", renamed=True)
    assert result.programs == effort.count(294) and result.states > 5_000 and result.violations == ()


@pytest.mark.slow
@pytest.mark.parametrize(("machine", "states"), [(HandsOverAfter, 578_490), (HandsOverAtOnce, 723_730)])
def test_handing_over_twice_is_safe_live_and_agreed_with_three_broadcasts(machine, states):
    result = explore(machine, 3, 3, order="causal-total", casts="broadcast", renamed=True)
    assert (result.programs, result.states) == (10, states) and result.violations == ()


def system(n=3):
    return [create("sequencer", p, n) for p in range(n)]


def sends(effects):
    return {effect.to: effect.message for effect in effects if not isinstance(effect, Deliver)}


def delivered(effects):
    return [(e.sender, e.clock) for e in effects if isinstance(e, Deliver)]


def test_a_request_that_reaches_the_old_coordinator_is_passed_on_and_ordered_after_the_old_ones():
    zero, one, two = system()
    (request,) = two.multicast([1, 2], b"").effects.copy()
    early = sends(zero.multicast([1, 2], b"").effects)  # ordered by 0 before it hands over
    handover = sends(zero.hand_over(1))
    forwarded = sends(zero.receive(request.message))
    assert set(forwarded) == {1} and forwarded[1].epoch == 1
    assert one.receive(forwarded[1]) == []  # the role has not arrived yet
    ordered = one.receive(handover[1])
    assert delivered(ordered) == []  # M(0, 1) is missing, which 0 ordered first
    (held,) = one.pending()
    assert held.waits_for == ((0, 1),)
    assert delivered(one.receive(early[1])) == [(0, 1), (2, 1)]
    assert two.receive(sends(ordered)[2]) == []
    assert delivered(two.receive(early[2])) == [(0, 1), (2, 1)]
    assert one.coordinator == 1 and zero.coordinator == 1


def test_a_request_that_waits_for_its_predecessor_moves_with_the_role():
    zero, one, two = system()
    (first,), (second,) = two.multicast([1], b"").effects, two.multicast([1], b"").effects
    assert zero.receive(second.message) == []
    assert zero.pending() == []  # it is not for process 0
    handover = sends(zero.hand_over(1))
    assert isinstance(handover[1], SequencerHandover) and handover[1].early[0].clock == 2
    assert one.receive(handover[1]) == []
    assert [held.waits_for for held in one.pending()] == [((2, 1),)]
    assert delivered(one.receive(sends(zero.receive(first.message))[1])) == [(2, 1), (2, 2)]


def test_duplicates_of_everything_change_nothing():
    zero, one, two = system()
    (request,) = two.multicast([0, 1, 2], b"").effects
    ordered = zero.receive(request.message)
    assert delivered(ordered) == [(2, 1)] and zero.receive(request.message) == []
    news = sends(zero.hand_over(1))
    one.receive(news[1])
    two.receive(news[2])
    assert one.receive(news[1]) == two.receive(news[2]) == []
    forwarded = sends(zero.receive(request.message))[1]
    assert one.receive(forwarded) == []
    assert (one.coordinator, two.coordinator) == (1, 1)


def test_requests_go_to_the_successor_once_it_is_announced():
    zero, _, two = system()
    two.receive(sends(zero.hand_over(1))[2])
    (request,) = two.multicast([0], b"").effects
    assert request.to == 1 and isinstance(request.message, SequencerRequest) and request.message.epoch == 1


@pytest.mark.parametrize("successor", [0, 3, -1, 2], ids=["itself", "nobody", "negative", "one who left"])
def test_the_role_goes_to_another_process_that_is_there(successor):
    zero = create("sequencer", 0, 3)
    zero.leave(2)
    before = zero.snapshot()
    with pytest.raises(LocalProtocolError, match="succeed"):
        zero.hand_over(successor)
    assert zero.snapshot() == before


def test_only_the_coordinator_has_a_role_to_hand_over_and_the_first_one_must_exist():
    with pytest.raises(LocalProtocolError, match="not the coordinator"):
        create("sequencer", 1, 3).hand_over(2)
    with pytest.raises(LocalProtocolError, match="one of 3 processes"):
        create("sequencer", 1, 3, coordinator=3)


def test_a_restored_process_passes_early_requests_on_in_the_order_in_which_they_came():
    """A journal that is replayed from a snapshot must give the frames that were sent before."""
    heard_late, restored = create("sequencer", 2, 4), create("sequencer", 2, 4)
    for sender in (3, 0):
        heard_late.receive(SequencerRequest(sender, 1, 4, 0b1111, 0, 1, b"", ()))
    restored.restore(heard_late.snapshot())
    announcement = SequencerAnnouncement(0, 1, 1)
    effects = heard_late.receive(announcement)
    assert [effect.message.sender for effect in effects] == [3, 0]
    assert restored.receive(announcement) == effects


def test_what_comes_late_of_a_process_that_was_expelled_keeps_nobody_waiting():
    """0 leaves and passes on what 2 still sends to it; 1 has closed with both when the second one comes."""
    zero, one, two = system()
    (first,), (second,) = (two.multicast([0, 1, 2], b"").effects for _ in range(2))
    news = sends(zero.leave(0))
    one.leave(0)
    one.receive(news[1])
    assert delivered(one.receive(sends(zero.receive(first.message))[1])) == [(2, 1)]
    one.close(0)
    one.expel(2)
    one.close(2)
    assert one.coordinator == 1 and one.has_role
    assert one.receive(sends(zero.receive(second.message))[1]) == [] and one.pending() == []


def test_what_everybody_has_says_nothing_of_the_places_of_what_follows():
    """2 has left, and nobody knows the places of its first two messages any more: of the first since
    everybody has it, of the second since the coordinator reports again without what it had put in order."""
    everybody_has, one_lacks, one_lacks_too = (
        SequencerRequest(2, clock, 3, dests, clock - 1, 0, b"", (3,))
        for clock, dests in ((1, 0b001), (2, 0b010), (3, 0b011))
    )
    requests = (everybody_has, one_lacks, one_lacks_too)
    nobody = (0, 0)
    reports = {
        0: SequencerReport(0, 0b100, 0, nobody, (9,), ((2, 3),), (((7,), 2, 3),), (), requests),
        1: SequencerReport(1, 0b100, 0, nobody, (5,), (), (), (), requests),
    }
    _, ordered = succeed(reports, 1)
    lacking = [(each.request.clock, each.missing) for each in ordered]
    assert [each for each in lacking if each[1]] == [(2, 0b010), (3, 0b010)]


class Group:
    """Four machines whose messages all arrive at once, but for those of processes that are away."""

    def __init__(self):
        self.machines = [create("sequencer", me, 4) for me in range(4)]
        self.away = {}
        self.delivered = [0] * 4

    def multicast(self, me, to, payload):
        self.perform(me, self.machines[me].multicast(to, payload).effects)

    def perform(self, me, effects):
        due = [(me, effects)]
        for me, effects in due:
            for effect in effects:
                if isinstance(effect, Deliver):
                    self.delivered[me] += 1
                elif effect.to in self.away:
                    self.away[effect.to].append(effect.message)
                else:
                    due.append((effect.to, self.machines[effect.to].receive(effect.message)))

    def restart(self):
        snapshots = [machine.snapshot() for machine in self.machines]
        self.machines = [create("sequencer", me, 4) for me in range(4)]
        for machine, snapshot in zip(self.machines, snapshots, strict=True):
            machine.restore(snapshot)

    def come_back(self, process, order=lambda messages: messages):
        for message in order(self.away.pop(process)):
            self.perform(process, self.machines[process].receive(message))

    def kept(self):
        """The most that anybody keeps for its successor, in messages."""
        own = [max(len(m.save()["kept"]), len(m.save()["recent"])) for m in self.machines]
        return max(*own, len(self.machines[0].save()["office"][4]))


@pytest.mark.parametrize("size", [1, 3000, 200_000])
def test_who_gets_little_does_not_keep_others_from_forgetting(size):
    group = Group()
    group.multicast(0, [3], b"the only one for 3")
    for _ in range(200):
        group.multicast(1, [2], bytes(size))
        group.restart()
        assert group.kept() <= 64
    assert group.machines[1].kept_bytes == 0
    assert group.kept() * size <= 4 * 32 * 2048


@pytest.mark.parametrize("order", [list, lambda messages: messages[::-1]], ids=["fifo", "reversed"])
def test_what_is_kept_for_one_who_is_away_is_told_and_forgotten_when_it_is_back(order):
    group = Group()
    group.away[3] = []
    group.multicast(0, [3], b"the only one for 3")
    for _ in range(1000):
        group.multicast(1, [2], bytes(1000))
    assert group.machines[1].kept_bytes >= 1000 * 1000 - 3 * 32 * (2048 + 256)
    assert len(group.away[3]) == 2  # the message, and one question
    group.restart()
    group.come_back(3, order)
    assert group.machines[1].kept_bytes == 0 and group.delivered == [0, 0, 1000, 1]
    assert group.kept() < 64


def test_a_successor_asks_for_what_its_predecessor_kept():
    group = Group()
    group.multicast(0, [3], b"the only one for 3")
    group.away[3] = []
    for _ in range(200):
        group.multicast(1, [2], bytes(10_000))
    asked = group.away.pop(3)
    assert group.machines[1].kept_bytes
    assert len(asked) == 1  # and it is lost with the coordinator that asked
    group.perform(0, group.machines[0].hand_over(1))
    assert group.machines[1].kept_bytes == 0
