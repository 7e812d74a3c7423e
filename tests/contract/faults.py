"""The toy with one fault each, and the checks that find it. A docstring says what is wrong."""

from dataclasses import replace

from contract import copies, faulty_codecs, frames, runs, states
from contract.toy import FACTS, ToyMessage, WholePast
from happened.core.effects import Deliver, Send
from happened.core.orders import Order
from happened.ordering.facts import (
    BROADCAST,
    Assumptions,
    CopyTravel,
    MembershipChanges,
    Option,
    Promises,
    WireFormat,
)
from happened.ordering.machine import Held, Multicast

FAULTY = []
"""(machine, check that finds its fault)"""


def planted(*checks, **claimed):
    """A fault that each of these checks finds by itself; what the toy claims besides what it did."""

    def plant(machine):
        machine.facts = replace(FACTS, name=machine.__name__.lower(), **claimed)
        FAULTY.extend((machine, check) for check in checks)
        return machine

    return plant


@planted(runs.check_safety, runs.check_interleavings, runs.check_explored)
class DropsADependency(WholePast):
    """it does not carry the newest message of its past"""

    def entries(self):
        return super().entries()[:-1]

    def save(self):
        return {**super().save(), "past": super().entries()}


@planted(runs.check_duplicates, runs.check_interleavings)
class DeliversDuplicates(WholePast):
    """what has been delivered is delivered again when the network duplicates it"""

    def is_duplicate(self, message):
        return message in self._parking


@planted(runs.check_liveness, runs.check_safety, runs.check_explored)
class NeverReleases(WholePast):
    """what is held stays held"""

    def _deliver(self, message):
        return self.take(message)


@planted(states.check_snapshots, runs.check_interleavings)
class ForgetsInSnapshots(WholePast):
    """a snapshot does not say what was delivered"""

    def save(self):
        return {**super().save(), "delivered": ()}


@planted(states.check_bad_snapshots)
class HastyRestore(WholePast):
    """a snapshot that is refused has changed the state already"""

    def restore(self, data):
        self.events = 0
        super().restore(data)


@planted(states.check_bad_snapshots)
class TrustingRestore(WholePast):
    """bytes that are no snapshot raise whatever they happen to raise"""

    def restore(self, data):
        if not data.startswith(b'{"'):
            raise KeyError(data)
        super().restore(data)


@planted(frames.check_frames, runs.check_safety, wire=WireFormat(129, faulty_codecs.LOSSY))
class LossyCodec(WholePast):
    """its codec loses an entry"""

    message_type = faulty_codecs.LostMessage


@planted(
    frames.check_hostile_frames, frames.check_damaged_frames, wire=WireFormat(130, faulty_codecs.TRUSTING)
)
class TrustingCodec(WholePast):
    """hostile bytes raise something else than RemoteProtocolError"""

    message_type = faulty_codecs.TrustedMessage


@planted(frames.check_bounds, wire=WireFormat(131, faulty_codecs.UNBOUNDED))
class UnboundedCodec(WholePast):
    """its codec takes any number of processes, whatever its caller allows"""

    message_type = faulty_codecs.UnboundedMessage


@planted(frames.check_one_multicast, frames.check_frames, wire=WireFormat(132, faulty_codecs.CHEAP_COPIES))
class CheapCopies(WholePast):
    """the copies of one multicast are encoded otherwise than one by one"""

    message_type = faulty_codecs.CheaplyCopiedMessage


@planted(frames.check_codec, wire=WireFormat(133, faulty_codecs.TOO_MANY_KINDS))
class UnspokenKind(WholePast):
    """its codec has a kind of message that it never sends"""

    message_type = faulty_codecs.SpokenMessage


@planted(states.check_refused_messages)
class RefusesNothing(WholePast):
    """it takes what no correct peer sends"""

    def checked(self, message):
        return message


@planted(states.check_refused_messages, frames.check_damaged_frames)
class CountsRefusedMessages(WholePast):
    """a message that is refused has changed the state"""

    def checked(self, message):
        self.events += 1
        message = super().checked(message)
        self.events -= 1
        return message


@planted(states.check_refused_multicasts)
class CountsRefusedMulticasts(WholePast):
    """a multicast that is refused has advanced the clock"""

    def address(self, to, payload):
        self.clock += 1
        dests = super().address(to, payload)
        self.clock -= 1
        return dests


@planted(states.check_refused_multicasts, assumes=Assumptions(casts=frozenset({BROADCAST})))
class LeavesSomeOut(WholePast):
    """it claims to be for broadcasts and does not refuse anything else"""


