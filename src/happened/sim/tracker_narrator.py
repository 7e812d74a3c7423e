"""Describes step by step what trackers do, under any driver: P1, P2, P3 of Hélary, Melideo & Raynal (2000),
and every other tracker as far as it shows its state.

In     each relevant event, each send and each receipt, after the tracker has handled it
Out    one Scene per step: which entries a message carried and which were left out, what each process
       remembers afterwards, the timestamp of each relevant event and its immediate predecessors
Rules  The effects of R1 and R3 are the differences between the remembered state before and after. Why R2 may
       leave an entry out is derived from the events alone, for example because the causal past has a message
       of the receiver that was sent when the receiver knew the entry (`_why_known`).
Judged A timestamp that differs from the one derived from the events is reported as WRONG.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.telling import RuleUse
from ..ordering import notation
from ..ordering.machine import MessageKey
from ..tracking import EventId, Piggybacked, Timestamp, TrackerMachine, bound_of, vectors
from ..tracking.piggyback import PiggybackEntry, View, row
from .scenes import ARRIVE, EVENT, REFUSED, SEND, Narration, Scene, by_destination

Entry = tuple[int, int | None]
"""What is known of a process: the number of its relevant events; IP, 1 if the last has no successor."""


class TrackerNarrator(Narration):
    def __init__(
        self,
        protocol: str,
        trackers: Sequence[TrackerMachine],
        now: Callable[[], float | None] = lambda: None,  # virtual time in seconds
    ) -> None:
        super().__init__(now)
        self._trackers = trackers
        self._bound = bound_of(protocol)
        self._views = [tracker.view() for tracker in trackers]  # each after its last step
        self._truth = _RelevantTruth(len(trackers))
        self._stamps: list[Timestamp] = []
        self._told_to: dict[tuple[int, int, int], tuple[Entry, MessageKey]] = {}  # (from, to, about)
        self._sent_at: dict[MessageKey, int] = {}  # the number of the sending scene

    def event(self, process: int, stamp: Timestamp, forced_by: Sequence[RuleUse] = ()) -> Scene:
        """A relevant event has happened, or a null event, for the reasons in `forced_by`."""
        event = process, stamp.seq
        before, after = self._turn(process)
        immediate = self._truth.event(event)
        self._stamps.append(stamp)
        rules = [*forced_by, *([] if after is None else _stamped(event, stamp, before, after))]
        if stamp.immediate is None:
            why = "its immediate predecessors by the events, which this tracker does not tell"
            rules.append(RuleUse(_name(event), f"follows {_names(immediate)}", "", why))
        return self._scene(
            process,
            kind=EVENT,
            what=f"{'null ' if stamp.null else ''}event {_name(event)} at {process}",
            name=event,
            follows=tuple(sorted(immediate)),
            wrong=self._faults(event, stamp, immediate),
            rules=tuple(rules),
        )

    def sent(self, process: int, clock: int, piggybacks: Mapping[int, Piggybacked]) -> Scene:
        """A message has been sent with these piggybacks by destination; a null event comes first."""
        key = process, clock
        before = self._views[process]
        for piggyback in piggybacks.values():
            if piggyback.forced is not None and before is not None:
                due = _due(before, [*piggybacks])
                why = f"{due} entries are due, and a message carries at most {self._bound}"
                forced = RuleUse(_name((process, piggyback.forced.seq)), "is a null event", "R2", why)
                self.event(process, piggyback.forced, [forced])
        _, after = self._turn(process)
        self._truth.send(key)
        self._sent_at[key] = len(self.scenes) + 1
        rules, carried = [], []
        for to, piggyback in piggybacks.items():
            entries = self._trackers[process].carried(piggyback)
            carried.append((to, _carried_text(piggyback, entries)))
            if after is not None and entries is not None and after.knows is not None:
                rules += self._chosen(key, to, after, entries)
        return self._scene(
            process,
            kind=SEND,
            what=f"{process} sends {notation.key_name(key)}→{notation.dests(piggybacks)}",
            name=key,
            to=tuple(piggybacks),
            carried=by_destination(carried),
            rules=tuple(rules),
        )

    def received(self, process: int, key: MessageKey, piggyback: Piggybacked) -> Scene:
        """A process has taken in a message, in the order in which its application gets messages."""
        before, after = self._turn(process)
        self._truth.receive(process, key)
        entries = self._trackers[process].carried(piggyback)
        rules: tuple[RuleUse, ...] = ()
        if before is not None and after is not None and entries is not None:
            rules = tuple(told for each in entries for told in _merged(key[0], each, before, after))
        name = notation.key_name(key)
        return self._scene(
            process,
            kind=ARRIVE,
            what=f"{process} receives {name}",
            name=key,
            source=key[0],
            departed=self._sent_at.get(key),
            arrival=name,
            taken=(name,),
            delivered=(key,),
            rules=rules,
        )

    def refused(self, process: int, what: str) -> Scene:
        return self._scene(process, kind=REFUSED, what=what)

    def _turn(self, process: int) -> tuple[View | None, View | None]:
        """What a process remembered after its last step, and what it remembers now."""
        before = self._views[process]
        self._views[process] = self._trackers[process].view()
        return before, self._views[process]

    def _scene(self, process: int, **told: Any) -> Scene:
        known = tuple(_remembered(self._trackers[process], self._views[process]))
        return self._tell(process=process, known=known, **told)

    def _chosen(
        self, key: MessageKey, to: int, view: View, entries: Sequence[PiggybackEntry]
    ) -> list[RuleUse]:
        """Which of the sender's entries R2 sends to this destination, and which it leaves out."""
        process, _ = key
        assert view.knows is not None
        carried, told = {each.process for each in entries}, []
        for k, count in enumerate(view.counts):
            if not count:
                continue
            entry, mark = view.entry(k), f"M[{to},{k}] = {view.knows[to][k]}"
            if k in carried:
                told.append(RuleUse(_entry(k, entry), f"carried to {to}", "R2", f"{mark}, {to} may lack it"))
                self._told_to[process, to, k] = entry, key
            else:
                why = self._why_known(process, to, k, entry, on_its_way=not view.knows[to][k])
                rule, reason = ("R2", f"{mark}, {why}") if why else ("", f"{mark}, and no event tells why")
                told.append(RuleUse(_entry(k, entry), f"left out for {to}", rule, reason, (to,)))
        return told

    def _why_known(self, process: int, to: int, k: int, entry: Entry, *, on_its_way: bool) -> str:
        """The event which shows that `to` has, or will have, this entry; empty if none does."""
        if on_its_way:
            sent = self._told_to.get((process, to, k))
            return f"it is on its way in {notation.key_name(sent[1])}" if sent and sent[0] == entry else ""
        if k == to and entry[1] != 0:
            return "it is its own event"
        last = self._truth.last_event(process)
        if self._bound is not None and last is not None and (k, entry[0]) in self._truth.before(last):
            return f"it is before {_name(last)}, which stands for it"
        if (known_at := self._truth.knew(process, to, k, entry)) is not None:
            return f"{to} knew it when it sent {notation.key_name(known_at)}"
        return ""

    def _faults(self, event: EventId, stamp: Timestamp, immediate: frozenset[EventId]) -> tuple[str, ...]:
        """The faults in a timestamp, compared with the events."""
        counts = self._truth.counts(event)
        faults = []
        if stamp.counts is not None and stamp.counts != counts:
            faults.append(f"WRONG: its vector is {row(counts)}, not {row(stamp.counts)}")
        if stamp.immediate is not None and stamp.immediate != immediate:
            faults.append(f"WRONG: it follows {_names(immediate)}, not {_names(stamp.immediate)}")
        if stamp.dependencies is not None and (found := vectors(self._stamps)[event]) != counts:
            faults.append(f"WRONG: its vector is {row(counts)}; the dependencies give {row(found)}")
        return tuple(faults)


