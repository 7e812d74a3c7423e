"""`happened ask critical-path`: where the time of requests went, and what would be saved."""

import argparse
from collections.abc import Iterator

from .. import ask
from ..ask.critical import QUANTILES
from ..ask.history import printable
from ..core.exit_codes import ExitCode
from ..view.texts import duration
from .asking import history_of_request, is_for_spark, on_spark, plain, warn
from .terminal import note, print_answer

SHOWN = 20
WHERE = "where"


def run(arguments: argparse.Namespace) -> int:
    try:
        answer = _answer(arguments)
    except ask.NoTimes as error:
        note(f"happened: undecided: {error}")
        return ExitCode.UNDECIDED
    quantiles = {f"p{share * 100:g}": answer.quantile(share) for share in QUANTILES}
    print_answer(arguments, lambda: plain(answer) | {"quantiles": quantiles}, _lines(answer))
    return ExitCode.HOLDS


def _answer(arguments: argparse.Namespace) -> ask.CriticalPath:
    if arguments.request is not None:
        history, request = history_of_request(arguments, arguments.request)
        return ask.critical_path(history, request, by=arguments.by)
    if is_for_spark(arguments):
        from ..spark.large_traces import critical_path

        with on_spark(arguments) as trace:
            return critical_path(trace, arguments.by)
    history = ask.load(arguments.trace, whatever_size=arguments.local)
    warn(history)
    return ask.critical_path(history, by=arguments.by)


def _lines(answer: ask.CriticalPath) -> Iterator[str]:
    slowest, requests = answer.slowest, len(answer.took)
    name = printable(slowest.request) or "the computation"
    if requests > 1:
        told = ", ".join(f"p{share * 100:g} {duration(answer.quantile(share))}" for share in QUANTILES)
        yield f"{requests:,} requests: {told}, slowest {duration(slowest.took)}"
        yield f"the slowest is {name}:"
    else:
        yield f"{name} took {duration(slowest.took)}:"
    yield from _segments(slowest.segments)
    yield ""
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
