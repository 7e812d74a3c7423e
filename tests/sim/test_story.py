"""Stories: what is told of a small program is what happened, and each forgotten unit is explained rightly."""

import base64
import json
import random
import re
import subprocess
import sys
import zlib
from collections import Counter
from pathlib import Path

import pytest

from happened.cli import main
from happened.core.errors import LocalProtocolError
from happened.core.orders import Order
from happened.ordering import able, protocols
from happened.ordering.capabilities import TellsUnits
from happened.ordering.causal.ks import KshemkalyaniSinghal
from happened.sim.programs import Program, programs, read_program
from happened.sim.story import Story
from happened.trace import KINDS
from happened.tracking.knowledge import Knowledge
from oracles.history import History as Truth
from view.unpacking import Unpacked

FIGURE = Path(__file__).parents[2] / "examples" / "stories" / "figure_2_8.txt"
FIGURE_PROGRAM = "5: {4,6} {6}; 4: {2,3} {3,6}; 6: {1}; 2: {1} {1}; 3: {2}"
LOGS = """5,1:{4,6}|5,1:{6}|5,1:{4}|4,2:{2,3} 5,1:{6}|5,1:{4} 6,2:{1}|4,2:{3} 5,1:{6}|2,2:{1} 4,2:{3} 5,1:{6}
4,2:{2} 5,1:{6}|2,3:{1} 4,2:{3} 5,1:{6}|4,2:{2} 4,3:{3,6} 5,1:∅|4,2:{2} 4,3:{6} 5,1:∅|3,3:{2} 4,3:{6} 5,1:∅
2,3:{1} 3,3:∅ 4,3:{6} 5,1:∅|5,1:{4} 5,2:{6}|4,2:{2} 4,3:{3} 5,1:∅ 6,2:{1}|4,2:{2} 4,3:{3} 5,2:∅ 6,2:{1}
2,2:∅ 4,2:{3} 5,1:{6}|2,2:∅ 4,2:{3} 5,1:∅ 6,2:∅|2,3:∅ 4,2:{3} 5,1:∅ 6,2:∅"""
"""After each of the nineteen steps of Fig. 2.8, as docs/papers.md has them."""


def test_the_nineteen_steps_of_the_textbook_figure():
    story = Story(read_program(FIGURE_PROGRAM), "ks", tick_at_deliveries=True)
    story.follow(FIGURE.read_text().splitlines())
    assert [dict(scene.known)["log"] for scene in story.scenes] == LOGS.replace("\n", "|").split("|")
    assert not any(scene.wrong or scene.held for scene in story.scenes)


def test_what_is_carried_is_told_with_the_entries_that_have_no_unit():
    """Fig. 2.8, where M(4,3) takes 51:∅ to 3 and M(3,3) to 2; and CI of `pruning`, which is sent as it is."""
    story = Story(read_program(FIGURE_PROGRAM), "ks", tick_at_deliveries=True)
    story.follow(FIGURE.read_text().splitlines())
    assert story.scenes[9].carried == ("4,2:{2,3} 5,1:∅  (to 3)", "4,2:{2} 5,1:{6}  (to 6)")
    assert story.scenes[11].carried == ("4,2:{2} 4,3:{6} 5,1:∅",)
    story = Story(read_program("0: {1}; 1: {2}"), "pruning")
    story.follow(["0 sends", "1 receives M(0,1)", "1 sends"])
    assert dict(story.scenes[1].known)["log"] == "0,1:∅" and story.scenes[2].carried == ("0,1:∅",)


def test_every_unit_that_ks_forgets_is_delivered_or_replaced(seed):
    """The reasons come from the events; `ks` keeps what is necessary and no more, so each drop has one."""
    dropped = [
        each
        for number, program in enumerate(programs(3, 3)[::7])
        for scene in Story(program, "ks").play(seed + number).scenes
        for each in scene.rules
    ]
    assert {each.rule for each in dropped} == {"PC1", "PC2"}
    words = re.compile(r"\b(?:just|already|delivered|replaced)\b")
    reasons = {" ".join(words.findall(each.reason)) for each in dropped}
    assert reasons == {"just delivered", "already delivered", "just replaced", "already replaced"}


