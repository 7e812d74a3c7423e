"""Stories of histories, routers and zones: every rule that is told is one that the paper applies there."""

import random
import re
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

import effort
from happened.cli.options import read_terrain
from happened.core.destinations import pack, unpack
from happened.core.effects import Send
from happened.core.errors import LocalProtocolError
from happened.core.places import Separator
from happened.ordering import create, protocols
from happened.ordering.causal.extended_history import ExtendedHistory, ObservedHistory
from happened.sim.programs import Program, read_program
from happened.sim.story import Story
from happened.sim.terrain import Terrain, relays
from oracles.history import History as Truth
from oracles.places import path, routed_places, two_gateways, zones_in_a_row
from oracles.told_histories import Events, PaperHistory

EXAMPLES = Path(__file__).parents[2] / "examples"
RULES = ("R2", "R4", "R5", "R6.2", "R6.3", "R7", "R8", "R9")


class Recorded(Story):
    """A story that keeps the messages that were exchanged, by the names that histories give them."""

    def __init__(self, *arguments, **options):
        self.messages = {}
        super().__init__(*arguments, **options)

    def _put_on_links(self, process, effects):
        for effect in effects:
            if isinstance(effect, Send):
                message = effect.message
                name = getattr(message, "relay", message.sender), getattr(message, "hop", message.clock)
                address = set(unpack(getattr(message, "address", message.dests)))
                self.messages[name] = (
                    address,
                    {e[:2]: (set(unpack(e.dests)), set(unpack(e.copied))) for e in message.entries},
                )
        super()._put_on_links(process, effects)


def programs_of(dice, applications, messages):
    sends = [[] for _ in range(applications)]
    for _ in range(messages):
        sender = dice.randrange(applications)
        others = [p for p in range(applications) if p != sender]
        sends[sender].append(pack(dice.sample(others, dice.randint(1, min(3, len(others))))))
    return Program(tuple(map(tuple, sends)))


def two_gateway_terrain():
    graph, tree, witnesses = two_gateways()
    places = routed_places(graph, tree, witnesses=witnesses, in_use=True)
    return Terrain("two gateways", tuple("abcdef"), 6, tuple(places))


def line_terrain():
    graph = path(5)
    return Terrain("a line", tuple("abcde"), 5, tuple(routed_places(graph, graph.edges)))


def departments():
    return read_terrain(EXAMPLES / "topologies" / "two-gateways.yaml")


TERRAINS = {"line": line_terrain, "two gateways": two_gateway_terrain, "departments": departments}


def entry(about):
    return tuple(map(int, about.split(",")))


def steps_of(scene):
    """The messages that were taken and sent in a scene, in that order, as R4 tells; with a send, what R7 left
    out of it."""
    left_out = []
    for told in scene.rules:
        if told.rule == "R7":
            left_out.append(told)
        elif told.rule == "R4" and told.what == "enters H and D":
            yield "send", entry(told.about), left_out
            left_out = []
        elif told.rule == "R4" and told.reason == "delivered here":
            yield "take", entry(told.about), []


def separators_of(machine):
    if not machine._has_topology:
        return []
    return [
        (set(unpack(s.members)), [set(unpack(c)) for c in s.components]) for s in machine.place.separators
    ]


