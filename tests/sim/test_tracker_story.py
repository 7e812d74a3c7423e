"""Stories of trackers: what is told is what the rules of Hélary, Melideo & Raynal (2000) do, transcribed
literally, and each entry that is left out was known to its receiver."""

import random
import re
from pathlib import Path

import pytest

import effort
from happened import tracking
from happened.core.destinations import pack
from happened.core.errors import LocalProtocolError
from happened.sim.programs import EVENT, Program, read_program
from happened.sim.story import TrackerStory
from happened.tracking.knowledge import Knowledge
from oracles.literal_tracking import Rules

FIGURE = Path(__file__).parents[2] / "examples" / "stories" / "figure_2.txt"
FIGURE_PROGRAM = "0: e {1} e {1} e; 1: e e {0} e {2}; 2: e {1} e"
VECTORS = ["[1 0 0]", "[2 0 0]", "[1 1 0]", "[2 2 0]", "[3 2 0]", "[0 0 1]", "[2 3 1]", "[2 3 2]"]
FOLLOWS = ["nothing", "(0,1)", "(0,1)", "(0,2) (1,1)", "(1,2)", "nothing", "(1,2) (2,1)", "(1,3)"]
"""Of the events of Fig. 2 in the order of the file, processes numbered from 0."""

LITERAL = {
    "p1": Rules(),
    "p1-prime": Rules(primed=True),
    "p1-fifo": Rules(fifo=True),
    "p1-prime-fifo": Rules(primed=True, fifo=True),
    "p2:1": Rules(b=1),
    "p2:2": Rules(b=2),
    "p2-prime:2": Rules(b=2, primed=True),
    "p2-fifo:1": Rules(b=1, fifo=True),
    "p3": Rules(immediate=True, reduced=False),
    "p3-reduced": Rules(immediate=True),
    "p3-reduced-prime": Rules(immediate=True, primed=True),
    "p3-reduced-fifo": Rules(immediate=True, fifo=True),
}


def program_of(dice, n=4, actions=16):
    steps = [[EVENT] for _ in range(n)]
    for _ in range(actions):
        p = dice.randrange(n)
        others = [q for q in range(n) if q != p]
        steps[p].append(EVENT if dice.random() < 0.35 else pack([dice.choice(others)]))
    return Program(tuple(map(tuple, steps)))


def row(numbers):
    return f"[{' '.join(map(str, numbers))}]"


class Replay:
    """The literal rules driven by the scenes of a story, and what each process could know by the events."""

    def __init__(self, rules, n):
        self.rules = rules
        self.trackers = [rules(me, n) for me in range(n)]
        self.piggybacks = {}
        self.knew = {}  # per message, what its sender's vector, IP and past were
        self.past = [set() for _ in range(n)]  # the relevant events and sends in the causal past

    def step(self, scene):
        getattr(self, f"_{scene.kind}")(scene)
        tracker, known = self.trackers[scene.process], dict(scene.known)
        assert known["DV" if self.rules.b is not None else "VC"] == row(tracker.vc)
        if self.rules.immediate:
            assert known["IP"] == row(tracker.ip)
        if self.rules.reduced:
            assert known["M"] == " ".join(map(row, tracker.m))

    def _event(self, scene):
        tracker = self.trackers[scene.process]
        null = scene.what.startswith("null")
        stamp = tracker.relevant(null=null)
        self.past[scene.process].add(("event", scene.name))
        vector = stamp.counts if stamp.counts is not None else stamp.dependencies
        told = {t.what: t for t in scene.rules}
        assert told[f"gets {row(vector)}"].rule == "R1"
        if stamp.immediate is not None:
            names = " ".join(f"({p},{s})" for p, s in sorted(stamp.immediate)) or "nothing"
            assert told[f"follows {names}"].rule == "R1"
        if null:
            assert told["is a null event"].rule == "R2"

    def _send(self, scene):
        tracker, (to,) = self.trackers[scene.process], scene.to
        piggyback = tracker.on_send(to)
        assert piggyback.forced is None  # the story told of it as an event of its own
        self.piggybacks[scene.name] = piggyback
        assert scene.carried == (" ".join(map(self._written, piggyback.carried)) or "nothing",)
        carried = {entry.process for entry in piggyback.carried}
        if self.rules.reduced:
            had = {k for k, count in enumerate(tracker.vc) if count}
            told = {int(re.match(r"\((\d+),", t.about)[1]): t for t in scene.rules}
            assert told.keys() == had and all(t.rule == "R2" for t in scene.rules)
            assert {k for k, t in told.items() if t.what == f"carried to {to}"} == carried & had
            for k in had - carried:
                self._check_known(scene.process, to, k, told[k].reason)
        self.knew[scene.name] = list(tracker.vc), list(tracker.ip), set(self.past[scene.process])
        self.past[scene.process].add(("send", scene.name))

    def _written(self, entry):
        told = [str(entry.process), str(entry.count)]
        told += [str(entry.immediate)] if self.rules.immediate else []
        told += [row(entry.column)] if entry.column is not None else []
        return f"({','.join(told)})"

    def _check_known(self, process, to, k, reason):
        """An entry may be left out because the receiver made it, knew it when it sent what we know of, has it
        on its way, or, with a bound, because a later event of ours stands for it."""
        tracker = self.trackers[process]
        if found := re.search(r"knew it when it sent M\((\d+),(\d+)\)", reason):
            name = int(found[1]), int(found[2])
            vc, ip, past = self.knew[name]
            assert name[0] == to and ("send", name) in self.past[process]
            assert ("event", (k, tracker.vc[k])) in past
            assert not self.rules.immediate or (vc[k], ip[k]) == (tracker.vc[k], tracker.ip[k])
        elif found := re.search(r"on its way in M\((\d+),(\d+)\)", reason):
            name = int(found[1]), int(found[2])
            assert self.rules.fifo and name[0] == process
            assert any(e.process == k and e.count == tracker.vc[k] for e in self.piggybacks[name].carried)
        elif "its own event" in reason:
            assert k == to and (not self.rules.immediate or tracker.ip[k])
        else:
            assert self.rules.b is not None
            assert f"before ({process},{tracker.vc[process]}), which stands for it" in reason

    def _arrive(self, scene):
        tracker, piggyback = self.trackers[scene.process], self.piggybacks[scene.name]
        news = {e.process: tracker._news(e) for e in piggyback.carried if e.count or tracker.vc[e.process]}
        told = {int(re.match(r"\((\d+),", t.about)[1]): t for t in scene.rules}
        words = {k: "is newer" if new > 0 else "is older" if new else "is known" for k, new in news.items()}
        assert {k: t.what for k, t in told.items()} == words
        assert all(t.rule == "R3" for t in scene.rules)
        tracker.on_receive(scene.source, piggyback)
        self.past[scene.process] |= self.knew[scene.name][2] | {("send", scene.name)}