@pytest.mark.parametrize("name", able(TellsUnits))
def test_the_constraint_that_is_told_is_the_one_that_holds(name, seed):
    """PC1 and PC2 of each unit, against the definitions read literally."""
    dice = random.Random(seed)
    longer = [tuple(tuple(dice.choices(range(1, 8), k=3)) for _ in range(3)) for _ in range(40)]
    for number, program in enumerate([*programs(3, 3)[::13], *map(Program, longer)]):
        truth = Truth()
        for scene in Story(program, name).play(seed + number).scenes:
            known = set(truth.past.get(scene.process, ()))
            if scene.kind == "send":
                truth.send(scene.process, scene.name, scene.to)
            for key in scene.delivered:
                truth.deliver(scene.process, key)
            for told in scene.rules:
                s, t, d = map(int, re.fullmatch(r"(\d+),(\d+):\{(\d+)\}", told.about).groups())
                past = truth.past[scene.process]
                later = [m for kind, m, *_ in past if kind == "send" and d in truth.dests[m]]
                later = [m for m in later if ("send", (s, t)) in truth.before[m]]
                settled = {("deliver", (s, t), d)} & past
                assert told.rule == ("PC1" if settled else "PC2")
                mine = d == scene.process
                if not settled:
                    by = tuple(map(int, re.search(r"M\((\d+),(\d+)\), sent later", told.reason).groups()))
                    assert by in later
                    settled = {("send", m) for m in later}
                    mine = later == [scene.name] and scene.kind == "send"
                assert ("just" in told.reason) is (mine and not settled & known)
                assert ("already" in told.reason) is not ("just" in told.reason)


def test_what_is_just_so_is_what_the_machine_counts_as_such(seed):
    """Jang et al. (1997), Figure 1: the second type is pruned where a message is delivered (R4), the fourth
    where one is sent (S2); the third and the fifth are learnt from a message."""
    for number, program in enumerate(programs(3, 3)[::7]):
        story = Story(program, "pruning").play(seed + number)
        reasons = [each.reason for scene in story.scenes for each in scene.rules]
        counted = sum((Counter(machine.pruned()) for machine in story._machines), Counter())
        assert sum("is just delivered" in each for each in reasons) == counted["just delivered"]
        assert sum("just replaced" in each for each in reasons) == counted["just replaced"]


def test_who_learns_of_a_delivery_or_of_a_later_message_has_it_already_so():
    story = Story(read_program("0: {1,2}; 1: {2} {0}"), "ks")
    story.follow(["0 sends", "1 receives M(0,1)", "1 sends", "1 sends", "0 receives M(1,2)"])
    reasons = {each.about: each.reason for each in story.scenes[-1].rules}
    assert reasons["0,1:{1}"] == "M(0,1) is already delivered at 1"
    assert reasons["0,1:{2}"] == "already replaced: M(1,1), sent later to 2, tells of it"
    assert reasons["1,2:{0}"] == "M(1,2) is just delivered at 0"


def test_a_unit_that_is_dropped_without_reason_is_told_as_such(monkeypatch):
    monkeypatch.setattr(KshemkalyaniSinghal, "log_units", lambda self: frozenset())
    story = Story(read_program("0: {1} {2}"), "ks")
    story.follow(["0 sends"])
    (told,) = story.scenes[0].rules
    assert (told.about, told.rule) == ("0,1:{1}", "")
    assert "neither delivered nor replaced" in str(told)


