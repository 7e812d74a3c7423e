"""Optimal causal order, after Kshemkalyani & Singhal (Distributed Computing 11(2), 1998).

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   causal order for multicasts to arbitrary sets (oneself included), and optimality: the units
           (source, clock, destination) in every log and on every message are exactly those that the
           propagation constraints PC1 and PC2 of the paper require.
Leaves out any order between concurrent messages; agreement on who is a member.
Invariant  the log says of each message in the causal past to whom it is neither known to be delivered
           nor guaranteed to be by a later message; lane s of `_delivered` is the clock of the last message
           of s delivered here, and since delivery is in causal order, every earlier one to us was too.

Two liberties with the text, neither visible outside. A message carries its sender's log with its own
entry already inserted, which saves the empty previous one. And logs are merged when they are next looked
at, not at delivery: the log of a message in another's past adds nothing to that other's (its past is
contained, and neither log names a destination both are addressed to), so it is skipped.

The misprint in RCV(4) and the unsafe lookahead of §4.5 are corrected here; the tests show both.
"""

import json
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any, NamedTuple

from ...core.destinations import pack, unpack
from ...core.effects import Deliver, Send
from ...core.errors import LocalProtocolError, RemoteProtocolError
from ...core.lanes import CLOCK_LIMIT, lanes
from ..machine import Effect, Facts, Held, Unit
from . import dependency_log
from .dependency_log import DependencyLog, MessageKey

FACTS = Facts(
    order="causal",
    casts=frozenset({"unicast", "broadcast", "multicast"}),
    fifo_links=False,
    description="optimal: carries exactly the necessary information",
    paper="Kshemkalyani & Singhal, Distributed Computing 11(2), 1998",
)


class KsMessage(NamedTuple):
    """M(sender, clock) as one destination gets it.

    `log` is what every destination is told: the sender's log after the send, own entry included.
    `wait_for` is what `receiver` alone is told (the units of O_M that name it): what to deliver first.
    In the hardware-multicast form (§4.5) the bytes are the same for all, so `receiver` is None and `log`
    is the sender's log before the send: each destination works out its part for itself.
    """

    sender: int
    clock: int
    dests: int  # bit set
    log: DependencyLog
    receiver: int | None
    wait_for: int  # lanes: per sender the clock of its message to deliver first, 0 for none (Lemma 1)
    payload: bytes

    @property
    def to(self) -> frozenset[int]:
        return frozenset(unpack(self.dests))

    def about_others(self) -> list[tuple[int, int, int]]:
        """The (sender, clock, set) entries of the common part that do not speak of this message."""
        own = (self.sender, self.clock)
        return [entry for entry in self.log.entries() if entry[:2] != own]

    def units(self) -> frozenset[Unit]:
        units = {(s, t, d) for s, t, dests in self.about_others() for d in unpack(dests)}
        if self.receiver is not None:
            units.update((s, t, self.receiver) for s, t in self.waits())
        return frozenset(units)

    def size(self) -> tuple[int, int]:
        entries, units = self.log.size()
        if self.receiver is None:
            return entries, units
        waits, log = self.waits(), self.log
        unlisted = sum(key not in log.older and log.newest(key[0]) != key[1] for key in waits)
        return entries - 1 + unlisted, units - self.dests.bit_count() + len(waits)

    def waits(self) -> list[MessageKey]:
        """The (sender, clock) of each message that `receiver` must deliver before this one."""
        return [(s, t) for s, t in enumerate(lanes(self.log.n).unpack(self.wait_for)) if t]

    def grown(self, n: int) -> "KsMessage":
        """The same message as a larger system sees it."""
        wait_for = self.wait_for
        old, new = lanes(self.log.n), lanes(n)
        if old.width != new.width:
            wait_for = new.pack(old.unpack(wait_for))
        return self._replace(log=self.log.grown(n), wait_for=wait_for)

    def localised(self, me: int) -> "KsMessage":
        """The copy `me` would have got without hardware multicast: SND(2), done by the receiver."""
        log, waits = dependency_log.strip(self.log, self.dests)
        log = dependency_log.insert(log, self.sender, self.clock, self.dests)
        return self._replace(log=log, receiver=me, wait_for=waits.get(me, 0))