@pytest.mark.sampled
@pytest.mark.parametrize("name", LITERAL)
def test_what_is_told_of_a_tracker_is_what_its_rules_do(name, seed):
    dice, rules, told = random.Random(seed), LITERAL[name], set()
    for number in range(effort.samples(320)):
        story = TrackerStory(program_of(dice), name, fifo=rules.fifo).play(seed + number)
        replay = Replay(rules, 4)
        for scene in story.scenes:
            replay.step(scene)
            assert scene.wrong == ()
            told |= {(t.rule, t.what.split(" for ")[0].split(" to ")[0]) for t in scene.rules}
    expected = {("R3", "is newer")}
    expected |= {("R3", "is known"), ("R3", "is older")} if not rules.fifo else set()
    expected |= {("R2", "carried"), ("R2", "left out")} if rules.reduced else set()
    expected |= {("R2", "is a null event")} if rules.b is not None else set()
    assert told >= expected


@pytest.mark.parametrize("name", sorted(tracking.protocols()))
def test_every_tracker_has_a_story_and_its_text_is_a_schedule(name, seed):
    fifo = tracking.facts_of(name).fifo_links
    program = program_of(random.Random(seed))
    told = TrackerStory(program, name, fifo=fifo).play(seed)
    again = TrackerStory(program, name, fifo=fifo)
    assert again.follow([line for scene in told.scenes for line in scene.lines()]) == []
    assert again.scenes == told.scenes and not any(scene.wrong for scene in told.scenes)
    assert all(scene.known for scene in told.scenes)


@pytest.mark.parametrize("name", ["p1", "p3", "p3-reduced", "vector"])
def test_the_vectors_and_predecessors_of_figure_2(name):
    story = TrackerStory(read_program(FIGURE_PROGRAM, events=True), name)
    story.follow(FIGURE.read_text().splitlines())
    events = [{t.what.split(" ")[0]: t.what for t in s.rules} for s in story.scenes if s.kind == "event"]
    assert [told["gets"] for told in events] == [f"gets {vector}" for vector in VECTORS]
    assert [told["follows"] for told in events] == [f"follows {names}" for names in FOLLOWS]


def test_that_its_own_event_has_a_successor_is_left_out_if_it_told_so_itself():
    story = TrackerStory(read_program("0: e {1} {2}; 1: e {0}; 2: {0}", events=True), "p3-reduced")
    story.follow(["event at 0", "0 sends", "1 receives M(0,1)", "event at 1", "1 sends", "0 receives M(1,1)"])
    story.follow(["0 sends", "2 receives M(0,2)", "2 sends"])
    left_out = {told.about: told.reason for told in story.scenes[-1].rules}
    assert left_out["(0,1,0)"] == "M[0,0] = 1, 0 knew it when it sent M(0,2)"


def test_a_wrong_timestamp_and_an_unexplained_gap_are_told(monkeypatch):
    """P1 without the reset of R1: its second event is told to nobody."""
    monkeypatch.setattr(Knowledge, "everyone_lacks_own", lambda self: None)
    story = TrackerStory(read_program("0: e {1}; 1: e", events=True), "p1")
    story.follow(["event at 0", "0 sends", "1 receives M(0,1)", "event at 1"])
    (gap,) = story.scenes[1].rules
    assert (gap.rule, gap.reason) == ("", "M[1,0] = 1, and no event tells why")
    assert story.scenes[-1].wrong == ("WRONG: its vector is [1 1], not [0 1]",)


@pytest.mark.parametrize(
    "program, why",
    [
        ("0: e {0}", "0 sends to itself"),
        ("0: {1}", "nothing is to be timestamped"),
        ("0: x {1}", "no part of a program: write who sends to whom, as in `0: e"),
    ],
)
def test_a_program_that_no_tracker_can_play_is_refused(program, why):
    with pytest.raises(LocalProtocolError, match=why):
        TrackerStory(read_program(program, events=True), "p1")


def test_a_step_out_of_turn_is_refused():
    story = TrackerStory(read_program("0: e {1}", events=True), "p1")
    with pytest.raises(LocalProtocolError, match="what 0 does next in the program is that it has an event"):
        story.follow(["0 sends"])
    with pytest.raises(LocalProtocolError, match="1 has nothing more to do"):
        story.follow(["event at 1"])
    with pytest.raises(LocalProtocolError, match="needs FIFO links"):
        TrackerStory(read_program("0: e {1}", events=True), "p1-fifo")
