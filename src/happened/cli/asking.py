"""Answers the questions of `happened ask` about single events and requests."""

import argparse
import difflib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .. import ask
from ..ask import ChainStep, History, Occurrence, load
from ..ask.causes import ABOVE, DEEP, FIRST
from ..ask.critical import QUANTILES
from ..ask.history import is_answered, printable, why_too_large
from ..causality import Computation, Event
from ..causality.judgement import check_path
from ..causality.necessary import Unit
from ..causality.unit_life import PC1, UnitLife, unit_life
from ..core.errors import LocalProtocolError
from ..core.exit_codes import ExitCode
from ..view.texts import duration
from .startup import allow_pandas, spark_session
from .terminal import note, plain, print_answer

if TYPE_CHECKING:
    from ..spark.large_traces import LargeTrace

SHOWN = 20  # of what --json has all of
NEAREST = 50  # events of the past or future that are listed
ENDS = {ABOVE: "told above", FIRST: "the first event there", DEEP: "--depth shows more"}
CONES = {"past": ask.past, "future": ask.future}
WHERE = "where"


def is_for_spark(arguments: argparse.Namespace) -> bool:
    """Whether a question goes to Spark: if an option says so, otherwise by the size of the trace."""
    path = arguments.trace
    if is_answered(path):
        if arguments.master is not None:
            raise LocalProtocolError(
                f"{path} has the tables of an analysis, which are asked in this process; leave --master out"
            )
        return False
    return not arguments.local and (arguments.master is not None or why_too_large(path) is not None)


@contextmanager
def on_spark(arguments: argparse.Namespace) -> Iterator["LargeTrace"]:
    """The trace to ask on a session that ends with the question."""
    allow_pandas()
    from ..spark.large_traces import asked_on_spark

    with (
        spark_session(arguments.master, "asking", brief=True) as spark,
        asked_on_spark(spark, arguments.trace, arguments.work) as trace,
    ):
        yield trace


def history_about(arguments: argparse.Namespace, *names: str, past_only: bool = False) -> History:
    """The part of the trace that a question about these events needs."""
    if is_for_spark(arguments):
        with on_spark(arguments) as trace:
            return warned(trace.about(*names))
    return warned(load(arguments.trace, names, past_only=past_only, whatever_size=arguments.local))


def history_of_request(arguments: argparse.Namespace, request: str) -> tuple[History, str]:
    """The same for a question about a request; also returns the request's full name."""
    if is_for_spark(arguments):
        with on_spark(arguments) as trace:
            history, request = trace.about_request(request)
            return warned(history), request
    return warned(load(arguments.trace, whatever_size=arguments.local)), request


def warned(history: History) -> History:
    """Print what is missing in the trace, for every answer."""
    if history.quarantined:
        rows = "1 row is" if history.quarantined == 1 else f"{history.quarantined:,} rows are"
        note(f"happened: {rows} quarantined and not looked at; `happened check` says why")
    return history


class Clock:
    """Formats times: since the first of the events in an answer."""

    def __init__(self, events: Iterable[Occurrence]) -> None:
        self._begin = min((event.time for event in events if event.time is not None), default=0)

    def at(self, event: Occurrence) -> str:
        return "" if event.time is None else f"+{duration(event.time - self._begin)}"


EDGES = {
    "begin": "",
    "process": "then",
    "message": "its message arrived",
    "cause": "caused by that",
    "clock": "later by the clock of the process",
}


def chain_lines(steps: Sequence[ChainStep]) -> Iterator[str]:
    """One line for each event of a chain: when, which, how it came about."""
    tooks = ("" if step.took is None else f", {duration(step.took)}" for step in steps)
    hows = [
        f"  {EDGES[step.edge]}{took}" if step.edge != "begin" else ""
        for step, took in zip(steps, tooks, strict=True)
    ]
    yield from event_lines([step.event for step in steps], hows)


def event_lines(events: Sequence[Occurrence], hows: Sequence[str] | None = None) -> Iterator[str]:
    """Each event as a line: when, which, with its computation if there are several, and how it came about."""
    clock = Clock(events)
    several = len({event.computation for event in events}) > 1
    texts = [f"{printable(event.computation)}: {event}" if several else str(event) for event in events]
    times = [clock.at(event) for event in events]
    wide, far = max(map(len, times), default=0), max(map(len, texts), default=0)
    for time, text, how in zip(times, texts, hows or [""] * len(events), strict=True):
        when = f"{time:>{wide}}  " if wide else ""
        yield f"  {when}{text:<{far}}{how}".rstrip()


