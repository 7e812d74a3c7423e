"""Play a small program step by step: what each message carries, what is held and for what, what each process
remembers, and why it may forget.
"""

import argparse
import json
import sys
from pathlib import Path

from .. import tracking
from ..core.errors import LocalProtocolError
from ..core.exit_codes import ExitCode
from ..core.orders import Order
from ..ordering import DEFAULT, protocols
from ..sim.programs import read_program
from ..sim.scenes import story_text
from ..sim.story import Story, TrackerStory
from ..sim.terrain import Terrain
from .options import add_output, add_promised_order, given, local_path, option, refuse_given
from .output import refuse_earlier_file
from .parser import Parser
from .terminal import note, print_answer

EPILOG = """\
A program says who sends to whom, in which order: 0: {1,2} {0}; 2: {1} lets process 0 send to 1 and 2 and
then to itself, and process 2 to 1. The schedule says when a message is sent and when a copy arrives:

  happened play "0: {1,2}; 1: {2}" --seed 3               at random, the same for the same seed
  happened play "0: {1,2}; 1: {2}" --schedule steps.txt   a step a line: `0 sends`, `2 receives M(0,1)`
  happened explore --protocol P --order causal --messages 4 --json >found.json
  happened play --from found.json                         a counterexample of `explore`

  happened play "0: {5}; 5: {1}" --protocol topological --topology examples/topologies/two-gateways.yaml
  happened play "0: e {1}; 1: e {0}" --tracker p1         e is a relevant event; its step is `event at 0`

A log is written as in Kshemkalyani & Singhal (1998): 5,1:{6} means that M(5,1) may not have been delivered
at 6 yet. docs/stories.md explains the notation and the rules of each paper.

exit codes: 0 the order holds and timestamps are right, 1 a delivery broke the order, a timestamp is wrong,
or a message is never delivered though nobody refused anything, 2 bad usage or input
"""


def add_arguments(parser: Parser) -> None:
    option(parser, "program PROGRAM", 'such as "0: {1,2}; 1: {2}"', nargs="?")
    what = parser.add_mutually_exclusive_group()
    option(what, "--protocol", f"without it {DEFAULT}", choices=sorted(protocols()))
    option(what, "--tracker")
    option(parser, "--topology", "its processes are numbered, routers last")
    option(parser, "--fifo")
    option(parser, "--tick-at-deliveries", "clocks count deliveries too, not only sends")
    add_promised_order(parser)
    how = parser.add_mutually_exclusive_group()
    option(how, "--seed", default=0)
    about = "one line for each step; the remaining steps then happen in order. - is stdin"
    option(how, "--schedule FILE", about, type=local_path)
    about = "play the first counterexample of `happened explore --json`"
    option(how, "--from FILE", about, dest="found", type=local_path)
    add_output(parser, "a page to step through")
    option(parser, "--json")


def run(arguments: argparse.Namespace) -> int:
    refuse_earlier_file(arguments.out, force=arguments.force)
    story = _story(arguments)
    if arguments.out is not None:
        from ..view.story_page import story_page

        arguments.out.write_text(story_page(story.document()), encoding="utf-8")
        note(f"wrote {arguments.out}: step with the arrow keys")
    print_answer(arguments, lambda: story.document(), story_text(story.document()))
    is_wrong = any(scene.wrong for scene in story.scenes) or (isinstance(story, Story) and story.is_stuck)
    return ExitCode.VIOLATED if is_wrong else ExitCode.HOLDS


def _story(arguments: argparse.Namespace) -> Story | TrackerStory:
    if arguments.found is not None:
        for name in ("program", "protocol", "tracker", "order"):
            if getattr(arguments, name) is not None:
                raise LocalProtocolError(f"a counterexample has its own {name}: leave that out with --from")
        return _counterexample(arguments.found, arguments.topology)
    if arguments.program is None:
        raise LocalProtocolError('name a program to play, as in: happened play "0: {1,2}; 1: {2}"')
    story: Story | TrackerStory
    if arguments.tracker is not None:
        story = _tracker_story(arguments)
    else:
        story = Story(
            read_program(arguments.program),
            arguments.protocol or DEFAULT,
            order=arguments.order and Order(arguments.order),
            **given(arguments, "fifo tick_at_deliveries"),
            terrain=arguments.topology,
        )
    if arguments.schedule is None:
        return story.play(arguments.seed)
    _follow(story, arguments.schedule)
    return story.drain()


def _tracker_story(arguments: argparse.Namespace) -> TrackerStory:
    tracking.facts_of(arguments.tracker)  # which refuses an unknown name before the program is read
    reason = "is for ordering protocols: leave it out with --tracker"
    refuse_given(arguments, ("topology", "tick_at_deliveries", "order"), reason)
    return TrackerStory(read_program(arguments.program, events=True), arguments.tracker, fifo=arguments.fifo)


def _follow(story: Story | TrackerStory, schedule: Path) -> None:
    lines = sys.stdin if str(schedule) == "-" else schedule.read_text().splitlines()
    try:
        others = story.follow(lines)
    except LocalProtocolError as error:
        raise LocalProtocolError(f"{schedule}: {error}") from None
    if others:
        few = "1 line that is no step:" if len(others) == 1 else f"{len(others)} lines that are no steps, as"
        note(f"{schedule}: passed over {few} {others[0]!r}")


def _counterexample(path: Path, terrain: Terrain | None) -> Story:
    try:
        found = json.loads(path.read_text())
        violations, protocol, fifo = found["violations"], found["protocol"], found["fifo"]
        order = Order(found.get("order", Order.CAUSAL))
        if not violations:
            raise LocalProtocolError(f"{path}: nothing was violated, so there is no counterexample to play")
        program, schedule = violations[0]["program"], violations[0]["schedule"]
    except (KeyError, TypeError, ValueError) as error:
        raise LocalProtocolError(
            f"{path}: not the output of `happened explore --json` for an ordering protocol ({error!r})"
        ) from error
    if protocol not in protocols():
        raise LocalProtocolError(f"{path}: {protocol!r} orders nothing; play a tracker with --tracker")
    story = Story(read_program(program), protocol, order=order, fifo=fifo, terrain=terrain)
    story.follow(schedule)
    return story