@pytest.mark.parametrize(
    "name", sorted(name for name, facts in protocols().items() if not facts.assumes.serialized)
)
def test_every_protocol_has_a_story_that_ends_with_everything_delivered(name, seed):
    facts = protocols()[name]
    to = "{1}" if "broadcast" not in facts.assumes.casts else "{0,1,2}"
    program = read_program(f"0: {to} {to}; 2: {to}")
    story = Story(program, name, fifo=facts.assumes.fifo_links).play(seed)
    delivered = sorted((scene.process, key) for scene in story.scenes for key in scene.delivered)
    assert len(delivered) == len(set(delivered)) == program.packets
    assert "\n".join(line for scene in story.scenes for line in scene.lines())


def test_a_delivery_that_overtakes_another_is_said():
    for order, wrong, allowed in (
        (Order.CAUSAL, ("OVERTAKING M(0,1)",), ()),
        (None, (), ("overtaking M(0,1), as fifo order allows",)),  # chain-two promises no more than that here
    ):
        story = Story(read_program("0: {0} {2}; 1: {0}; 2: {1}"), "chain-two", order=order)
        story.follow(["0 sends", "0 sends", "2 receives M(0,2)", "2 sends"])
        story.follow(["1 receives M(2,1)", "1 sends", "0 receives M(1,1)"])
        last = story.scenes[-1]
        assert (last.wrong, last.allowed) == (wrong, allowed)
        assert f"       {(wrong or allowed)[0]}" in last.lines()


def test_total_order_is_judged_where_it_is_promised_and_causal_order_where_it_is_not(capsys):
    program = ["play", "0: {1,2}; 2: {0,1} {0,1} {0}", "--protocol", "agreed", "--seed", "3"]
    assert main(program) == 0
    assert "overtaking M(2,2), as total order allows" in capsys.readouterr().out
    assert main([*program, "--order", "causal"]) == 1
    assert "OVERTAKING M(2,2)" in capsys.readouterr().out


def test_deliveries_in_opposite_orders_are_told_where_total_order_is_judged(tmp_path, capsys):
    steps = ("0 sends", "1 sends", "0 receives M(0,1)", "0 receives M(1,1)", "1 receives M(1,1)")
    (schedule := tmp_path / "steps.txt").write_text("\n".join(steps))
    program = ["play", "0: {0,1}; 1: {0,1}", "--schedule", str(schedule)]
    assert main(program) == 0
    assert main([*program, "--order", "total"]) == 1
    assert "DISAGREEING: M(0,1) comes after M(1,1), and 0 before it" in capsys.readouterr().out


@pytest.mark.parametrize(
    "program, why",
    [
        ("", "empty program"),
        ("0 sends to 1", "no part of a program"),
        ("0: {}", "no part of a program"),
        ("0: {1}; 99: {1}", "beyond the 64"),
    ],
)
def test_a_text_that_is_no_program_is_refused(program, why):
    with pytest.raises(LocalProtocolError, match=why):
        read_program(program)


def test_a_step_that_is_not_possible_is_refused_with_what_is():
    story = Story(read_program("0: {1}; 1: {0}"), "ks")
    with pytest.raises(LocalProtocolError, match="not on its way; what is: nothing"):
        story.follow(["1 receives M(0,1)"])
    with pytest.raises(LocalProtocolError, match=r"what is: M\(0,1\) from 0 to 1"):
        story.follow(["0 sends", "0 receives M(1,1)"])
    with pytest.raises(LocalProtocolError, match="0 has nothing more to send"):
        story.follow(["0 sends"])


def play(*arguments, text=None):
    command = [sys.executable, "-m", "happened", "play", *arguments]
    return subprocess.run(command, capture_output=True, text=True, input=text, timeout=120)


def test_the_command_tells_a_story_and_writes_a_page(tmp_path):
    page = tmp_path / "story.html"
    schedule = ["0 sends", "1 receives M(0,1)", "1 sends", "2 receives M(1,1)", "2 receives M(0,1)"]
    done = play("0: {1,2}; 1: {2}", "--schedule", "-", "--out", str(page), text="\n".join(schedule))
    assert done.returncode == 0, done.stderr
    assert "2 holds M(1,1) until M(0,1)" in done.stdout and "carries 0,1:{2}" in done.stdout
    scene = scene_of(page)
    assert scene.arrays["kind"].tolist().count(KINDS.index("send")) == 2 and len(scene.header["holds"]) == 1
    assert not re.search("https?:", page.read_text())