def _print(arguments: argparse.Namespace, answer: Any, lines: Iterable[str], **more: Any) -> None:
    """Print an answer; in JSON, events have their ids too."""

    def with_id(value: Any) -> dict[str, Any] | None:
        return {"event": value.id} | value._asdict() if isinstance(value, Occurrence) else None

    print_answer(arguments, lambda: plain(answer, with_id) | more, lines)


def why(arguments: argparse.Namespace) -> None:
    history = history_about(arguments, arguments.event, past_only=True)
    answer = ask.why(history, arguments.event, depth=arguments.depth)
    _print(arguments, answer, _why(answer))


def _why(answer: ask.Why) -> Iterator[str]:
    told = [answer.event, *(cause.event for cause in _every(answer.causes)), *(s.event for s in answer.late)]
    clock = Clock(told)
    yield f"{answer.event}  {clock.at(answer.event)}".rstrip()
    if answer.is_arrival:
        fate = (
            f"by {printable(answer.delivery.id)}; ask for that" if answer.delivery else "and this one was not"
        )
        yield f"its send is no cause of it: a message takes effect when it is delivered, {fate}"
    if not answer.causes:
        yield "nothing happened before it"
        return
    yield from _tree(answer.causes, clock, "")
    if answer.cut:
        yield "… and more, which are left out"
    if not answer.late:
        yield "\nwhy so late: it has no time"
        return
    first, last = answer.late[0].event, answer.late[-1].event
    yield f"\nwhy so late: {duration((last.time or 0) - (first.time or 0))} since {printable(first.id)}"
    yield from chain_lines(answer.late)


def _every(causes: tuple[ask.Cause, ...]) -> Iterator[ask.Cause]:
    for cause in causes:
        yield cause
        yield from _every(cause.causes)


def _tree(causes: tuple[ask.Cause, ...], clock: Clock, indent: str) -> Iterator[str]:
    for cause in causes:
        is_last = cause is causes[-1]
        yield f"{indent}{'└─' if is_last else '├─'}{'*' if cause.last else ' '}{_cause(cause, clock)}"
        yield from _tree(cause.causes, clock, indent + ("   " if is_last else "│  "))


def _cause(cause: ask.Cause, clock: Clock) -> str:
    how = {"process": "before it there", "message": "sent its message", "cause": "a cause of it"}[cause.edge]
    if cause.between:
        how += ", 1 event between" if cause.between == 1 else f", {cause.between:,} events between"
    if cause.waited is not None:
        how += f", {duration(cause.waited)} earlier"
    ends = f" ({ENDS[cause.end]})" if cause.end in ENDS else ""
    return "  ".join(filter(None, (str(cause.event), clock.at(cause.event), how))) + ends


def path(arguments: argparse.Namespace) -> None:
    history = history_about(arguments, arguments.first, arguments.second, past_only=True)
    answer = ask.path(history, arguments.first, arguments.second)
    reason = ("concurrent: " if answer.relation == "concurrent" else "") + printable(answer.reason)
    _print(arguments, answer, [reason, *chain_lines(answer.steps)])


def cone(arguments: argparse.Namespace) -> None:
    name = arguments.form
    history = history_about(arguments, arguments.event, past_only=name == "past")
    found = CONES[name](history, arguments.event)
    limit = arguments.limit or (found.num_rows if arguments.json else NEAREST)
    at = max(0, found.num_rows - limit) if name == "past" else 0
    listed = found.slice(at, limit)
    counted = {"events": found.num_rows, "processes": dict(_counts(found))}
    lines = _cone(name, arguments.event, found, listed)
    print_answer(arguments, lambda: counted | {"listed": listed.to_pylist()}, lines)


def _counts(found: pa.Table) -> Iterator[tuple[str, int]]:
    counts = found.group_by("process", use_threads=False).aggregate([([], "count_all")])
    yield from sorted(zip(counts["process"].to_pylist(), counts["count_all"].to_pylist(), strict=True))


def _cone(name: str, event: str, found: pa.Table, listed: pa.Table) -> Iterator[str]:
    many = "1 event" if found.num_rows == 1 else f"{found.num_rows:,} events"
    yield f"{many} in the {name} of {printable(event)}"
    for process, count in _counts(found):
        yield f"  {printable(process):<24} {count:>12,}"
    if not listed.num_rows:
        return
    yield ""
    names = ("computation", "process", "seq", "kind", "message", "label", "time")
    events = [Occurrence(*(row[each] for each in names)) for row in listed.to_pylist()]
    left = found.num_rows - len(events)
    if left and name == "past":
        yield f"  … {left:,} more before"
    yield from event_lines(events)
    if left and name == "future":
        yield f"  … {left:,} more after"


