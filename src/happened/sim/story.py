"""A small program of an ordering protocol played step by step.

Assumes    a protocol that is safe under the schedule; what it does wrong is told too, not hidden.
Out        the scenes of `narrator`; their text is itself a schedule, which gives the same story again.
"""

from collections.abc import Iterable
from typing import Any

from ..core.destinations import unpack
from ..core.effects import Send
from ..core.errors import CausalityError, LocalProtocolError
from ..core.orders import Order
from ..ordering import Effect, Machine, create, notation, protocols
from ..ordering.explaining import knowledge
from .narrator import Narrator, message_name
from .playing import MOST_PROCESSES, PacketInFlight, Play
from .programs import Program, set_text
from .scenes import REFUSED, Scene, document
from .terrain import Terrain, relays

UNITS = "An entry 5,1:{6} means that M(5,1) may not have been delivered at 6 yet."
HISTORIES = (
    "H has the messages that precede the next one, with their destinations; C says to whom each of them has "
    "been reported; D has the last one delivered of each sender."
)
HOPS = "Entries are about hops: h(4,1) is the first message of 4 to its neighbours, whatever it brings."


class Story(Play):
    """The machines of one program, what is on its way, and what has happened.

    Deliveries are judged by `order`, the one that the protocol promises by default.
    With `tick_at_deliveries` clocks count deliveries too, as in the worked example of the textbook chapter.
    With a `terrain`, the routers of its protocol are processes too, after those of the program.
    """

    def __init__(
        self,
        program: Program,
        protocol: str,
        *,
        order: Order | None = None,
        fifo: bool = False,
        tick_at_deliveries: bool = False,
        terrain: Terrain | None = None,
    ) -> None:
        super().__init__(program, fifo=fifo)
        if protocols()[protocol].assumes.fifo_links and not fifo:
            raise LocalProtocolError(f"{protocol} needs FIFO links; add --fifo")
        self.protocol = protocol
        self.names, self._machines = _cast(program, protocol, terrain)
        self._narrator = Narrator(self._machines, order=order, tick=tick_at_deliveries)

    @property
    def scenes(self) -> list[Scene]:
        return self._narrator.scenes

    def document(self) -> dict[str, Any]:
        """The whole story as JSON has it."""
        how = explained(self.protocol, self._machines)
        return document(
            self.protocol, str(self.program), self.names, self.scenes, how, self._narrator.undelivered()
        )

    @property
    def is_stuck(self) -> bool:
        """Whether nothing more can happen, a message has not been delivered, and no refusal explains it."""
        refused = any(scene.kind == REFUSED for scene in self.scenes)
        return not refused and not self._choices() and bool(self._narrator.undelivered())

    def act(self, process: int, action: int) -> None:
        try:
            clock, effects = self._machines[process].multicast(tuple(unpack(action)), b"")
        except CausalityError as error:
            what = f"{process} would send to {set_text(action)}, and is refused: {error}"
            self._narrator.refused(process, what)
            return
        self._put_on_links(process, effects)
        self._narrator.sent(process, clock, action, effects)

    def take_in(self, packet: PacketInFlight) -> None:
        try:
            effects = self._machines[packet.to].receive(packet.message)
        except CausalityError as error:
            what = (
                f"{packet.to} would receive {packet.names[0]} from {packet.source}, and refuses it: {error}"
            )
            self._narrator.refused(packet.to, what, packet.message)
            return
        self._put_on_links(packet.to, effects)
        self._narrator.arrived(packet.to, packet.source, packet.message, effects)

    def _put_on_links(self, process: int, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                message = effect.message
                about = notation.key_name((message.sender, message.clock))
                names = message_name(message), f"{type(message).__name__} of {about}"
                self._packets.append(PacketInFlight(process, effect.to, names, message))


def _cast(program: Program, protocol: str, terrain: Terrain | None) -> tuple[list[str], list[Machine]]:
    """The names of all processes, and their machines."""
    n = len(program.sends)
    if terrain is None:
        return list(map(str, range(n))), [create(protocol, me, n) for me in range(n)]
    if not relays(protocol):
        able = ", ".join(name for name in sorted(protocols()) if relays(name))
        raise LocalProtocolError(
            f"{protocol} sends directly and can make no use of a topology; these relay: {able}"
        )
    if n > terrain.applications:
        known = ", ".join(f"{p} is {name}" for p, name in enumerate(terrain.names[: terrain.applications]))
        raise LocalProtocolError(f"{terrain.source} has no process {n - 1} with an application; {known}")
    size = terrain.processes(protocol)
    if size > MOST_PROCESSES:
        raise LocalProtocolError(
            f"{terrain.source} has {size} processes, and a story can show {MOST_PROCESSES}"
        )
    make = terrain.factory(protocol)
    return numbered(terrain.names), [make(me, size) for me in range(size)]


def numbered(names: Iterable[str]) -> list[str]:
    return [f"{process} {name}" for process, name in enumerate(names)]


def explained(protocol: str, machines: Iterable[Machine]) -> str:
    """How to read what the machines of a protocol remember."""
    titles = {title for machine in machines for title, _ in knowledge(machine)}
    if not titles:
        return "This protocol does not tell what it remembers."
    return (HISTORIES if "H" in titles else UNITS) + (f" {HOPS}" if relays(protocol) else "")