def scene_of(page):
    """What the page of a story draws."""
    packed = re.search(r'id="scene-0">([^<]*)<', page.read_text())[1]
    return Unpacked(zlib.decompress(base64.b64decode(packed)))


def test_the_text_of_a_story_is_a_schedule_of_the_same_story(seed):
    for name, facts in protocols().items():
        to = "{1}" if "broadcast" not in facts.assumes.casts else "{0,1,2}"
        program = read_program(f"0: {to} {to}; 2: {to}")
        told = Story(program, name, fifo=facts.assumes.fifo_links).play(seed)
        again = Story(program, name, fifo=facts.assumes.fifo_links)
        assert again.follow([line for scene in told.scenes for line in scene.lines()]) == [], name
        assert again.scenes == told.scenes, name


def test_a_schedule_without_a_step_is_refused_and_one_with_other_lines_is_told_of(tmp_path, capsys):
    schedule = tmp_path / "steps.txt"

    def told(lines):
        schedule.write_text(lines)
        return main(["play", "0: {1}", "--schedule", str(schedule)]), *capsys.readouterr()

    code, out, err = told("1 recieves M(0,1)\n\n# a comment\n")
    assert (code, out) == (2, "")
    assert "steps.txt: no line is a step of this program: '1 recieves M(0,1)' is none. Write" in err
    code, _, err = told("")
    assert code == 2 and "no line is a step of this program. Write" in err
    code, out, err = told("0 sends\n1 recieves M(0,1)\n")
    assert code == 0 and "1 delivers M(0,1)" in out
    assert "passed over 1 line that is no step: '1 recieves M(0,1)'" in err


def test_the_command_tells_of_routers_and_trackers(tmp_path, capsys):
    topology = str(FIGURE.parents[1] / "topologies" / "line.yaml")
    routed = ["play", "0: {3} {3}; 3: {0}", "--protocol", "topological", "--topology", topology, "--json"]
    assert main(routed) == 0
    story = json.loads(capsys.readouterr().out)
    assert story["names"] == ["0 a", "1 b", "2 c", "3 d"] and "h(4,1) is the first" in story["notation"]
    assert {told["rule"] for step in story["steps"] for told in step["rules"]} >= {"R4", "R8", "R9"}
    page, schedule = tmp_path / "story.html", tmp_path / "steps.txt"
    schedule.write_text("event at 0\n0 sends\n1 receives M(0,1)\n")
    tracked = ["play", "0: e {1}; 1: e", "--tracker", "p3"]
    assert main([*tracked, "--schedule", str(schedule), "--out", str(page)]) == 0
    assert "(1,1) follows (0,1) (R1)" in capsys.readouterr().out
    assert scene_of(page).arrays["relevant"].tolist().count(1) == 2


@pytest.mark.parametrize(
    "arguments, why",
    [
        (["--tracker", "nothing"], "no tracking protocol is called 'nothing'"),
        (["--tracker", "p1", "--tick-at-deliveries"], "--tick-at-deliveries is for ordering protocols"),
        (["--tracker", "p2:0"], "b at least 1"),
    ],
)
def test_what_a_tracker_cannot_do_is_refused(arguments, why, capsys):
    assert main(["play", "0: e {1}", *arguments]) == 2
    assert why in capsys.readouterr().err


def test_a_wrong_timestamp_ends_with_1(monkeypatch, capsys):
    monkeypatch.setattr(Knowledge, "everyone_lacks_own", lambda self: None)
    assert main(["play", "0: e {1}; 1: {0} e", "--tracker", "p1", "--seed", "1"]) == 1
    assert "WRONG: its vector is" in capsys.readouterr().out