class _Held(NamedTuple):
    message: KsMessage
    since: int


class KshemkalyaniSinghal:
    """One process of the protocol.

    hardware_multicast   one message for all destinations, 1.5 to 1.75 times the bytes (§4.5).
    lookahead            use the log of a held message at once, keeping ourselves among its destinations:
                         fewer units are sent after it arrives, but they are no longer exactly optimal (§4.5).
    """

    def __init__(self, me: int, n: int, *, hardware_multicast: bool = False, lookahead: bool = False) -> None:
        if not 0 <= me < n:
            raise LocalProtocolError(f"process {me} is not among {n} processes numbered from 0")
        self._me = me
        self._hardware_multicast = hardware_multicast
        self._lookahead = lookahead
        self._n = n
        self._gone = 0  # bit set
        self._clock = 0
        self._events = 0
        self._delivered = 0  # lanes
        self._lanes = lanes(n)
        self._log = dependency_log.empty(n)
        # The last delivered message of each sender whose log is not merged yet, oldest delivery first.
        self._unmerged: dict[int, KsMessage] = {}
        self._held: dict[MessageKey, _Held] = {}
        # Watch-one: a held message is parked under one message it lacks, in the heap of that one's sender.
        self._parked: list[list[tuple[int, MessageKey]]] = [[] for _ in range(n)]

    @property
    def me(self) -> int:
        return self._me

    @property
    def n(self) -> int:
        return self._n

    def multicast(self, to: Iterable[int], payload: bytes) -> list[Effect]:
        dests = self._destinations(to)
        if not isinstance(payload, bytes):
            raise LocalProtocolError(f"a payload is bytes, not {type(payload).__name__}")
        self._merge_delivered()
        before, clock = self._log, self._next_clock()
        log, waits = dependency_log.strip(before, dests)
        self._log = log = dependency_log.insert(log, self._me, clock, dests)
        if self._hardware_multicast:
            message = KsMessage(self._me, clock, dests, before, None, 0, payload)
            return [Send(d, message) for d in unpack(dests)]
        me = self._me
        return [Send(d, KsMessage(me, clock, dests, log, d, waits.get(d, 0), payload)) for d in unpack(dests)]

    def receive(self, message: KsMessage) -> list[Effect]:
        message = self._checked(message)
        self._events += 1
        key = (message.sender, message.clock)
        if key[1] <= self._lanes.get(self._delivered, key[0]) or key in self._held:
            return []  # a duplicate made by the network
        lacking = self._lacking(message)
        if not lacking:
            return self._deliver(message)
        self._held[key] = _Held(message, self._events)
        self._park(message, lacking)
        if self._lookahead:
            self._merge_delivered()
            self._log = dependency_log.merge(self._log, message.log)
        return []

    def pending(self) -> list[Held]:
        delivered = self._lanes.unpack(self._delivered)
        return [
            Held(message, tuple((s, t) for s, t in message.waits() if delivered[s] < t), since)
            for message, since in self._held.values()
        ]

    def tick(self) -> int:
        return self._next_clock()

    def join(self, process: int) -> None:
        if process != self._n:
            raise LocalProtocolError(f"the next process to join has index {self._n}, not {process}")
        self._merge_delivered()
        self._n += 1
        self._parked.append([])
        self._log = self._log.grown(self._n)
        grown = lanes(self._n)
        if grown.width != self._lanes.width:
            self._delivered = grown.pack(self._lanes.unpack(self._delivered))
            self._held = {key: _Held(h.message.grown(self._n), h.since) for key, h in self._held.items()}
        self._lanes = grown

    def leave(self, process: int) -> None:
        if not 0 <= process < self._n or self._gone >> process & 1:
            raise LocalProtocolError(f"process {process} is not present and cannot leave")
        self._gone |= 1 << process

    def log_units(self) -> frozenset[Unit]:
        """The units in the log; what PC1 and PC2 require after the last local event."""
        self._merge_delivered()
        return frozenset((s, t, d) for s, t, dests in self._log.entries() for d in unpack(dests))

    def log_size(self) -> tuple[int, int]:
        """How many entries the log has, and how many units."""
        self._merge_delivered()
        return self._log.size()

    def log_entries(self) -> list[tuple[int, int, frozenset[int]]]:
        """The log as the paper writes it: (sender, clock, Dests), ordered by sender and clock."""
        self._merge_delivered()
        return [(s, t, frozenset(unpack(dests))) for s, t, dests in self._log.entries()]

    def _destinations(self, to: Iterable[int]) -> int:
        members = tuple(to)
        for member in members:
            if not 0 <= member < self._n or self._gone >> member & 1:
                state = "has left" if 0 <= member < self._n else f"is not among {self._n} processes"
                raise LocalProtocolError(f"process {member} {state} and cannot be sent to")
        if not members:
            raise LocalProtocolError("a message needs at least one destination")
        return pack(members)

    def _next_clock(self) -> int:
        if self._clock + 1 >= CLOCK_LIMIT:
            raise LocalProtocolError("the clock has reached its limit of 2^63 events")
        self._clock += 1
        self._events += 1
        return self._clock

    def _checked(self, message: KsMessage) -> KsMessage:
        """The copy meant for us, or an error if no correct peer can have sent it to us."""
        if not isinstance(message, KsMessage):
            raise RemoteProtocolError(f"not a message of protocol ks: {message!r}")
        if message.log.n > self._n:
            raise _refusal(
                message,
                f"comes from a system of {message.log.n} processes and we know {self._n}: "
                "join() the new ones, then receive it again",
            )
        if message.log.n < self._n:
            message = message.grown(self._n)
        if not 0 <= message.sender < self._n or not 0 < message.clock < CLOCK_LIMIT:
            raise _refusal(message, f"has no sender among {self._n} processes, or no clock")
        if not message.dests >> self._me & 1:
            raise _refusal(message, f"is not addressed to process {self._me}")
        if message.receiver is None:
            message = message.localised(self._me)
        if message.receiver != self._me:
            raise _refusal(message, f"came in the copy made for process {message.receiver}")
        if self._lanes.get(message.log.clocks, self._me) > self._clock:
            raise _refusal(message, "depends on a message we never sent")
        return message

    def _lacking(self, message: KsMessage) -> int:
        """The guards of the senders whose message it waits for is not delivered here."""
        guards = self._lanes.guards
        return guards ^ ((self._delivered | guards) - message.wait_for & guards)

    def _park(self, message: KsMessage, lacking: int) -> None:
        sender = lacking.bit_length() // self._lanes.width - 1
        clock = self._lanes.get(message.wait_for, sender)
        heappush(self._parked[sender], (clock, (message.sender, message.clock)))

    def _deliver(self, message: KsMessage) -> list[Effect]:
        """Deliver a message whose causes are here, then every held one that this releases."""
        effects: list[Effect] = []
        ready = [message]
        for message in ready:  # grows while we go
            sender, clock = message.sender, message.clock
            previous = self._lanes.get(self._delivered, sender)
            self._delivered += clock - previous << self._lanes.width * sender
            self._events += 1
            effects.append(Deliver(sender, clock, message.payload))
            if sender == self._me or (self._lookahead and self._log.newest(sender) >= clock):
                # Its past is in our log already; all that is new is that it is delivered.
                self._log = dependency_log.discard(self._log, sender, clock, self._me)
            else:
                self._unmerged.pop(sender, None)
                self._unmerged[sender] = message
            if self._parked[sender]:
                ready += self._released(sender, clock)
        return effects

    def _released(self, sender: int, clock: int) -> Iterable[KsMessage]:
        """The held messages that waited for M(sender, clock) and lack nothing else; the rest park again."""
        parked = self._parked[sender]
        while parked and parked[0][0] <= clock:
            _, key = heappop(parked)
            message = self._held[key].message
            if lacking := self._lacking(message):
                self._park(message, lacking)
            else:
                del self._held[key]
                yield message

    def _merge_delivered(self) -> None:
        if not self._unmerged:
            return
        log, vector = self._log, self._lanes
        for sender, message in reversed(self._unmerged.items()):
            if vector.get(log.clocks, sender) >= message.clock:
                continue  # in the past of a message already merged
            theirs = message.log if message.log.n == self._n else message.log.grown(self._n)
            # RCV(3): we are no longer among those M(sender, clock) has yet to reach.
            sets = theirs.sets & ~(1 << vector.width * sender + self._me)
            log = dependency_log.merge(log, DependencyLog(theirs.n, theirs.clocks, sets, theirs.older))
        self._log = log
        self._unmerged = {}

    def snapshot(self) -> bytes:
        self._merge_delivered()
        state = {
            "protocol": "ks",
            "version": 1,
            "me": self._me,
            "n": self._n,
            "gone": hex(self._gone),
            "clock": self._clock,
            "events": self._events,
            "delivered": self._lanes.unpack(self._delivered),
            "log": _log_to_json(self._log),
            "held": [[_message_to_json(message), since] for message, since in self._held.values()],
        }
        return json.dumps(state, separators=(",", ":")).encode()

    def restore(self, data: bytes) -> None:
        try:
            state = json.loads(data)
            if (state["protocol"], state["version"]) != ("ks", 1):
                raise ValueError(f"protocol {state['protocol']!r}, version {state['version']!r}")
            log = _log_from_json(state["log"])
            held = [_Held(_message_from_json(message), since) for message, since in state["held"]]
            me, n, gone = int(state["me"]), int(state["n"]), int(state["gone"], 16)
            clock, events = int(state["clock"]), int(state["events"])
            delivered = lanes(n).pack(state["delivered"])
        except (ValueError, KeyError, TypeError) as error:
            raise LocalProtocolError(f"not a snapshot of protocol ks, version 1: {error}") from error
        self._me, self._n, self._gone = me, n, gone
        self._clock, self._events, self._delivered, self._log = clock, events, delivered, log
        self._lanes = lanes(n)
        self._unmerged = {}
        self._held = {(h.message.sender, h.message.clock): h for h in held}
        self._parked = [[] for _ in range(n)]
        for message, _ in held:
            self._park(message, self._lacking(message))


def _refusal(message: KsMessage, why: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"M({message.sender}, {message.clock}) {why}")


# Sets are written in hexadecimal: Python bounds the length of decimal numbers it will parse.


def _log_to_json(log: DependencyLog) -> Any:
    return [log.n, [[s, t, hex(dests)] for s, t, dests in log.entries()]]


def _log_from_json(value: Any) -> DependencyLog:
    n, entries = value
    return dependency_log.from_entries(n, ((s, t, int(dests, 16)) for s, t, dests in entries))


def _message_to_json(message: KsMessage) -> Any:
    return [
        message.sender,
        message.clock,
        hex(message.dests),
        _log_to_json(message.log),
        message.receiver,
        message.waits(),
        message.payload.hex(),
    ]


def _message_from_json(value: Any) -> KsMessage:
    sender, clock, dests, entries, receiver, waits, payload = value
    log = _log_from_json(entries)
    wait_for = [0] * log.n
    for s, t in waits:
        wait_for[s] = t
    return KsMessage(
        sender, clock, int(dests, 16), log, receiver, lanes(log.n).pack(wait_for), bytes.fromhex(payload)
    )
