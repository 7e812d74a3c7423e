"""The codecs of the causal and incomplete orders except `ks`: the fields of their messages, in order.

Functions that write and read one particular field stand above the codec that uses them.
"""

from functools import lru_cache
from typing import Any

from ..core.destinations import pack, unpack
from ..core.errors import RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT, lanes
from ..ordering.causal.acknowledged import AcknowledgedMessage, Acknowledgement
from ..ordering.causal.bss import BssMessage, GroupsMessage
from ..ordering.causal.cbcast import CbcastAcknowledgement, CbcastMessage
from ..ordering.causal.chain_two import ChainTwoMessage
from ..ordering.causal.flooding import FloodingMessage
from ..ordering.causal.histories import HistoryMessage
from ..ordering.causal.incomplete import LABEL_BYTES, PRIORITIES, LabelledMessage, ManagedMessage, Preceding
from ..ordering.causal.kim import KimMessage
from ..ordering.causal.phased import PhasedMessage, Resynchronisation
from ..ordering.causal.prs import PrsMessage
from ..ordering.causal.pruning import PruningMessage
from ..ordering.causal.psync import PsyncMessage
from ..ordering.causal.rst import RstMessage
from ..ordering.causal.serialized_sends import NOTHING, SerializedBroadcast, SerializedMulticast
from ..ordering.causal.ses import SesMessage
from ..ordering.causal.topological import HopMessage
from ..ordering.causal.zoned_ks import ZonedMessage
from ..ordering.facts import FEW_PROCESSES, MANY_PROCESSES
from ..ordering.messages import WholeMessage
from .envelope import Codec, Field, Kind, single
from .fields import (
    ANYBODY,
    BYTES,
    CLOCK,
    COLUMNS,
    PROCESS,
    SET,
    VECTOR,
    behind,
    by_process,
    each,
    entries,
    number,
    read_below,
    record,
    write_below,
)
from .primitives import Reader, unzigzag, write_number, write_set, zigzag
from .rows import check_rows, read_entries, read_rows, rows_of, write_entries, write_rows

BSS = single(BssMessage, past=VECTOR)
KIM = single(KimMessage, direct=VECTOR)
PRS = single(PrsMessage, before=COLUMNS)
RST = single(RstMessage, sent=COLUMNS)
FLOODING = single(FloodingMessage, relay=PROCESS)
HISTORIES = single(HistoryMessage, entries=entries("clock"))
TOPOLOGICAL = single(
    HopMessage,
    {"relay": PROCESS, "hop": CLOCK, "next": SET, "watching": SET},
    entries=entries("hop"),
)
ZONED_KS = single(ZonedMessage, {"relay": PROCESS}, hop=FEW_PROCESSES)
"""The log of a hop may be as large as the square of its zone's members, so their number is limited."""


ACKNOWLEDGED = Codec(
    Kind(
        AcknowledgedMessage,
        receiver=Field(lambda *_: None, lambda _, about: about.dests.bit_length() - 1),
        check=(lambda m: m.dests.bit_count() == 1, "has several destinations in a unicast protocol"),
    ),
    Kind(Acknowledgement),
)


def _write_groups(out: bytearray, group: int, about: Any) -> None:
    """Write the number of groups, and the group that the message is for."""
    write_number(out, len(about.pasts))
    write_number(out, group)


def _read_group(reader: Reader, about: Any) -> int:
    about.groups = reader.number(reader.left + 1)  # a vector takes at least one byte
    return reader.number(about.groups)


def _write_pasts(out: bytearray, pasts: tuple[int, ...], about: Any) -> None:
    for past in pasts:
        VECTOR.write(out, past, about)


BSS_GROUPS = single(
    GroupsMessage,
    group=Field(_write_groups, _read_group),
    pasts=Field(_write_pasts, lambda r, about: tuple(VECTOR.read(r, about) for _ in range(about.groups))),
)


def _write_carried(out: bytearray, carried: WholeMessage, about: Any) -> None:
    write_number(out, carried.sender)
    write_number(out, carried.clock)
    write_set(out, carried.dests, about.n)
    write_number(out, len(carried.payload))
    out += carried.payload


def _read_carried(reader: Reader, about: Any) -> WholeMessage:
    sender, clock, dests = reader.number(about.n), reader.number(CLOCK_LIMIT), reader.set(about.n)
    if not clock or not dests:
        raise RemoteProtocolError(f"a carried M({sender}, {clock}) lacks a clock or a destination")
    return WholeMessage(sender, clock, dests, reader.take(reader.number(reader.left + 1)))


CBCAST = Codec(
    Kind(
        CbcastMessage,
        stable=each(CLOCK, lambda _, about: int(about.n)),
        past=each(Field(_write_carried, _read_carried)),
    ),
    Kind(CbcastAcknowledgement, by=ANYBODY),
)


CHAIN_TWO = single(
    ChainTwoMessage,
    {"receiver": PROCESS},
    sent=VECTOR,
    due=VECTOR,
    check=(lambda m: m.dests >> m.receiver & 1, "is a copy for process {receiver}, not a destination"),
)

MAX_GROUPS = 1 << 16
GROUP = number(lambda r, _: r.number(MAX_GROUPS))


def _read_phase(reader: Reader, about: Any) -> int:
    phase: int = about.previous + 1 + reader.number(CLOCK_LIMIT)
    if phase >= CLOCK_LIMIT:
        raise RemoteProtocolError(f"a resynchronisation has phase {phase}")
    return phase


