"""Describes step by step what the machines of an ordering protocol do, under any driver.

In     each multicast and each arrival, after the machine has handled it
Out    one Scene per step: what messages carried, which messages are held and why, what is passed on, what
       each process remembers afterwards, and the rule by which it forgot, or left out, each entry
Rules  A protocol whose paper numbers its rules records them itself (`RecordsRules`). Why a log of units drops
       a unit is derived from the events alone, not told by the machine: a unit (s, t, d) is redundant once
       the delivery of M(s,t) at d is in the causal past (Propagation Constraint 1 of Kshemkalyani & Singhal
       1998), or a message to d sent causally after M(s,t) is (Propagation Constraint 2). Jang et al. (1997)
       call these *delivered* and *replaced*; *just*, if the process itself does it in this step (delivers at
       d, or sends a later message); *already*, if the process learns, or knew, that it was done.
Hops   If relayed messages have a name of their own on each stretch (`NamesHops`), the units are about hops,
       and each part of the system (a zone) has a causal order of its own hops.
Wrong  names violations of the judged order; overtaking that this order allows is reported separately.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..core.destinations import pack, unpack
from ..core.effects import Deliver, Send
from ..core.orders import Order
from ..core.telling import RuleUse
from ..ordering import Effect, Machine, Unit, explaining, having, notation
from ..ordering.capabilities import RecordsRules
from ..ordering.explaining import hop_of
from ..ordering.machine import Held, Hop, MessageKey
from .programs import set_text
from .scenes import ARRIVE, REFUSED, SEND, Narration, Scene, by_destination
from .truth import disagreement, keeps


class Narrator(Narration):
    """`order`: the order to judge, by default the machines' promise. `tick`: deliveries advance clocks too,
    as in the worked example of the textbook chapter. `now`: returns virtual time in seconds."""

    def __init__(
        self,
        machines: Sequence[Machine],
        *,
        order: Order | None = None,
        tick: bool = False,
        now: Callable[[], float | None] = lambda: None,
    ) -> None:
        super().__init__(now)
        self._machines = machines
        self._order = machines[0].facts.order if order is None else order
        self._delivered: list[list[MessageKey]] = [[] for _ in machines]  # per process, in its order
        self._tick = tick
        self._truth = _Truth(notation.key_name)  # about application messages
        self._parts: dict[str, _Truth] = {}  # about hops, per part of the system (a zone)
        self._logs = [explaining.logs(machine) for machine in machines]  # each after its last step
        self._arrived: list[dict[str, Any]] = [{} for _ in machines]  # per process: arrived, not taken
        self._taken: list[set[str]] = [set() for _ in machines]
        self._refused: set[tuple[MessageKey, int]] = set()  # (message, process that refused a copy)
        self._flights: dict[tuple[int, int, int], tuple[int, Any]] = {}  # per copy: its scene and its message
        self._recorders = [having(machine, RecordsRules) for machine in machines]
        for recorder in self._recorders:
            if recorder is not None:
                recorder.observe()

    def sent(self, process: int, clock: int, to: int, effects: Sequence[Effect]) -> Scene:
        """A process has multicast M(process, clock) to the set `to`."""
        key = process, clock
        copies = self._depart(process, effects)
        own = [send for send in copies if (send.message.sender, send.message.clock) == key]
        what = f"{process} sends {notation.key_name(key)}→{set_text(to)}"
        away = bool(own) or to == 1 << process
        added = {"": frozenset((*key, d) for d in unpack(to))}
        return self._scene(
            process,
            effects,
            self._known_with(process, added, copies),
            kind=SEND,
            what=what if away else f"{what}, and keeps it back",
            name=key,
            to=tuple(unpack(to)),
            carried=self._carried(process, own),
            passed=self._passed(process, [send for send in copies if send not in own]),
        )

    def arrived(self, process: int, source: int, message: Any, effects: Sequence[Effect]) -> Scene:
        """A copy from `source` has arrived."""
        copies = self._depart(process, effects)
        name, hop = _arrival_name(self._machines[process], message, source)
        what = f"{process} receives {message_name(message)}"
        if hop is not None:
            what += f" from {source} in {notation.hop_name(hop.key)}"
        elif source != message.sender:
            what += f" from {source}"
        is_new = name not in self._taken[process] and name not in self._arrived[process]
        if message.to and is_new:
            self._arrived[process][name] = hop or message
        elif message.to:
            what += ", again"
        departed, _ = self._flights.get((source, process, id(message)), (None, None))
        return self._scene(
            process,
            effects,
            self._known_with(process, {}, copies),
            kind=ARRIVE,
            what=what,
            name=(message.sender, message.clock) if message.to else None,
            source=source,
            departed=departed,
            arrival=name if message.to and is_new else None,
            passed=self._passed(process, copies),
        )

    def refused(self, process: int, what: str, message: Any = None) -> Scene:
        """A process has refused to send, or to accept this message."""
        if message is not None:
            self._refused.add(((message.sender, message.clock), process))
        return self._scene(process, [], dict(self._logs[process]), kind=REFUSED, what=what)

    def undelivered(self) -> list[str]:
        """Each sent and undelivered message, with the destination and what that has done with it."""
        told = []
        for key, process in self._truth.undelivered():
            held = {message_name(each.message) for each in self._machines[process].pending()}
            name, why = notation.key_name(key), ""
            if (key, process) in self._refused:
                why = ", which refused it"
            elif name in held:
                why = ", which holds it"
            told.append(f"{name} at {process}{why}")
        return told

    def _depart(self, process: int, effects: Iterable[Effect]) -> list[Send[Any]]:
        copies = [effect for effect in effects if isinstance(effect, Send)]
        for to, message in copies:
            self._flights[process, to, id(message)] = len(self.scenes) + 1, message
        return copies

    def _known_with(
        self, process: int, added: dict[str, frozenset[Unit]], copies: Iterable[Send[Any]]
    ) -> dict[str, frozenset[Unit]]:
        """The units of each log before this step, plus the units of messages sent in it."""
        added = dict(added)
        for to, message in copies:
            hop = hop_of(self._machines[process], message, to)
            if hop is not None:
                added[hop.part] = added.get(hop.part, frozenset()) | {(*hop.key, d) for d in hop.to}
        return {part: units | added.get(part, frozenset()) for part, units in self._logs[process].items()}

    def _scene(
        self, process: int, effects: Sequence[Effect], known: dict[str, frozenset[Unit]], **told: Any
    ) -> Scene:
        machine = self._machines[process]
        delivered = [(effect.sender, effect.clock) for effect in effects if isinstance(effect, Deliver)]
        truths = {part: self._part(part) for part in known}
        earlier = {part: set(truth.past(process)) for part, truth in truths.items()}
        if told["kind"] == SEND:
            self._truth.send(told["name"], pack(told["to"]))
        wrong, allowed = self._judge(process, delivered)
        taken = self._take(process, machine.pending(), delivered, known)
        if told.get("arrival") not in (*taken, *self._arrived[process]):
            told["arrival"] = None  # it only passes here on its way to others
        self._send_hops(process, effects)
        if self._tick:
            for _ in delivered:
                machine.tick()
        after = self._logs[process] = explaining.logs(machine)
        recorder = self._recorders[process]
        rules = [] if recorder is None else recorder.observed()
        for part, units in known.items():
            where = f" of {part}" if len(known) > 1 else ""
            for unit in sorted(units - after.get(part, units)):
                rules.append(truths[part].why_redundant(process, unit, earlier[part], where))
        return self._tell(
            process=process,
            delivered=tuple(delivered),
            taken=tuple(taken),
            wrong=tuple(wrong),
            allowed=tuple(allowed),
            held=tuple(explaining.holds(machine)),
            rules=tuple(rules),
            known=tuple(explaining.knowledge(machine)),
            **told,
        )

    def _judge(self, process: int, delivered: Iterable[MessageKey]) -> tuple[list[str], list[str]]:
        """Record deliveries; returns the violations, and the overtaking that the order allows."""
        wrong, allowed = [], []
        for key in delivered:
            for late in self._truth.deliver(process, key):
                if keeps(self._order, late[0], key[0]):
                    wrong.append(f"OVERTAKING {notation.key_name(late)}")
                else:
                    allowed.append(f"overtaking {notation.key_name(late)}, as {self._order} order allows")
            if self._order.is_total:
                if why := disagreement(self._delivered, process, key, notation.key_name):
                    wrong.append(f"DISAGREEING: {notation.key_name(key)} comes {why}")
                self._delivered[process].append(key)
        return wrong, allowed

    def _part(self, part: str) -> "_Truth":
        return self._parts.setdefault(part, _Truth(notation.hop_name)) if part else self._truth

    def _take(
        self,
        process: int,
        pending: Iterable[Held],
        delivered: Iterable[MessageKey],
        known: dict[str, frozenset[Unit]],
    ) -> list[str]:
        """The arrivals that need not wait any more; adds the units that they carried to `known`."""
        machine, arrived = self._machines[process], self._arrived[process]
        held = {_arrival_name(machine, each.message, each.message.via)[0] for each in pending}
        names = {notation.key_name(key) for key in delivered}
        taken = []
        for name, what in list(arrived.items()):
            if name in held:
                continue
            del arrived[name]
            hop = what if isinstance(what, Hop) else None
            if hop is None and name not in names:
                continue
            taken.append(name)
            if hop is None and "" in known:
                known[""] |= what.units() | {(what.sender, what.clock, d) for d in what.to}
            elif hop is not None and hop.part in known:
                self._part(hop.part).deliver(process, hop.key)
                known[hop.part] |= hop.units | {(*hop.key, d) for d in hop.to}
        self._taken[process] |= {*taken, *names}
        return taken

    def _send_hops(self, process: int, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                hop = hop_of(self._machines[process], effect.message, effect.to)
                if hop is not None and hop.part:
                    self._part(hop.part).send(hop.key, pack(hop.to))

    def _carried(self, process: int, copies: Sequence[Send[Any]]) -> tuple[str, ...]:
        """What the copies of one message carry, listed by destination where the copies differ."""
        hops = [hop_of(self._machines[process], message, to) for to, message in copies]
        told = [
            (to, notation.carried(message, None if hop is None else hop.units) + _as_hop(hop))
            for (to, message), hop in zip(copies, hops, strict=True)
        ]
        return by_destination(told, tells_where=not all(hops))

    def _passed(self, process: int, copies: Iterable[Send[Any]]) -> tuple[str, ...]:
        """What an arrival made the machine send, one line per message."""
        by_name: dict[str, list[Send[Any]]] = {}
        for send in copies:
            by_name.setdefault(message_name(send.message), []).append(send)
        told = []
        for name, sends in by_name.items():
            to = notation.dests(send.to for send in sends)
            if sends[0].message.to:
                told += [f"passes on {name} to {to}, carrying {e}" for e in self._carried(process, sends)]
            else:
                told.append(f"also sends {name} to {to}")
        return tuple(told)


def _as_hop(hop: Hop | None) -> str:
    if hop is None:
        return ""
    noted = f", {notation.dests(hop.watching)} taking note" if hop.watching else ""
    return f"  (as {notation.hop_name(hop.key)} to {notation.dests(hop.to)}{noted})"


def message_name(message: Any) -> str:
    if message.to:
        return notation.key_name((message.sender, message.clock))
    return notation.described(message)


def _arrival_name(machine: Machine, message: Any, peer: int | None) -> tuple[str, Hop | None]:
    """The name of an arrived copy at its process, and the hop that brought it."""
    hop = hop_of(machine, message, peer)
    return (message_name(message) if hop is None else f"{notation.hop_name(hop.key)} {hop.part}".strip()), hop


class _Truth:
    """Which process knows of which sends and deliveries, as sets of events, without control information."""

    def __init__(self, name: Callable[[MessageKey], str]) -> None:
        self._name = name
        self._pasts: dict[int, set[Any]] = {}  # (key,) is a send; (key, d) its delivery at d
        self._to: dict[MessageKey, int] = {}
        self._past_of: dict[MessageKey, frozenset[Any]] = {}

    def past(self, process: int) -> set[Any]:
        return self._pasts.setdefault(process, set())

    def send(self, key: MessageKey, to: int) -> None:
        if key not in self._to:  # all copies of a hop are one send
            past = self.past(key[0])
            self._to[key], self._past_of[key] = to, frozenset(past)
            past.add((key,))

    def deliver(self, process: int, key: MessageKey) -> list[MessageKey]:
        """Record a delivery; returns the causally earlier messages to this process that it overtakes."""
        past, before = self.past(process), self._past_of.get(key, frozenset())
        overtaken = [
            event[0]
            for event in before
            if len(event) == 1 and self._to[event[0]] >> process & 1 and (event[0], process) not in past
        ]
        past |= before
        past |= {(key,), (key, process)}
        return sorted(overtaken)

    def undelivered(self) -> list[tuple[MessageKey, int]]:
        """Pairs of a message and a destination that has not delivered it."""
        sent = ((key, d) for key, to in sorted(self._to.items()) for d in unpack(to))
        return [(key, d) for key, d in sent if (key, d) not in self.past(d)]

    def why_redundant(self, process: int, unit: Unit, earlier: set[Any], where: str) -> RuleUse:
        source, clock, to = unit
        key, past = (source, clock), self.past(process)
        about = f"{source},{clock}:{{{to}}}{where}"
        if (key, to) in past:
            how = "just" if to == process and (key, to) not in earlier else "already"
            return RuleUse(about, "dropped", "PC1", f"{self._name(key)} is {how} delivered at {to}", (to,))
        later = [
            event[0]
            for event in past
            if len(event) == 1 and self._to[event[0]] >> to & 1 and (key,) in self._past_of[event[0]]
        ]
        if later:
            how = "just" if all(e[0] == process and (e,) not in earlier for e in later) else "already"
            reason = f"{how} replaced: {self._name(min(later))}, sent later to {to}, tells of it"
            return RuleUse(about, "dropped", "PC2", reason, (to,))
        return RuleUse(
            about, "dropped", "", "neither delivered nor replaced, as far as this process can know"
        )