def judge(story, **options):
    """Replay a story by the paper's rules and by the events; returns how often each rule was told."""
    machines = story._machines
    papers = [PaperHistory(p, separators_of(machine), **options) for p, machine in enumerate(machines)]
    events, counted = Events(), Counter()
    for scene in story.scenes:
        paper = papers[scene.process]
        for what, m, left_out in steps_of(scene):
            to, timestamp = story.messages[m]
            if what == "take":
                assert m[0] != scene.process
                paper.deliver(m, to, timestamp)
                events.deliver(scene.process, m)
            else:
                assert m[0] == scene.process
                for told in left_out:  # whoever needs not be told could know before this message
                    assert all(events.is_told(scene.process, entry(told.about), r) for r in told.who), told
                assert paper.stamp(to) == timestamp.keys()
                paper.send(m, to)
                events.send(m, to)
        told = [each for each in scene.rules if each.rule in RULES]
        assert merged((t.rule, entry(t.about), frozenset(t.who)) for t in told) == merged(paper.told)
        counted.update(t.rule for t in scene.rules)
        paper.told.clear()
        for each in told:
            if each.rule == "R8":
                assert all(events.is_told(scene.process, entry(each.about), r) for r in each.who), each
        assert dict(scene.known)["H"] == written(paper.h) and dict(scene.known)["C"] == written(paper.c)
        assert dict(scene.known)["D"] == (
            " ".join(f"{s},{t}" for s, t in sorted(paper.d.items())) or "nothing"
        )
    return counted


def merged(told):
    """Lines of one rule about one message, put together: R9 tells each separator by itself."""
    by_rule = {}
    for rule, about, who in told:
        by_rule.setdefault((rule, about), set()).update(who)
    return by_rule


def written(sets):
    lines = [f"{s},{t}:{{{','.join(map(str, sorted(to)))}}}" for (s, t), to in sorted(sets.items())]
    return " ".join(lines) or "nothing"


@pytest.mark.sampled
def test_what_is_told_of_histories_is_what_the_rules_do(seed):
    dice, counted = random.Random(seed), Counter()
    for number in range(effort.samples(1600)):
        story = Recorded(programs_of(dice, 4, 6), "histories").play(seed + number)
        counted += judge(story)
    assert counted.keys() >= {"R2", "R3", "R4", "R5", "R6.2", "R6.3", "R7", "R8"}


@pytest.mark.sampled
def test_carbon_copies_that_travel_are_told_of(monkeypatch, seed):
    """R6.1 on."""
    monkeypatch.setattr("happened.sim.story.create", partial(create, extended=True))
    dice, counted = random.Random(seed), Counter()
    for number in range(effort.samples(400)):
        counted += judge(Recorded(programs_of(dice, 4, 6), "histories").play(seed + number))
    assert counted["R6.3"] and counted["R7"]


@pytest.mark.sampled
def test_without_timestamp_redundancy_nothing_is_left_out_by_it(monkeypatch, seed):
    """R7 off."""
    monkeypatch.setattr("happened.sim.story.create", partial(create, timestamp_redundancy=False))
    dice, counted = random.Random(seed), Counter()
    for number in range(effort.samples(400)):
        story = Recorded(programs_of(dice, 4, 6), "histories").play(seed + number)
        counted += judge(story, redundancy=False)
    assert counted["R2"] and not counted["R7"]


@pytest.mark.sampled
@pytest.mark.parametrize("terrain", TERRAINS)
def test_what_is_told_of_routers_is_what_the_rules_do(terrain, seed):
    terrain, dice, counted = TERRAINS[terrain](), random.Random(seed), Counter()
    for number in range(effort.samples(400)):
        program = programs_of(dice, terrain.applications, 5)
        counted += judge(Recorded(program, "topological", terrain=terrain).play(seed + number))
    assert counted.keys() >= {"R2", "R3", "R4", "R6.2", "R6.3", "R8", "R9"}


def test_a_rule_told_wrongly_is_found(monkeypatch, seed):
    """R9 without the condition that the other members were told: the replay by the paper's rules notices."""
    monkeypatch.setattr(ExtendedHistory, "_filters", lambda self, entry, separator: True)
    dice, terrain = random.Random(seed), two_gateway_terrain()
    with pytest.raises(AssertionError):
        for number in range(200):
            program = programs_of(dice, terrain.applications, 5)
            judge(Recorded(program, "topological", terrain=terrain).play(seed + number))