def _stamped(event: EventId, stamp: Timestamp, before: View | None, after: View) -> list[RuleUse]:
    """The effects of R1 at a relevant event."""
    process, seq = event
    told = []
    if stamp.immediate is not None:
        why = "its immediate predecessors, the k with IP[k] = 1"
        told.append(RuleUse(_name(event), f"follows {_names(stamp.immediate)}", "R1", why))
    vector = stamp.counts if stamp.counts is not None else stamp.dependencies
    if vector is not None:
        told.append(
            RuleUse(_name(event), f"gets {row(vector)}", "R1", f"{after.title}[{process}] becomes {seq}")
        )
    if after.immediate is not None and before is not None and after.immediate != before.immediate:
        why = f"{_name(event)} comes after all that was known"
        told.append(RuleUse("IP", f"becomes {row(after.immediate)}", "R1", why))
    if before is not None and before.knows is not None and after.knows is not None:
        told += _columns(event, before, after)
    return told


def _columns(event: EventId, before: View, after: View) -> list[RuleUse]:
    """The columns of M that a relevant event has changed."""
    process, told = event[0], []
    assert before.knows is not None and after.knows is not None
    for k in range(len(after.counts)):
        others = [j for j in range(len(after.counts)) if before.knows[j][k] != after.knows[j][k]]
        if not others:
            continue
        value = after.knows[others[0]][k]
        if value:
            why = f"{_name(event)} stands for what came before it"
        elif k == process:
            why = f"nobody else can know of {_name(event)}"
        else:
            why = f"nobody else can know that {_name((k, after.counts[k]))} has a successor"
        told.append(
            RuleUse(f"M[·,{k}]", f"becomes {value} for {notation.dests(others)}", "R1", why, tuple(others))
        )
    return told


