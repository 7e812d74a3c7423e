"""A newcomer begins with the application's state at the process that admits it, then gets what that lacks.

    asked    The admitting process asks everybody present how many messages they have sent it so far. On each
             link the news of the newcomer comes first: messages sent after the answer can go to it, too.
    settled  The admitting process has delivered so many from each, and has closed with all departed ones. So
             every message that was sent without the newcomer is delivered here.
    given    Once its application has acknowledged those, it is asked for its state. The state goes to the
             newcomer as messages of the ordering protocol, so that whatever the newcomer does then follows
             what the state contains; a frame says which messages these are.
    begun    The newcomer keeps all deliveries back until it has these messages. It hands over the state and
             then, in order, the deliveries that the state does not contain.

Assumes    an application whose state at a process follows from the messages that it has acknowledged there,
           and whose messages all go to all members. If it sends messages to others and not to itself, it
           changes its state in the step in which it sends (docs/runtime.md).
Bounds     the admitting process keeps the clocks of messages delivered since the admission, as ranges; so
           does the newcomer, of messages that the state contains. `limits.held` and `limits.held_bytes` bound
           the deliveries that the newcomer keeps back, but not on the link from the admitting process, whose
           own multicasts wait.
"""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from operator import itemgetter
from typing import Any

from ..core.destinations import unpack
from ..core.errors import LocalProtocolError, RemoteProtocolError
from ..wire import membership as wire
from ..wire.membership import MAX_NUMBER, StateAsked, StateGiven, StateTally
from .batch import Delivery, Input, Take
from .kernel import Kernel

MOST_NAMES = 4096
"""How many messages are named one by one before acknowledged ones are merged into ranges."""
MOST_PARTS = 3000
"""How many messages one state may take; their clocks must fit a frame."""
MOST_SETS = 64
"""How many sets of destinations are counted before they are summed by process."""
STATE_CLOCK = 0
"""The clock of the state as a delivery; no message has it."""


class TransferTally:
    """How many messages we have sent to each process, and delivered from each. Sent messages are counted by
    their set of destinations, of which there are few, and by process only on request."""

    def __init__(self) -> None:
        self._sent: Counter[int] = Counter()
        self._sent_to: dict[int, int] = {}  # counts that `_sent` does not have yet
        self.delivered: Counter[int] = Counter()

    @property
    def sent(self) -> Counter[int]:
        self._count_by_process()
        return self._sent

    def count_sent(self, dests: int) -> None:
        self._sent_to[dests] = self._sent_to.get(dests, 0) + 1
        if len(self._sent_to) > MOST_SETS:
            self._count_by_process()

    def _count_by_process(self) -> None:
        for dests, count in self._sent_to.items():
            for process in unpack(dests):
                self._sent[process] += count
        self._sent_to.clear()

    def forget(self, index: int) -> None:
        del self.sent[index], self.delivered[index]

    def restore(self, sent: Iterable[tuple[int, int]], delivered: Iterable[tuple[int, int]]) -> None:
        self._sent, self._sent_to = Counter(dict(sent)), {}
        self.delivered = Counter(dict(delivered))


Ranges = dict[int, list[list[int]]]
"""By sender, ranges of its messages' clocks: the first and the last of each."""


def add_clock(names: Ranges, sender: int, clock: int) -> None:
    stretches = names.setdefault(sender, [])
    if stretches and stretches[-1][1] == clock - 1:
        stretches[-1][1] = clock
    else:
        stretches.append([clock, clock])