PHASED = Codec(
    Kind(
        PhasedMessage,
        {"group": GROUP},
        previous=CLOCK,
        phases=each(CLOCK, lambda r, _: min(MAX_GROUPS, r.left)),
        check=(
            lambda m: m.group < len(m.phases) and m.previous < m.phases[m.group],
            "has no phase in its own group",
        ),
    ),
    Kind(
        Resynchronisation,
        {"group": GROUP},
        previous=CLOCK,
        phase=Field(lambda out, phase, m: write_number(out, phase - m.previous - 1), _read_phase),
    ),
)


@lru_cache(maxsize=1)
def _encoded_ci(ci: tuple[Any, ...], clock: int, n: int) -> bytes:
    """The encoded CI, which is the same for every destination of a multicast."""
    out = bytearray()
    write_rows(out, rows_of(ci), clock, n)
    return bytes(out)


def _write_ci(out: bytearray, ci: tuple[Any, ...], about: Any) -> None:
    out += _encoded_ci(ci, about.clock, about.n)


def _read_ci(reader: Reader, about: Any) -> tuple[Any, ...]:
    sender, clock = about.sender, about.clock
    rows = read_rows(reader, clock, about.n)
    if not about.dests >> about.receiver & 1 or (sender in rows and rows[sender][0][0] >= clock):
        raise RemoteProtocolError(f"M({sender}, {clock}) is not for its receiver, or not its sender's last")
    check_rows(rows, about.dests, about.n)  # its own entry is not among them, so no row is exempt
    return tuple((s, t, members) for s, row in rows.items() for t, members in reversed(row))


def _newest(about: Any) -> dict[int, int]:
    """Per sender in CI, the clock of its newest entry, which stays even if its set is empty."""
    return {s: t for s, t, _ in about.ci}


def _write_dc(out: bytearray, dc: tuple[Any, ...], about: Any) -> None:
    """Write each pair's clock as its distance below the sender's newest clock in CI."""
    newest = _newest(about)
    write_set(out, pack(s for s, _ in dc), about.n)
    for s, t in dc:
        write_number(out, newest[s] - t)


def _read_dc(reader: Reader, about: Any) -> tuple[Any, ...]:
    newest = _newest(about)
    return tuple((s, newest[s] - reader.number() if s in newest else 0) for s in unpack(reader.set(about.n)))


PRUNING = single(
    PruningMessage,
    {"receiver": PROCESS},
    ci=Field(_write_ci, _read_ci),
    dc=Field(_write_dc, _read_dc),
    check=(
        lambda m: all(clock > 0 for _, clock in m.dc),
        "waits for a message its sender cannot know",
    ),
)


_around = Field(
    lambda out, clock, about: write_number(out, zigzag(about.clock - clock)),
    lambda r, about: about.clock - unzigzag(r.number()),
)
PSYNC = single(
    PsyncMessage,
    context=by_process(_around),
    check=(
        lambda m: all(0 < clock < CLOCK_LIMIT for _, clock in m.context),
        "follows a message without a clock",
    ),
)


def _write_broadcast_before(out: bytearray, after: tuple[int, int], about: Any) -> None:
    """Write the clock's distance below the message's own, and its sender; distance 0 without sender: none."""
    clock, sender = after
    write_number(out, about.clock - clock if clock else 0)
    if clock:
        write_number(out, sender)


def _read_broadcast_before(reader: Reader, about: Any) -> tuple[int, int]:
    lag = reader.number(about.clock)
    return (about.clock - lag, reader.number(about.n)) if lag else NOTHING


SERIALIZED_BROADCAST = Codec(
    Kind(SerializedBroadcast, after=Field(_write_broadcast_before, _read_broadcast_before))
)

_beyond_one = Field(  # a clock: how far it is behind beyond one
    lambda out, clock, about: write_number(out, about.clock - clock - 1),
    lambda r, about: about.clock - 1 - r.number(about.clock - 1),
)
SERIALIZED_MULTICAST = single(SerializedMulticast, latest=by_process(record(_beyond_one, PROCESS)))


_below_time = Field(
    lambda out, time, about: write_below(out, time, about.n, about.time),
    lambda r, about: read_below(r, about.n, about.time),
)
SES = single(
    SesMessage,
    time=VECTOR,
    pairs=by_process(_below_time),
    check=(
        lambda m: lanes(m.n).get(m.time, m.sender) == m.clock,
        "was sent at another time of its sender",
    ),
)


def _read_label(reader: Reader, _: Any) -> str:
    text = reader.take(reader.number(LABEL_BYTES + 1))
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"a label is not text in UTF-8: {text!r:.50}") from error


def _write_causes(out: bytearray, causes: tuple[Preceding, ...], about: Any) -> None:
    """Write the entries; then 0 if all have the message's priority, else 1 and the priority of each entry."""
    write_entries(out, [cause.entry for cause in causes], about.clock, about.n)
    several = any(cause.priority != about.priority for cause in causes)
    out.append(several)
    for cause in causes if several else ():
        PRIORITY.write(out, cause.priority, about)


def _read_causes(reader: Reader, about: Any) -> tuple[Preceding, ...]:
    found = read_entries(reader, about.clock, about.n)
    several = reader.byte()
    return tuple(
        Preceding(*entry, PRIORITY.read(reader, about) if several else about.priority) for entry in found
    )


LABEL = Field(lambda out, label, about: BYTES.write(out, label.encode(), about), _read_label)
PRIORITY = Field(
    lambda out, priority, _: write_number(out, zigzag(priority)),
    lambda r, _: unzigzag(r.number(PRIORITIES)),
)
INCOMPLETE = Codec(
    Kind(LabelledMessage, {"label": LABEL}, hop=MANY_PROCESSES),
    Kind(
        ManagedMessage,
        {"priority": PRIORITY, "previous": behind(lambda about: about.clock + 1)},
        causes=Field(_write_causes, _read_causes),
    ),
)