def influenced(arguments: argparse.Namespace) -> int:
    if arguments.clock_order and is_for_spark(arguments):
        raise LocalProtocolError(
            "--clock-order needs all computations in one process: give --local, which takes the memory that "
            "the trace takes, or a part of the trace"
        )
    history, request = history_of_request(arguments, arguments.request)
    answer = ask.influenced(history, request, direction=arguments.direction, by_clock=arguments.clock_order)
    _print(arguments, answer, _influences(answer, arguments.limit))
    return ExitCode.HOLDS if answer.requests > 1 else ExitCode.UNDECIDED


def _influences(answer: ask.Influences, limit: int) -> Iterator[str]:
    name = printable(answer.request) or "the computation without a name"
    others = answer.requests - 1
    if not others:
        yield f"undecided: {name} is the only request of the trace"
        return
    verb = "influenced it" if answer.direction == "past" else "it influenced"
    yield f"{name} ({answer.root}): {len(answer.others):,} of {others:,} other requests {verb}"
    for other in answer.others[:limit]:
        yield f"\n{printable(other.request)} ({other.root}), with {other.events:,} of its events:"
        yield from chain_lines(other.chain)
    if len(answer.others) > limit:
        yield f"\n… and {len(answer.others) - limit:,} more; --limit shows them"


def critical_path(arguments: argparse.Namespace) -> int:
    try:
        answer = _answer(arguments)
    except ask.NoTimes as error:
        note(f"happened: undecided: {error}")
        return ExitCode.UNDECIDED
    quantiles = {f"p{share * 100:g}": answer.quantile(share) for share in QUANTILES}
    _print(arguments, answer, _critical(answer), quantiles=quantiles)
    return ExitCode.HOLDS


def _answer(arguments: argparse.Namespace) -> ask.CriticalPath:
    if arguments.request is not None:
        history, request = history_of_request(arguments, arguments.request)
        return ask.critical_path(history, request, by=arguments.by)
    if is_for_spark(arguments):
        from ..spark.large_traces import critical_path as on_all

        with on_spark(arguments) as trace:
            return on_all(trace, arguments.by)
    history = warned(load(arguments.trace, whatever_size=arguments.local))
    return ask.critical_path(history, by=arguments.by)


def _critical(answer: ask.CriticalPath) -> Iterator[str]:
    slowest, requests = answer.slowest, len(answer.took)
    name = printable(slowest.request) or "the computation"
    if requests > 1:
        told = ", ".join(f"p{share * 100:g} {duration(answer.quantile(share))}" for share in QUANTILES)
        yield f"{requests:,} requests: {told}, slowest {duration(slowest.took)}"
        yield f"the slowest is {name}:"
    else:
        yield f"{name} took {duration(slowest.took)}:"
    yield from (*_segments(slowest.segments), "")
    yield from _shares(answer.shares, sum(answer.took), requests)
    if answer.untimed:
        yield f"{answer.untimed:,} requests have no two events with a time, and are left out"
    if answer.backwards:
        yield f"{answer.backwards:,} steps run backwards by the clocks, and count as nothing"


def _segments(segments: tuple[ask.Segment, ...]) -> Iterator[str]:
    wide = max(len(printable(segment.place)) for segment in segments)
    for segment in segments:
        ends = f"{segment.begin.id} … {segment.end.id}"
        labels = dict.fromkeys(filter(None, (segment.begin.label, segment.end.label)))
        about = f"  “{' … '.join(labels)}”" if labels else ""
        place = printable(segment.place)
        yield f"  {duration(segment.took):>9}  {place:<{wide}}  {printable(f'{ends}{about}')}"


def _shares(shares: tuple[ask.Share, ...], total: int, requests: int) -> Iterator[str]:
    wide = max(len(WHERE), *(len(printable(share.place)) for share in shares[:SHOWN]))
    on = f"{'requests':>10}" if requests > 1 else ""
    yield f"  {WHERE:<{wide}}{on}{'time':>12}{'share':>8}{'saved':>12}"
    for share in shares[:SHOWN]:
        part = f"{100 * share.took / total:.0f}%" if total else "–"
        saved = "–" if share.saved is None else duration(share.saved)
        count = f"{share.requests:>10,}" if requests > 1 else ""
        yield f"  {printable(share.place):<{wide}}{count}{duration(share.took):>12}{part:>8}{saved:>12}"
    if len(shares) > SHOWN:
        yield f"  … and {len(shares) - SHOWN:,} more; --json has them"