class Owed:
    """A state that we owe to a newcomer."""

    def __init__(self, asked: Iterable[int], due: Mapping[int, int]) -> None:
        self.asked = set(asked)  # processes that have not answered yet
        self.due = dict(due)  # per process, how many of its messages the state must contain
        self.contained: Ranges = {}  # acknowledged messages among those delivered since the admission
        self.delivered: dict[int, tuple[int, int]] = {}  # by number, those that may not be acknowledged
        self._fold_at = MOST_NAMES

    def hand_over(self, delivery: Delivery, unacknowledged: Container[int]) -> None:
        self.delivered[delivery.number] = (delivery.sender, delivery.clock)
        if len(self.delivered) > self._fold_at:
            self.fold(unacknowledged)
            self._fold_at = MOST_NAMES + 2 * len(self.delivered)

    def fold(self, unacknowledged: Container[int]) -> None:
        """Move messages that the application has acknowledged meanwhile from `delivered` to `contained`."""
        for number in [each for each in self.delivered if each not in unacknowledged]:
            add_clock(self.contained, *self.delivered.pop(number))


class Awaited:
    """The state that we wait for: its source, its messages, and the deliveries kept back meanwhile."""

    def __init__(self, source: int) -> None:
        self.source = source
        self.clocks: tuple[int, ...] = ()  # of the state's messages; empty: not told yet
        self.withheld: list[Delivery] = []  # in order; they get their numbers later

    def is_part(self, delivery: Delivery) -> bool:
        return delivery.sender == self.source and delivery.clock in self.clocks