@pytest.mark.parametrize("terrain", TERRAINS)
def test_every_separator_told_keeps_the_two_sides_apart(terrain, seed):
    """Of each line about R9: its separator has this process, and nobody beyond it was sent the message."""
    dice, terrain, found = random.Random(seed), TERRAINS[terrain](), 0
    for number in range(40):
        program = programs_of(dice, terrain.applications, 5)
        story = Recorded(program, "topological", terrain=terrain).play(seed + number)
        for scene in story.scenes:
            separators = {frozenset(m): cs for m, cs in separators_of(story._machines[scene.process])}
            for told in scene.rules:
                if told.rule == "R9":
                    went, across, members = (
                        set(map(int, each.split(",")))
                        for each in re.findall(r"\{([\d,]+)\}", told.reason)[:3]
                    )
                    sides = [side for side in separators[frozenset(members)] if side & across]
                    assert across == set(told.who) and scene.process in members and not across & members
                    assert went == story.messages[entry(told.about)][0]
                    assert not any(side & went for side in sides)
                    found += 1
    assert found > 3


def test_each_recipient_has_the_separator_that_is_before_it():
    """Two cuts, each of which keeps the message from one of two recipients."""
    history = ObservedHistory(0)
    history.deliver(1, 1, pack([0, 1, 2]), ())
    history.sent(1, pack([5, 6]))
    cuts = [([0, 5], [[1, 2, 4, 6], [3]]), ([0, 6], [[1, 2, 3, 5], [4]])]
    separators = [Separator(pack(members), tuple(map(pack, sides))) for members, sides in cuts]
    history.observed()
    stamped = history.stamp(pack([3, 4]), separators, redundancy=True, extended=False)
    assert [entry[:2] for entry in stamped] == [(0, 1)]
    assert [(t.about, t.rule, t.who) for t in history.observed()] == [
        ("0,1", "R2", (3, 4)),
        ("1,1", "R9", (3,)),
        ("1,1", "R9", (4,)),
    ]


ZONES = {
    "line": line_terrain,
    "zones in a row": lambda: Terrain(
        "zones", tuple("abcdefgh"), 8, tuple(zones_in_a_row(8, [(0, 1), (2, 3), (4, 5)], [[6], [7]]))
    ),
    "departments": departments,
}


@pytest.mark.parametrize("terrain", ZONES)
def test_zones_forget_what_was_delivered_or_replaced_in_them(terrain, seed):
    """Each zone by itself, against the definitions read literally: what is told, and what is left."""
    terrain, dice, rules = ZONES[terrain](), random.Random(seed), Counter()
    for number in range(12):
        story = Story(programs_of(dice, terrain.applications, 6), "zoned-ks", terrain=terrain).play(
            seed + number
        )
        truths = {}
        for scene in story.scenes:
            _advance(story, scene, truths)
            for told in scene.rules:
                rules[told.rule] += 1
                s, t, d, zone = re.fullmatch(r"(\d+),(\d+):\{(\d+)\}(?: of (zone .*))?", told.about).groups()
                zone = zone or next(iter(story._machines[scene.process].logs()))
                truth, m, x = truths[zone], (int(s), int(t)), int(d)
                past = truth.past[scene.process]
                later = [k[1] for k in past if k[0] == "send" and x in truth.dests[k[1]]]
                delivered = ("deliver", m, x) in past
                replaced = any(("send", m) in truth.before[k] for k in later)
                assert told.rule == ("PC1" if delivered else "PC2") and (delivered or replaced)
                if told.rule == "PC2":
                    by = tuple(map(int, re.search(r"h\((\d+),(\d+)\), sent later", told.reason).groups()))
                    assert by in later and ("send", m) in truth.before[by]
            for title, text in scene.known:
                zone = title.removeprefix("log of ")
                units = truths[zone].log(scene.process) if zone in truths else set()
                assert set(_units(text)) == units
    assert rules.keys() == {"PC1", "PC2"}


def _units(text):
    for s, t, to in re.findall(r"(\d+),(\d+):\{([\d,]+)\}", text):
        yield from ((int(s), int(t), int(d)) for d in to.split(","))