def test_a_counterexample_of_explore_is_played(tmp_path):
    found = tmp_path / "found.json"
    found.write_text(
        json.dumps(
            {
                "protocol": "chain-two",
                "fifo": False,
                "violations": [
                    {
                        "program": "0: {0} {2}; 1: {0}; 2: {1}",
                        "schedule": [
                            "0 sends M(0,1) to {0}",
                            "0 sends M(0,2) to {2}",
                            "2 receives M(0,2)",
                            "2 delivers M(0,2)",
                            "2 sends M(2,1) to {1}",
                            "1 receives M(2,1)",
                            "1 delivers M(2,1)",
                            "1 sends M(1,1) to {0}",
                            "0 receives M(1,1)",
                        ],
                    }
                ],
            }
        )
    )
    done = play("--from", str(found))
    assert done.returncode == 1 and "OVERTAKING M(0,1)" in done.stdout
    found.write_text("{}")
    refused = play("--from", str(found))
    assert refused.returncode == 2 and "not the output of `happened explore --json`" in refused.stderr


def test_what_was_never_delivered_is_said_at_the_end(capsys):
    """Two broadcasts that are not serialized: each is refused by whoever made or got the other."""
    assert main(["play", "0: {0,1}; 1: {0,1}", "--protocol", "serialized-broadcast", "--seed", "1"]) == 0
    told = capsys.readouterr().out.splitlines()
    refused = {
        re.match(r" *\d+\. (\d) would receive (M\(\d,\d\))", line).groups()
        for line in told
        if "refuses" in line
    }
    assert refused
    end = [line for line in told if line.startswith("not delivered: ")]
    assert (
        {f"not delivered: {name} at {p}, which refused it" for p, name in refused}
        <= set(end)
        == set(told[-len(end) :])
    )


def test_a_story_that_is_stuck_ends_with_1_and_one_that_was_cut_short_does_not(monkeypatch, tmp_path, capsys):
    story = Story(read_program("0: {1,2}; 1: {2}"), "ks")
    story.follow(["0 sends", "1 receives M(0,1)", "1 sends", "2 receives M(1,1)"])
    assert not story.is_stuck and story.document()["end"] == [
        "not delivered: M(0,1) at 2",
        "not delivered: M(1,1) at 2, which holds it",
    ]
    assert story.drain().document()["end"] == [] and not story.is_stuck
    deliver = KshemkalyaniSinghal.receive
    monkeypatch.setattr(
        KshemkalyaniSinghal,
        "receive",
        lambda self, m: [] if (m.sender, self.me) == (0, 2) else deliver(self, m),
    )
    assert main(["play", "0: {1,2}"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "not delivered: M(0,1) at 2"


def test_control_messages_are_told_as_the_papers_write_them_and_with_their_numbers():
    """Fig. 2.9 of the textbook chapter: PROPOSED_TS(j, i, tag, ts) and FINAL_TS(i, tag, ts)."""
    story = Story(read_program("0: {1,2}"), "agreed").drain()
    told = "\n".join(line for scene in story.scenes for line in scene.lines())
    assert "0 receives PROPOSED_TS(1,0,1,1) from 1" in told and "1 receives FINAL_TS(0,1,1)" in told
    assert "also sends PROPOSED_TS(2,0,1,1) to {0}" in told
    expected = {
        "acknowledged": "0 receives an acknowledgement of M(0,1) from 1",
        "cbcast": "0 receives an acknowledgement of M(0,1) by 1",
        "phased": "0 receives a resynchronisation of 1 up to phase 1",
    }
    for name, line in expected.items():
        program = "0: {1}" if name == "acknowledged" else "0: {1,2} {1,2}"
        again = Story(read_program(program), name)
        text = [line for scene in Story(read_program(program), name).drain().scenes for line in scene.lines()]
        assert any(line in each for each in text), (name, text)
        assert not again.follow(text)
        assert [line for scene in again.scenes for line in scene.lines()] == text
