"""A small program of a tracker played step by step: relevant events, sends and receipts.

Assumes    messages that arrive are given to the application at once, in whatever order they come.
Out        the scenes of `tracker_narrator`; their text is itself a schedule that gives the same story again.
"""

from typing import Any

from .. import tracking
from ..core.destinations import unpack
from ..core.errors import LocalProtocolError
from ..ordering import notation
from .playing import PacketInFlight, Play
from .programs import EVENT, Program
from .scenes import Scene, document
from .tracker_narrator import TrackerNarrator

NOTATION = (
    "(1,2) is the second relevant event of 1, and the entry that tells of it; a third number is IP: 1 while "
    "it has no successor. VC[k] counts the events of k in the causal past (with a bound, DV[k] may "
    "miss some); row j of M says which entries j is known to have."
)


class TrackerStory(Play):
    """The trackers of one program, what is on its way, and what has happened."""

    def __init__(self, program: Program, protocol: str, *, fifo: bool = False) -> None:
        super().__init__(program, fifo=fifo)
        if tracking.facts_of(protocol).fifo_links and not fifo:
            raise LocalProtocolError(f"{protocol} needs FIFO links; add --fifo")
        n = len(program.sends)
        _check(program)
        self.protocol = protocol
        self._trackers = [tracking.create(protocol, me, n) for me in range(n)]
        self._narrator = TrackerNarrator(protocol, self._trackers)
        self._sent = [0] * n  # messages of each process so far; they are numbered, as no clock does

    @property
    def scenes(self) -> list[Scene]:
        return self._narrator.scenes

    def document(self) -> dict[str, Any]:
        """The whole story as JSON has it."""
        names = [str(process) for process in range(len(self._trackers))]
        return document(self.protocol, str(self.program), names, self.scenes, NOTATION)

    def act(self, process: int, action: int) -> None:
        tracker = self._trackers[process]
        if action == EVENT:
            self._narrator.event(process, tracker.relevant())
            return
        to = list(unpack(action))
        try:
            piggybacks = dict(zip(to, tracker.on_multicast(to), strict=True))
        except LocalProtocolError as error:
            what = f"{process} would send to {notation.dests(to)}, and is refused: {error}"
            self._narrator.refused(process, what)
            return
        self._sent[process] += 1
        key = process, self._sent[process]
        for each, piggyback in piggybacks.items():
            self._packets.append(PacketInFlight(process, each, (notation.key_name(key),), (key, piggyback)))
        self._narrator.sent(process, key[1], piggybacks)

    def take_in(self, packet: PacketInFlight) -> None:
        key, piggyback = packet.message
        self._trackers[packet.to].on_receive(packet.source, piggyback)
        self._narrator.received(packet.to, key, piggyback)


def _check(program: Program) -> None:
    for process, actions in enumerate(program.sends):
        if any(action >> process & 1 for action in actions):
            raise LocalProtocolError(f"{process} sends to itself, and trackers know what they know already")
    if not any(action == EVENT for actions in program.sends for action in actions):
        raise LocalProtocolError(
            "nothing is to be timestamped: write e for a relevant event, as in `0: e {1}; 1: e {0}`"
        )
