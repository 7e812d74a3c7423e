"""Optimal causal order, after Kshemkalyani & Singhal (Distributed Computing 11(2), 1998).

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   causal order for multicasts to arbitrary sets (oneself included), and optimality: the units
           (source, clock, destination) in every log and on every message are exactly those that the
           propagation constraints PC1 and PC2 of the paper require.
Leaves out any order between concurrent messages; agreement on the membership.
Invariant  the log has, for each message in the causal past, the destinations to which its delivery is neither
           known nor guaranteed by a later message; and that of `lane_process`.

The implementation differs from the text in two ways, neither visible outside. A message carries its sender's
log with its own entry already inserted, which saves the empty previous entry. And a log is merged when the
machine next reads its log, not at delivery: the log of a message in another's past adds nothing to that
other's (its past is contained, and neither log names a destination both are addressed to), so it is skipped.

The misprint in RCV(4) and the unsafe lookahead of §4.5 are corrected here; the tests show both.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from ...core.destinations import unpack
from ...core.effects import Send
from ...core.lanes import CLOCK_LIMIT, lanes
from ...core.tuples import new
from .. import notation
from ..facts import CopyTravel, Facts, MembershipChanges, Option, Promises, Waits, WireFormat
from ..holding import Want
from ..machine import Effect, MessageKey, Unit
from ..messages import BareApplication, Entry
from ..process import State
from ..snapshots import kept
from . import dependency_log
from .dependency_log import DependencyLog
from .lane_process import LaneProcess


class KsMessage(BareApplication):
    """M(sender, clock) as one destination gets it.

    `log` is the same for all destinations: the sender's log after the send, own entry included. `wait_for` is
    for `receiver` alone (the units of O_M that name it): what it must deliver first. In the
    hardware-multicast form (§4.5) all copies have the same bytes, so `receiver` is None and `log` is the
    sender's log before the send: each destination computes its own part.
    """

    sender: int
    clock: int
    dests: int  # bit set
    log: DependencyLog
    receiver: int | None
    wait_for: int  # lanes: per sender the clock of its message to deliver first, 0 for none (Lemma 1)
    payload: bytes

    @property
    def n(self) -> int:
        return self.log.n

    def about_others(self) -> list[Entry]:
        """The entries of `log` about messages other than this one."""
        own = (self.sender, self.clock)
        return [entry for entry in self.log.entries() if entry[:2] != own]

    def about(self) -> Iterator[Entry]:
        yield from self.about_others()
        if self.receiver is not None:
            yield from ((s, t, 1 << self.receiver) for s, t in self.waits())

    def size(self) -> tuple[int, int]:
        entries, units = self.log.size()
        if self.receiver is None:
            return entries, units
        waits = unlisted = 0
        if self.wait_for:
            vector, log = lanes(self.log.n), self.log
            newest = vector.unpack(log.clocks)
            for s, t in enumerate(vector.unpack(self.wait_for)):
                if t:
                    waits += 1
                    unlisted += newest[s] != t and (s, t) not in log.older
        return entries - 1 + unlisted, units - self.dests.bit_count() + waits

    def waits(self) -> list[MessageKey]:
        """The (sender, clock) of each message that `receiver` must deliver before this one."""
        return [(s, t) for s, t in enumerate(lanes(self.log.n).unpack(self.wait_for)) if t]

    def known_to(self, n: int) -> "KsMessage":
        wait_for = lanes(self.log.n).widened(self.wait_for, n)
        return self._replace(log=self.log.grown(n), wait_for=wait_for)

    def localised(self, me: int) -> "KsMessage":
        """The copy that `me` would have got without hardware multicast: SND(2), done by the receiver."""
        log, waits = dependency_log.strip(self.log, self.dests)
        log = dependency_log.insert(log, self.sender, self.clock, self.dests)
        return self._replace(log=log, receiver=me, wait_for=waits.get(me, 0))


class KshemkalyaniSinghal(LaneProcess[KsMessage]):
    facts = Facts(
        name="ks",
        description="optimal: carries exactly the necessary information",
        paper="Kshemkalyani & Singhal, Distributed Computing 11(2), 1998",
        wire=WireFormat(1, "happened.wire.ks"),
        options=(
            Option(
                "hardware_multicast", "one message for all destinations, 1.5 to 1.75 times the bytes (§4.5)"
            ),
            Option(
                "lookahead", "use the log of a held message at once; fewer units, no longer optimal (§4.5)"
            ),
        ),
        promises=Promises(optimal=True),
        membership=MembershipChanges(recycles=True),
        waits=Waits(only_for_past=True, tells_past=True),
        copies=CopyTravel(common_frame="hardware_multicast"),
    )
    message_type = KsMessage

    _log: DependencyLog = kept(dependency_log.LOG)

    def __init__(self, me: int, n: int, *, hardware_multicast: bool = False, lookahead: bool = False) -> None:
        super().__init__(me, n)
        self._hardware_multicast = hardware_multicast
        self._lookahead = lookahead
        # Per sender, its last delivered message whose log is not merged yet; oldest delivery first.
        self._unmerged: dict[int, KsMessage] = {}

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        self._merge_delivered()
        me, before = self.me, self._log
        log, waits = dependency_log.strip(before, dests)
        self._log = log = dependency_log.insert(log, me, clock, dests)
        if self._hardware_multicast:
            message = KsMessage(me, clock, dests, before, None, 0, payload)
            return self.to_each(message, dests)
        made = [new(KsMessage, (me, clock, dests, log, d, waits.get(d, 0), payload)) for d in unpack(dests)]
        return [new(Send, (message.receiver, message)) for message in made]

    def checked(self, message: KsMessage) -> KsMessage:
        # An arrival costs little more than its checks, so one combined test lets the usual message pass.
        me, n, clock = self.me, self.n, self.clock
        if (
            type(message) is KsMessage
            and message.receiver == me
            and message.log.n == n
            and not self.gone
            and 0 <= message.sender < n
            and 0 < message.clock < CLOCK_LIMIT
            and message.dests >> me & 1
            and self._lanes.get(message.log.clocks, me) <= clock
            and (message.sender != me or message.clock <= clock)
        ):
            return message
        message = super().checked(message)
        if message.receiver is None:
            message = message.localised(me)
        return self._cleared(message) if self.gone else message

    def _cleared(self, message: KsMessage) -> KsMessage:
        """The message without the units that name departed processes."""
        wait_for = message.wait_for
        for process in unpack(self.forgotten):
            wait_for = self._lanes.put(wait_for, process, 0)
        log = dependency_log.without(message.log, self.gone, self.forgotten)
        return message._replace(log=log, wait_for=wait_for)

    def leave(self, process: int) -> list[Effect]:
        effects = super().leave(process)
        self._clear()
        return effects

    def forget(self, process: int) -> None:
        super().forget(process)
        self._clear()

    def _clear(self) -> None:
        """Drop the units that name departed processes, and the entries of forgotten senders."""
        self._merge_delivered()
        self._log = dependency_log.without(self._log, self.gone, self.forgotten)
        self._parking.replace(self._cleared)

    def told(self, message: KsMessage) -> int:
        return self._lanes.get(message.log.clocks, self.me)

    def wanted(self, message: KsMessage) -> int:
        return message.wait_for

    def follows(self, message: KsMessage, other: KsMessage) -> bool:
        return message.log.newest(other.sender) >= other.clock

    def hold(self, message: KsMessage, want: Want) -> None:
        self._parking.hold(message, want, self.events)
        if self._lookahead:
            self._merge_delivered()
            self._log = dependency_log.merge(self._log, message.log)

    def learn(self, message: KsMessage) -> None:
        sender, clock = message.sender, message.clock
        self._delivered += clock - self._lanes.get(self._delivered, sender) << self._lanes.width * sender
        if sender == self.me or (self._lookahead and self._log.newest(sender) >= clock):
            # Our log already contains its past; the only news is its delivery.
            self._log = dependency_log.discard(self._log, sender, clock, self.me)
        else:
            self._unmerged.pop(sender, None)
            self._unmerged[sender] = message

    def _merge_delivered(self) -> None:
        if not self._unmerged:
            return
        log, vector = self._log, self._lanes
        for sender, message in reversed(self._unmerged.items()):
            if vector.get(log.clocks, sender) >= message.clock:
                continue  # it is in the past of a message already merged
            theirs = message.log if message.log.n == self.n else message.log.grown(self.n)
            # RCV(3): M(sender, clock) has been delivered here, so remove us from its destinations.
            sets = theirs.sets & ~(1 << vector.width * sender + self.me)
            log = dependency_log.merge(log, DependencyLog(theirs.n, theirs.clocks, sets, theirs.older))
        self._log = log
        self._unmerged = {}

    def log_units(self) -> frozenset[Unit]:
        """The units that PC1 and PC2 require after the last local event."""
        return frozenset((s, t, d) for s, t, dests in self.log_entries() for d in dests)

    def log_size(self) -> tuple[int, int]:
        self._merge_delivered()
        return self._log.size()

    def log_entries(self) -> list[tuple[int, int, frozenset[int]]]:
        """The log as the paper writes it: (sender, clock, Dests), ordered by sender and clock."""
        self._merge_delivered()
        return [(s, t, frozenset(unpack(dests))) for s, t, dests in self._log.entries()]

    def knowledge(self) -> list[tuple[str, str]]:
        return [("log", notation.entries(self.log_entries()))]

    def join(self, process: int) -> list[Effect]:
        self._merge_delivered()
        return super().join(process)

    def save(self) -> State:
        self._merge_delivered()
        return super().save()

    def load(self, state: State) -> None:
        super().load(state)
        self._unmerged = {}

    def written(self, message: KsMessage) -> tuple[Any, ...]:
        return tuple(message._replace(log=dependency_log.LOG.write(message.log)))

    def read(self, fields: Iterable[Any]) -> KsMessage:
        message = KsMessage(*fields)
        return message._replace(log=dependency_log.LOG.read(message.log))