def _advance(story, scene, truths):
    """Let the hops of a scene happen in the histories of their zones."""
    for name in scene.taken:
        relay, clock, zone = re.fullmatch(r"h\((\d+),(\d+)\) (zone .*)", name).groups()
        truths[zone].deliver(scene.process, (int(relay), int(clock)))
    for line in (*scene.carried, *scene.passed):
        relay, clock, to = re.search(r"\(as h\((\d+),(\d+)\) to \{([\d,]+)\}", line).groups()
        to = set(map(int, to.split(",")))
        (zone,) = [z for z in story._machines[scene.process].logs() if {*to, scene.process} <= _members(z)]
        name, truth = (int(relay), int(clock)), truths.setdefault(zone, Truth())
        if name not in truth.dests:  # its copies may carry different things
            truth.send(name[0], name, to)


def _members(zone):
    return set(map(int, re.findall(r"\d+", zone)))


KNOWN = """1,1:{2,3}|1,1:{1}|1,1
1,1:{2,3}|1,1:{1,3}|1,1
3,1:{2}|3,1:{3}|1,1 3,1
3,2:{2}|3,2:{3}|1,1 3,2
nothing|nothing|nothing
nothing|nothing|nothing
nothing|nothing|1,1 3,2"""
"""H, C and D after each step of Fig. 4.1, at the process that takes it."""


def test_the_example_of_figure_4_1():
    story = Story(read_program("1: {2,3}; 3: {2} {2}"), "histories")
    story.follow((EXAMPLES / "stories" / "figure_4_1.txt").read_text().splitlines())
    assert ["|".join(text for _, text in scene.known) for scene in story.scenes] == KNOWN.split("\n")
    third = [str(told) for told in story.scenes[2].rules]
    assert "1,1 gains {2} in C (R6.2): this message, sent after it, is theirs" in third
    assert "1,1 leaves H (R8): it went to {2,3}, all of them in C = {1,2,3}" in third
    assert [scene.held for scene in story.scenes[4:]] == [
        ("M(3,2) until M(3,1)",),
        ("M(3,2) until M(3,1)", "M(3,1) until M(1,1)"),
        (),
    ]
    assert story.scenes[-1].delivered == ((1, 1), (3, 1), (3, 2))


def test_a_hop_tells_where_it_goes_and_who_takes_note():
    story = Story(read_program("0: {5}; 5: {1}"), "topological", terrain=departments())
    story.follow(["0 sends", "8 receives M(0,1) from 0"])
    assert story.scenes[0].carried == ("nothing  (as h(0,1) to {8})",)
    assert story.scenes[1].passed == (
        "passes on M(0,1) to {6,7}, carrying nothing  (as h(8,1) to {6,7}, {7} taking note)",
    )
    story.follow(["6 receives M(0,1)", "7 receives M(0,1) from 6"])
    assert story.scenes[-1].held == ("M(0,1), which came in h(6,1), until h(8,1)",)
    assert [told.rule for told in story.scenes[-1].rules] == ["R3"]
    assert repr(story._machines[7]).endswith("D nothing; holds M(0,1), which came in h(6,1), until h(8,1)>")


@pytest.mark.parametrize("name", sorted(name for name in protocols() if relays(name)))
def test_the_text_of_a_story_is_a_schedule_of_the_same_story(name, seed):
    program = programs_of(random.Random(seed), 6, 4)
    told = Story(program, name, terrain=departments()).play(seed)
    lines = [line for scene in told.scenes for line in scene.lines()]
    again = Story(program, name, terrain=departments())
    assert again.follow(lines) == []
    assert again.scenes == told.scenes


@pytest.mark.parametrize(
    "program, protocol, why",
    [
        ("0: {1}", "ks", "can make no use of a topology; these relay: .*topological"),
        ("0: {6}", "topological", "has no process 6 with an application; 0 is p1"),
    ],
)
def test_a_program_that_does_not_fit_the_topology_is_refused(program, protocol, why):
    with pytest.raises(LocalProtocolError, match=why):
        Story(read_program(program), protocol, terrain=departments())