def diff(arguments: argparse.Namespace) -> None:
    with ThreadPoolExecutor(2) as two:  # reading waits for files, and computes outside of Python
        first, second = two.map(load, (arguments.first, arguments.second))
    answer = ask.diff(warned(first), warned(second))
    _print(arguments, answer, _difference(answer))


def _difference(answer: ask.Difference) -> Iterator[str]:
    common = f"{answer.common:,} events in common"
    if answer.is_empty:
        yield f"no difference: {common}, with the same causes"
        return
    yield common
    for run, events in ((1, answer.only_first), (2, answer.only_second)):
        yield from _some(f"{len(events):,} only in run {run}", [str(event) for event in events])
    for run, caused in ((1, answer.caused_first), (2, answer.caused_second)):
        told = [f"{each.cause}  →  {each.effect}  (in run {3 - run}: {each.instead})" for each in caused]
        yield from _some(f"{len(caused):,} cause{'s' * (len(caused) != 1)} only in run {run}", told)


def _some(heading: str, lines: Sequence[str]) -> Iterator[str]:
    if not lines:
        return
    yield f"{heading}:"
    yield from (f"  {line}" for line in lines[:SHOWN])
    if len(lines) > SHOWN:
        yield f"  … and {len(lines) - SHOWN:,} more; --json has them"


def unit(arguments: argparse.Namespace) -> None:
    message, arrow, destination = arguments.unit.rpartition(">")
    if not arrow:
        raise LocalProtocolError(f"{arguments.unit!r} is not a unit: write MESSAGE>TO, as in 'p0:1>p2'")
    wanted = Unit(message, destination)
    computation = _computation(check_path(arguments.path).computations, wanted, arguments.computation)
    life = unit_life(computation, wanted)
    print_answer(arguments, lambda: plain(life, _named), _life(life))


def _computation(computations: Sequence[Computation], unit: Unit, name: str | None) -> Computation:
    """The computation in which the unit's message was sent to its destination."""
    candidates = [c for c in computations if name is None or c.name == name]
    if not candidates:
        known = ", ".join(repr(c.name) for c in computations[:10])
        raise LocalProtocolError(f"no computation is called {name!r}; there are: {known}")
    units = {c.name: set(_units(c)) for c in candidates}
    found = [c for c in candidates if unit in units[c.name]]
    if len(found) == 1:
        return found[0]
    if found:
        several = ", ".join(repr(c.name) for c in found[:10])
        raise LocalProtocolError(f"{unit} is in several computations; give --computation, of: {several}")
    there = sorted({str(each) for of in units.values() for each in of})
    near = ", ".join(difflib.get_close_matches(str(unit), there[:10_000], 5) or there[:5]) or "there is none"
    raise LocalProtocolError(
        f"no message {unit.message!r} was sent to {unit.destination!r}; did you mean: {near}"
    )


def _units(c: Computation) -> Iterator[Unit]:
    names = [c.message_name(m) for m in range(len(c.send))]
    slots = zip(c.slot_message, c.slot_dest, strict=True)
    return (Unit(names[message], c.process_names[to]) for message, to in slots)


def _named(value: Any) -> str | None:
    if isinstance(value, Event):
        return value.id
    return str(value) if isinstance(value, Unit) else None


def _life(life: UnitLife) -> Iterator[str]:
    x = life.unit.destination
    fate = f"delivered there at {life.delivery.id}" if life.delivery is not None else "never delivered there"
    yield f"{life.unit.message} was sent to {x} at {life.send.id}, and {fate}\n"
    yield "who had to know that it may not have been delivered yet"
    for stretch in life.stretches:
        yield f"  {stretch.process:<16} from {stretch.first}"
        if stretch.end is None or stretch.by is None:
            yield f"  {'':<16} to the end of the trace"
            continue
        why = (
            f"knows that it was delivered ({stretch.by.id})"
            if stretch.rule == PC1
            else f"knows of {stretch.by.message}, sent later to {x} ({stretch.by.id}), which waits for it"
        )
        yield f"  {'':<16} until {stretch.end}: {stretch.rule}, it {why}"
    yield f"\nwhich copies had to carry it: {len(life.edges)}"
    yield from (f"  {edge.message} to {edge.destination}  (sent at {edge.send.id})" for edge in life.edges)