@planted(runs.check_optimality, runs.check_explored, promises=Promises(optimal=True))
class NotOptimal(WholePast):
    """it claims to carry what is necessary and carries everything"""

    def log_units(self):
        return ToyMessage(0, 1, 1, 1, self.entries(), b"").units()


@planted(runs.check_optimality, states.check_shape, promises=Promises(optimal=True))
class HidesItsLog(WholePast):
    """it claims to carry what is necessary and does not tell its log"""


@planted(runs.check_joins, runs.check_interleavings)
class BreaksWhenJoined(WholePast):
    """it claims that processes may join and has no room for them"""

    def __init__(self, me, n):
        super().__init__(me, n)
        self._room = [0] * n

    def learn(self, message):
        self._room[message.sender] += 1
        super().learn(message)


@planted(runs.check_joins, membership=MembershipChanges(joins=False))
class JoinsAllTheSame(WholePast):
    """it claims that nobody may join and lets them"""

    def join(self, process):
        self.n += 1
        return []


@planted(runs.check_departures, runs.check_interleavings)
class SendsToTheDeparted(WholePast):
    """it sends to those who have left"""

    def leave(self, process):
        return []


@planted(runs.check_expulsions, runs.check_failures)
class WaitsForTheExpelled(WholePast):
    """it waits for messages of those who were expelled, which nobody brings"""

    def skip(self, process, clock):
        return ()


@planted(runs.check_departures, membership=MembershipChanges(departures=False))
class LeavesAllTheSame(WholePast):
    """it claims that nobody may leave and lets them"""

    def leave(self, process):
        self.gone |= 1 << process
        return []


@planted(runs.check_safety, runs.check_explored, order=Order.CAUSAL_TOTAL)
class ClaimsTotalOrder(WholePast):
    """processes deliver concurrent messages in different orders"""


@planted(runs.check_safety, order=Order.FIFO)
class NeedsFifoLinks(WholePast):
    """it keeps the order of its links and does not say that these must be FIFO"""

    def lacks(self, message):
        return None

    def is_duplicate(self, message):
        return (message.sender, message.clock) in self._past

    def told(self, message):
        return 0


@planted(runs.check_liveness, runs.check_interleavings)
class NamesTheWrongMessages(WholePast):
    """what is held names a message that it does not wait for"""

    def pending(self):
        return [Held(m, ((m.sender, m.clock),), since) for m, _, since in super().pending()]


@planted(runs.check_liveness, runs.check_messages_to_oneself)
class NamesNothing(WholePast):
    """what is held does not say what it waits for"""

    def pending(self):
        return [Held(m, (), since) for m, _, since in super().pending()]


@planted(states.check_shape, runs.check_safety, promises=Promises(entries=lambda n: n))
class MiscountsEntries(WholePast):
    """it claims that every message carries n entries"""


@planted(runs.check_safety, runs.check_interleavings)
class RepeatsItsClock(WholePast):
    """two messages have one name"""

    def multicast(self, to, payload):
        made = super().multicast(to, payload)
        return Multicast(1, made.effects)


@planted(runs.check_safety)
class SwapsPayloads(WholePast):
    """an application gets the payload of another message"""

    def take(self, message):
        return [Deliver(e.sender, e.clock, b"another") for e in super().take(message)]


@planted(copies.check_common_frame, copies=CopyTravel(common_frame=True))
class CopiesDiffer(WholePast):
    """what it says to be one frame for all differs from copy to copy"""

    def stamp(self, clock, dests, payload):
        return [
            Send(to, message._replace(past=message.past[:: -1 if to % 2 else 1]))
            for to, message in super().stamp(clock, dests, payload)
        ]


@planted(runs.check_safety, runs.check_liveness)
class SkipsADestination(WholePast):
    """nobody sends to the last of three destinations or more"""

    def stamp(self, clock, dests, payload):
        sends = super().stamp(clock, dests, payload)
        return sends[:-1] if len(sends) > 2 else sends


@planted(runs.check_safety)
class Misdirects(WholePast):
    """a message is delivered to somebody it is not for"""

    def stamp(self, clock, dests, payload):
        sends = super().stamp(clock, dests, payload)
        bystander = (self.me + 1) % self.n
        return [*sends, Send(bystander, sends[0].message)] if not dests >> bystander & 1 else sends

    def check(self, received, kind):
        pass


@planted(states.check_facts)
class UndeclaredOption(WholePast):
    """two of its options have one name"""


UndeclaredOption.facts = replace(UndeclaredOption.facts, options=(Option("x", ""), Option("x", "")))
