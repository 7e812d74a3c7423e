"""Every registered protocol keeps the contract; what it promises and assumes, its Facts say."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from contract import frames, runs
from contract.checks import CHECKS, applies, name_of
from contract.drive import Dice, System, may_depart
from contract.runs import LANE_WIDTH_CHANGES, check_simulated
from happened.core.errors import LocalProtocolError
from happened.ordering import DEFAULT, create, protocols
from happened.ordering.facts import UNICAST

every_protocol = pytest.mark.parametrize("name", protocols())
LONG = {
    runs.check_failures,
    runs.check_explored,
    runs.check_interleavings,
    frames.check_frames,
    frames.check_damaged_frames,
}


@pytest.mark.parametrize(
    ("name", "check"),
    [
        pytest.param(
            name, check, id=f"{name}: {name_of(check)}", marks=pytest.mark.long if check in LONG else ()
        )
        for name, facts in protocols().items()
        for check in CHECKS
        if applies(check, facts)
    ],
)
def test_a_protocol_keeps_the_contract(name, check, seed):
    check(protocols()[name], seed)


@pytest.mark.slow
@every_protocol
def test_a_protocol_keeps_the_contract_with_other_dice_too(name, seed):
    facts = protocols()[name]
    for another in range(seed + 1, seed + 9):
        for check in CHECKS:
            if applies(check, facts) and check is not runs.check_explored:  # which throws no dice
                check(facts, another)


@every_protocol
def test_what_is_kept_does_not_grow_with_what_has_passed(name, seed):
    """One gets a single message where that is possible; from then on another sends to a third."""
    facts, dice = protocols()[name], Dice(seed)
    system = System(facts, 4)
    may_choose = UNICAST in facts.assumes.casts
    sizes = []
    for number in range(400):
        to = {2 if number else 3} if may_choose else set(system.present)
        system.send(1 if number else 0, to)
        system.drain(dice)
        system.made.clear()
        sizes.append(max(len(machine.snapshot()) for machine in system.machines))
    assert max(sizes[100:]) <= 2 * max(sizes[:100])


@pytest.mark.slow
@every_protocol
def test_a_departure_at_every_step_of_many_schedules(name, seed):
    runs.check_failures(protocols()[name], seed, schedules=40)


@every_protocol
def test_a_simulated_run_keeps_its_promise_as_judged_from_its_trace(name, tmp_path, seed):
    check_simulated(protocols()[name], seed, tmp_path)


class Drawn:
    """Choices that Hypothesis makes and shrinks."""

    def __init__(self, data):
        self._draw = data.draw

    def one(self, of):
        return self._draw(st.sampled_from(list(of)))

    def some(self, of, most):
        return self._draw(st.sets(st.sampled_from(list(of)), min_size=1, max_size=min(most, 4)))

    def flip(self):
        return self._draw(st.booleans())


class AnyInterleaving(RuleBasedStateMachine):
    """The same as `contract.drive.walk`, with counterexamples that are as short as can be."""

    name = ""
    system = None

    @initialize(n=st.integers(1, 4), near_the_lane_width=st.booleans())
    def start(self, n, near_the_lane_width):
        facts = protocols()[self.name]
        wide = near_the_lane_width and facts.membership.joins
        self.system = System(facts, n + LANE_WIDTH_CHANGES if wide else n, act=n)

    @rule(data=st.data())
    def multicast(self, data):
        self.system.multicast(Drawn(data))

    @precondition(lambda self: self.system.in_flight)
    @rule(data=st.data(), duplicate=st.booleans())
    def the_network_hands_over_a_packet(self, data, duplicate):
        self.system.arrive(Drawn(data), duplicate=duplicate)

    @precondition(lambda self: self.system.facts.membership.joins and len(self.system.active) < 6)
    @rule()
    def a_process_joins(self):
        self.system.join()

    @precondition(lambda self: may_depart(self.system))
    @rule(data=st.data())
    def a_process_leaves(self, data):
        self.system.leave(Drawn(data).one(self.system.active))

    @precondition(lambda self: self.system.may_expel)
    @rule(data=st.data())
    def a_process_is_expelled(self, data):
        self.system.expel(Drawn(data), Drawn(data).one(self.system.active))

    @rule(data=st.data())
    def something_follows_from_a_change(self, data):
        self.system.settle(Drawn(data))

    @precondition(lambda self: self.system.hands_over)
    @rule(data=st.data())
    def the_coordinator_hands_over(self, data):
        self.system.hand_over(Drawn(data))

    @rule(data=st.data())
    def a_process_restarts_from_its_snapshot(self, data):
        self.system.restart(Drawn(data).one(self.system.active))

    @rule(data=st.data())
    def a_clock_advances_on_its_own(self, data):
        self.system.tick(Drawn(data).one(self.system.active))

    @invariant()
    def what_is_held_says_what_it_waits_for(self):
        if self.system is not None:
            self.system.check_held()

    def teardown(self):
        if self.system is not None:
            self.system.drain(Dice(1))


@pytest.mark.parametrize(
    ("examples", "steps"),
    [pytest.param(5, 30, marks=pytest.mark.long), pytest.param(200, 50, marks=pytest.mark.slow)],
)
@every_protocol
def test_any_interleaving_with_duplicates_restarts_joins_and_departures(name, examples, steps):
    run_state_machine_as_test(
        type("AnyInterleavingOf", (AnyInterleaving,), {"name": name}),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_the_default_is_among_them_and_an_unknown_name_is_refused_with_the_known_ones():
    facts = protocols()[DEFAULT]
    assert DEFAULT == "ks"
    assert (facts.order, facts.assumes.fifo_links, facts.promises.optimal) == ("causal", False, True)
    assert facts.assumes.casts == {"unicast", "broadcast", "multicast"}
    assert "Kshemkalyani" in facts.paper
    with pytest.raises(LocalProtocolError, match=r"'kss'.*ks"):
        create("kss", 0, 3)