def _merged(sender: int, each: PiggybackEntry, before: View, after: View) -> list[RuleUse]:
    """The effects of R3 for one entry of a message."""
    k, had = each.process, before.entry(each.process)
    if not each.value and not had[0]:
        return []  # an entry in a whole vector for a process without events
    name = _entry(k, each.entry)
    if _weight(each.entry) > _weight(had):
        why = f"{after.title}[{k}] was {had[0]}"
        why += "" if had[1] is None or had[0] != each.value else f", with IP[{k}] = {had[1]}"
        if after.knows is not None:
            lacking = [j for j, known in enumerate(after.knows) if not known[k]]
            why += f"; M[·,{k}] is 0 for {notation.dests(lacking)}" if lacking else ""
        return [RuleUse(name, "is newer", "R3", why)]
    if _weight(each.entry) == _weight(had):
        why = "nothing changes" if after.knows is None else f"M[{sender},{k}] = 1, {sender} has it too"
        return [RuleUse(name, "is known", "R3", why)]
    return [RuleUse(name, "is older", "R3", f"{_entry(k, had)} stays")]


def _weight(entry: Entry) -> int:
    """A larger weight is newer: the count decides, and of equal counts the smaller IP."""
    count, immediate = entry
    return 2 * count - (immediate or 0)


def _due(view: View, to: Sequence[int]) -> int:
    """The largest number of entries that a message to one of these destinations must carry."""
    assert view.knows is not None
    way = view.on_its_way
    return max(
        sum(not known and not (way and way[j][k]) for k, known in enumerate(view.knows[j])) for j in to
    )


def _remembered(tracker: TrackerMachine, view: View | None) -> list[tuple[str, str]]:
    if view is not None:
        return view.lines()
    state = json.loads(tracker.snapshot())
    plain = {name: value for name, value in state.items() if name not in ("protocol", "version", "me", "n")}
    return [(name.replace("_", " "), json.dumps(value)) for name, value in plain.items()]


def _carried_text(piggyback: Piggybacked, entries: Sequence[PiggybackEntry] | None) -> str:
    if entries is None:
        count = piggyback.entries
        return f"{count} {'entry' if count == 1 else 'entries'} in {piggyback.bits} bits"
    return " ".join(map(str, entries)) or "nothing"


def _name(event: EventId) -> str:
    return f"({event[0]},{event[1]})"


def _names(events: frozenset[EventId]) -> str:
    return " ".join(map(_name, sorted(events))) or "nothing"


def _entry(k: int, entry: Entry) -> str:
    return str(PiggybackEntry(k, *entry))


class _RelevantTruth:
    """Which process knows of which relevant events and sends, as sets, without control information."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._past: list[set[Any]] = [set() for _ in range(n)]  # ("event", e) and ("send", key)
        self._before: dict[Any, frozenset[Any]] = {}  # per member of `_past`, what happened before it

    def event(self, event: EventId) -> frozenset[EventId]:
        """Record an event; returns its immediate predecessors."""
        past = self._past[event[0]]
        self._before["event", event] = frozenset(past)
        events = {what for kind, what in past if kind == "event"}
        covered = {e for other in events for e in self.before(other)}
        past.add(("event", event))
        return frozenset(events - covered)

    def send(self, key: MessageKey) -> None:
        past = self._past[key[0]]
        self._before["send", key] = frozenset(past)
        past.add(("send", key))

    def receive(self, process: int, key: MessageKey) -> None:
        self._past[process] |= self._before["send", key] | {("send", key)}

    def before(self, event: EventId) -> set[EventId]:
        return {what for kind, what in self._before["event", event] if kind == "event"}

    def last_event(self, process: int) -> EventId | None:
        own = [what for kind, what in self._past[process] if kind == "event" and what[0] == process]
        return max(own, default=None)

    def counts(self, event: EventId) -> tuple[int, ...]:
        """Per process, how many of its events are in the past of this event, itself included."""
        counted = [0] * self._n
        for process, _ in {*self.before(event), event}:
            counted[process] += 1
        return tuple(counted)

    def knew(self, process: int, other: int, k: int, entry: Entry) -> MessageKey | None:
        """The first message in this process's past that another process sent when it knew this entry; None if
        there is none."""
        sends: list[MessageKey] = [what for kind, what in self._past[process] if kind == "send"]
        for key in sorted(key for key in sends if key[0] == other):
            events = {what for kind, what in self._before["send", key] if kind == "event"}
            if entry[1] is None and (k, entry[0]) in events:
                return key
            if entry[1] is not None and self._entry(events, k) == entry:
                return key
        return None

    def _entry(self, events: set[EventId], k: int) -> Entry:
        last = max((seq for process, seq in events if process == k), default=0)
        followed = any((k, last) in self.before(event) for event in events)
        return last, int(last > 0 and not followed)
