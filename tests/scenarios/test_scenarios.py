"""Every scenario beside this file is played and compared with its transcript."""

import difflib
import re
from pathlib import Path

import pytest

from happened.ordering import protocols
from scenarios.language import ScenarioError, parse, play, rewritten
from scenarios.system import System
from scenarios.trackers import Trackers

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.txt"))


def player_of(blocks):
    return Trackers() if blocks[0].commands[0][1].startswith("tracker ") else System()


def played(path):
    """The player at the end, and the text of the file as it would be rewritten."""
    blocks = parse(path)
    if not blocks:
        raise ScenarioError(f"{path}: no block in it; a scenario begins with `protocol …` or `tracker …`")
    player = player_of(blocks)
    return player, rewritten(path, blocks, play(path, blocks, player))


def difference(path):
    """Lines that tell the transcript as written from what happens; none if they agree."""
    written, seen = path.read_text().splitlines(), played(path)[1].splitlines()
    return list(difflib.unified_diff(written, seen, f"{path.name}, as written", "as it happens", lineterm=""))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_happens_is_what_the_scenario_says(path, request):
    if request.config.getoption("--rewrite"):
        path.write_text(played(path)[1])
    if lines := difference(path):
        pytest.fail("\n".join([*lines, "if that is right: pytest tests/scenarios --rewrite"]), pytrace=False)


def test_every_ordering_protocol_has_its_story():
    told = {played(path)[0].protocol for path in FILES}
    assert set(protocols()) - told == set()


def test_only_protocols_that_give_up_causal_order_let_a_message_overtake():
    """An oracle marks what overtakes; a rewritten transcript must not record it for any other protocol."""
    told = {path.stem: played(path)[0].protocol for path in FILES if "OVERTAKING" in path.read_text()}
    assert "order_ends_after_two_messages" in told
    assert not [story for story, name in told.items() if protocols()[name].order.is_causal]


def test_the_readme_lists_every_command_and_no_other():
    blocks = re.findall(r"```\n(.*?)```", (HERE / "README.md").read_text(), re.S)
    lines = [line.strip() for block in blocks[1:] for line in block.splitlines()]
    patterns = [pattern for player in (System, Trackers) for pattern, _ in player.COMMANDS]
    for line in lines:
        assert any(re.fullmatch(pattern, line) for pattern in patterns), line
    for pattern in patterns:
        assert any(re.fullmatch(pattern, line) for line in lines), pattern


STORY = """\
# The answer overtakes the question.
protocol ks, processes alice bob carol
----
alice is 0, bob is 1, carol is 2

alice sends question to bob and carol
question arrives at bob
bob sends answer to carol
answer arrives at carol
----
alice sends question, M(0,1)→{1,2}; carries nothing
bob delivers question
bob sends answer, M(1,1)→{2}; carries 0,1:{2}
carol holds answer until question (alice,1)
"""


@pytest.fixture
def scenario(tmp_path):
    def write(text):
        (tmp_path / "story.txt").write_text(text)
        return tmp_path / "story.txt"

    return write


def test_a_right_transcript_is_left_alone_and_a_wrong_one_is_put_right(scenario):
    assert played(scenario(STORY))[1] == STORY
    assert difference(scenario(STORY)) == []
    holds = "carol holds answer until question (alice,1)"
    wrong = scenario(STORY.replace(holds, "carol delivers answer"))
    assert difference(wrong)[-2:] == ["-carol delivers answer", f"+{holds}"]
    assert played(wrong)[1] == STORY
    cut = STORY[: STORY.rindex("alice sends")]
    assert played(scenario(cut))[1] == STORY


@pytest.mark.parametrize(
    "line, reason",
    [
        ("alice shouts question", r"story.txt:8: 'alice shouts question' is no command"),
        ("alice sends question to bob", r"story.txt:8: question was sent before"),
        ("alice sends more to dave", r"story.txt:8: no process is called dave; there are: alice, bob, carol"),
        ("question arrives at bob", r"story.txt:8: no question is on its way to bob; what is: nothing"),
        ("answer arrives at carol from bob", r"story.txt:8: no answer is on its way to carol"),
    ],
)
def test_what_cannot_be_played_is_an_error_with_its_place(scenario, line, reason):
    text = STORY.replace("bob sends answer to carol", line).replace("\nanswer arrives at carol\n", "\n")
    with pytest.raises(ScenarioError, match=reason):
        played(scenario(text))


@pytest.mark.parametrize(
    "text, reason",
    [
        ("protocol ks, processes a b\n", r"story.txt:1: no ---- follows this command"),
        ("----\n", r"story.txt:1: ---- comes after the commands"),
        ("# nothing\n", r"story.txt: no block in it"),
        ("protocol sk, processes a b\n----\n", r"story.txt:1: no ordering protocol is called 'sk'"),
        ("protocol ks, processes a b, colour red\n----\n", r"story.txt:1: no option is called 'colour'"),
        ("a sends x to b\n----\n", r"story.txt:1: begin with `protocol"),
        ("tracker p9, processes a b\n----\n", r"story.txt:1: no tracking protocol is called 'p9'"),
    ],
)
def test_a_file_that_is_no_scenario_is_an_error_with_its_place(scenario, text, reason):
    with pytest.raises(ScenarioError, match=reason):
        played(scenario(text))


def test_a_delivery_that_overtakes_is_said_by_an_oracle_that_sees_events_only(scenario):
    """`chain-two` keeps order along chains of two messages; along three, the last overtakes."""
    text = """\
protocol chain-two, processes a b c d
a sends x to d and b
x arrives at b
b sends y to c
y arrives at c
c sends z to d
z arrives at d
----
"""
    assert "d delivers z, OVERTAKING x (a,1)" in played(scenario(text))[1]