class Transfers:
    """The states that the process of a kernel owes to others, or waits for."""

    key = "transfers"

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._me, self._put = kernel, kernel.me, kernel.links.put
        self.tally = TransferTally()
        self.owed: dict[int, Owed] = {}  # by newcomer
        self._given: set[int] = set()  # newcomers that have got their state
        self.awaited: Awaited | None = None
        self.has_begun = False  # we began with a state
        self.contained: Ranges = {}  # the messages that this state contains
        kernel.layers.append(self)
        kernel.on_sent.append(self._sent)
        kernel.give = self._hand_over
        kernel.joining.append(self._joined)
        kernel.left.append(self._left)
        kernel.inputs[Input.STATE_OWED] = lambda newcomer, data: self.owe(newcomer)
        kernel.inputs[Input.STATE_GIVEN] = self._note_given
        kernel.inputs[Input.STATE_AWAITED] = lambda source, data: self.wait_for(source)
        kernel.members.keeps_indices.append(lambda: bool(self.owed))  # the owed state names messages by index
        kernel.members.news[StateAsked] = self._hear_asked
        kernel.members.news[StateTally] = self._hear_tally
        kernel.members.news[StateGiven] = self._hear_given

    # At the process that admits the newcomer.

    def owe(self, newcomer: int) -> None:
        """Give the process of this index, which has just joined, the application's state."""
        frame = wire.encode(StateAsked(newcomer))
        asked = [link for link in self._kernel.present_links() if link != newcomer]
        self.owed[newcomer] = Owed(asked, {self._me: self.tally.sent[self._me]})
        for link in (*asked, newcomer):
            self._put(link, frame)
        self._kernel.stage(Input.STATE_OWED, newcomer)

    def waits_for(self, newcomer: int) -> list[int]:
        """The processes whose messages the state still lacks; if there are none, the state can be taken."""
        owed, delivered = self.owed[newcomer], self.tally.delivered
        departures = self._kernel.members.departures
        sources = (owed.asked | owed.due.keys()) - departures.keys()
        missing = {each for each in sources if delivered[each] < owed.due.get(each, MAX_NUMBER)}
        return sorted(missing | {process for process, each in departures.items() if each.stage < 1})

    def send_state(self, newcomer: int, state: bytes, most_bytes: int) -> None:
        """Send a newcomer the application's state, which has the effects of all acknowledged messages and of
        nothing else, in messages of at most `most_bytes` bytes."""
        kernel, owed = self._kernel, self.owed[newcomer]
        owed.fold(kernel.unacknowledged)
        head = json.dumps(owed.contained, separators=(",", ":")).encode()
        data = len(head).to_bytes(4, "big") + head + state
        parts = [data[at : at + most_bytes] for at in range(0, len(data), most_bytes)]
        if len(parts) > MOST_PARTS:
            raise LocalProtocolError(
                f"it takes {len(parts)} messages of {most_bytes} bytes, more than {MOST_PARTS}"
            )
        clocks = [kernel.multicast([newcomer], part) for part in parts]
        self._note_given(newcomer, b"".join(clock.to_bytes(8, "big") for clock in clocks))

    def _note_given(self, newcomer: int, data: bytes) -> None:
        """Note that our messages of these clocks, multicast just before, are the state."""
        clocks = tuple(int.from_bytes(data[at : at + 8], "big") for at in range(0, len(data), 8))
        self._put(newcomer, wire.encode(StateGiven(newcomer, clocks)))
        del self.owed[newcomer]
        self._given.add(newcomer)
        self._kernel.sent -= len(clocks)  # they are not multicasts of the application
        self._kernel.stage(Input.STATE_GIVEN, newcomer, data)

    def _sent(self, dests: int, clock: int) -> None:
        self.tally.count_sent(dests)
        if self.owed and not dests >> self._me & 1:
            for owed in self.owed.values():
                add_clock(owed.contained, self._me, clock)

    def _hand_over(self, sender: int, clock: int, payload: bytes, history: str) -> None:
        """Number a delivery for the application, or keep it back."""
        self.tally.delivered[sender] += 1
        if self.awaited is not None:  # keep it back until the application has the state that it begins with
            self.awaited.withheld.append(Delivery(0, sender, clock, payload, history))
            self._count_withheld(self.awaited.withheld[-1], 1)
            if self.awaited.clocks:
                self._begin_if_arrived(self.awaited)
        elif not self.contained or not self.is_contained(sender, clock):
            (self._number if self.owed else self._kernel.number)(sender, clock, payload, history)

    def _number(self, sender: int, clock: int, payload: bytes, history: str) -> None:
        kernel = self._kernel
        kernel.number(sender, clock, payload, history)
        for owed in self.owed.values():
            owed.hand_over(kernel.unacknowledged[kernel.delivered], kernel.unacknowledged)

    # News from others.

    def _hear_asked(self, link: int, news: StateAsked) -> None:
        newcomer = news.index
        self._kernel.members.check_known(link, newcomer)
        if newcomer == self._me:
            if self.awaited is None and not self.has_begun:
                raise RemoteProtocolError(
                    f"process {link} is to send the application's state, and we do not wait for it: start "
                    "this node anew, with state_from"
                )
        elif newcomer == link:
            if link not in self.owed and link not in self._given:
                raise RemoteProtocolError(
                    f"process {link} waits for our application's state, and we owe it none: admit it at a "
                    "node with Node(state=…)"
                )
        else:
            self._put(link, wire.encode(StateTally(newcomer, self.tally.sent[link])))

    def _hear_tally(self, link: int, news: StateTally) -> None:
        owed = self.owed.get(news.index)
        if owed is not None and link in owed.asked:
            owed.asked.discard(link)
            owed.due[link] = news.sent

    def _joined(self, index: int) -> None:
        """Another process begins under this index: drop what we know of the index's earlier owner."""
        self.tally.forget(index)
        self.contained.pop(index, None)
        self._given.discard(index)

    def _left(self, index: int) -> None:
        self.owed.pop(index, None)

    # At the newcomer.

    def wait_for(self, source: int) -> None:
        """Begin with the state that process `source` gives: nothing is delivered before it."""
        self.awaited = Awaited(source)
        self._put(source, wire.encode(StateAsked(self._me)))
        self._kernel.stage(Input.STATE_AWAITED, source)

    def _hear_given(self, link: int, news: StateGiven) -> None:
        """A process says which of its messages are the state that we wait for."""
        awaited = self.awaited
        if news.index != self._me or awaited is None or link != awaited.source or awaited.clocks:
            raise RemoteProtocolError(f"process {link} gives a state that nobody waits for")
        awaited.clocks = news.clocks
        try:
            self._begin_if_arrived(awaited)
        except RemoteProtocolError:
            awaited.clocks = ()  # those messages are not a state
            raise

    def _begin_if_arrived(self, awaited: Awaited) -> None:
        """If all of the state is here, hand it over, then deliveries kept back that it does not contain."""
        parts = {each.clock: each.payload for each in awaited.withheld if awaited.is_part(each)}
        if len(parts) < len(awaited.clocks):
            return
        data = b"".join(parts[clock] for clock in awaited.clocks)
        end = 4 + int.from_bytes(data[:4], "big")
        try:
            contained = {
                int(key): [[int(first), int(last)] for first, last in sorted(stretches)]
                for key, stretches in json.loads(data[4:end]).items()
            }
        except (ValueError, TypeError, AttributeError) as error:
            raise RemoteProtocolError(f"process {awaited.source} gave no state that can be read") from error
        for each in awaited.withheld:
            self._count_withheld(each, -1)
        self.awaited, self.has_begun, self.contained = None, True, contained
        self._number(awaited.source, STATE_CLOCK, data[end:], "")
        for each in awaited.withheld:
            if not awaited.is_part(each) and not self.is_contained(each.sender, each.clock):
                self._number(*each[1:])

    def _count_withheld(self, delivery: Delivery, times: int) -> None:
        """Count a delivery kept back as held, where pausing its link makes progress."""
        kernel = self._kernel
        if kernel.counts_held and delivery.sender in kernel.links.held:
            kernel.links.count_held(delivery.sender, times)
            kernel.held_bytes += times * len(delivery.payload)

    def is_contained(self, sender: int, clock: int) -> bool:
        stretches = self.contained.get(sender)
        if stretches is None:
            return False
        at = bisect_right(stretches, clock, key=itemgetter(0)) - 1
        return at >= 0 and clock <= stretches[at][1]

    # Snapshots.

    def state(self) -> tuple[dict[str, Any], list[bytes]]:
        """The entries of a snapshot's header, and the payloads that are kept back."""
        tally = [sorted(self.tally.sent.items()), sorted(self.tally.delivered.items())]
        head: dict[str, Any] = {"tally": tally}
        if self.owed:
            head["owed"] = {
                index: [sorted(o.asked), sorted(o.due.items()), list(o.delivered.items()), o.contained]
                for index, o in self.owed.items()
            }
        if self._given:
            head["given"] = sorted(self._given)
        if self.has_begun:
            head["begun"] = self.contained
        if self.awaited is None:
            return head, []
        withheld = self.awaited.withheld
        kept = [[each.sender, each.clock, len(each.payload), each.history] for each in withheld]
        head["awaited_state"] = [self.awaited.source, self.awaited.clocks, kept]
        return head, [each.payload for each in withheld]

    def restore(self, head: Mapping[str, Any], take: Take) -> None:
        self.tally.restore(*head["tally"])
        self.owed = {}
        for index, (asked, due, names, contained) in head.get("owed", {}).items():
            self.owed[int(index)] = owed = Owed(asked, dict(due))
            owed.delivered = {number: (sender, clock) for number, (sender, clock) in names}
            owed.contained = {int(key): stretches for key, stretches in contained.items()}
        self._given = set(head.get("given", ()))
        self.has_begun = "begun" in head
        self.contained = {int(key): stretches for key, stretches in head.get("begun", {}).items()}
        self.awaited = None
        if "awaited_state" in head:
            source, clocks, kept = head["awaited_state"]
            self.awaited = Awaited(source)
            self.awaited.clocks = tuple(clocks)
            self.awaited.withheld = [
                Delivery(0, sender, clock, take(length), history) for sender, clock, length, history in kept
            ]
            for each in self.awaited.withheld:
                self._count_withheld(each, 1)
