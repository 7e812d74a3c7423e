"""What a summary says, in sentences: each holds, is violated, or has nothing to be judged by.

The first one is the judgement that the commands print. Signs go before colours: ✓, ✗ and –.
"""

from collections.abc import Iterator
from html import escape
from typing import Any, NamedTuple

from ..causality.judgement import Judgement, judge_totals


class VerdictLine(NamedTuple):
    """`holds` is None where there is nothing to judge; `total` is the number of the summary it rests on."""

    holds: bool | None
    text: str
    total: str = ""

    def html(self, tag: str, kind: str = "", more: str = "") -> str:
        """The sentence as an HTML element, followed by `more`, such as a link to its rows."""
        sign, name = {True: ("✓", "holds"), False: ("✗", "violated"), None: ("–", "undecided")}[self.holds]
        return f'<{tag} class="{kind} {name}">{sign} {self.text}{more}</{tag}>'


def verdicts(summary: dict[str, Any], *, timed: bool) -> Iterator[VerdictLine]:
    """The judgements of orders first. Where rows are quarantined, nothing holds of all there is."""
    for verdict in _verdicts(summary, timed):
        if verdict.holds and summary["quarantined"]:
            verdict = verdict._replace(holds=None, text=f"{verdict.text} This is about what was judged.")
        yield verdict


def _verdicts(summary: dict[str, Any], timed: bool) -> Iterator[VerdictLine]:
    judged = summary["deliveries_judged"]
    yield _told(judge_totals(summary), "causal_violations")
    yield _told(judge_totals(summary, "fifo"), "fifo_violations")
    if judged:
        yield _total(summary.get("total_violations", 0))._replace(total="total_violations")
    yield _fates(summary)._replace(total="messages")
    yield _logged(summary)._replace(total="clocks_logged")
    if summary.get("tracker_stamps"):
        tracked = _tracked(summary["tracker_stamps"], summary["tracker_faults"])
        yield tracked._replace(total="tracker_stamps")
    yield _physical(summary, timed)._replace(total="receives_before_sends")
    lost = summary.get("import_quarantined", 0) - summary.get("import_quarantined_imported", 0)
    if lost:
        yield VerdictLine(
            False, f"{lost:,} records of the logs could not be imported: they are no part of this."
        )
    if summary["quarantined"]:
        told = f"{rows_were(summary['quarantined'])} quarantined: no part of what follows."
        yield VerdictLine(False, told, "quarantined")


def _told(judgement: Judgement, total: str) -> VerdictLine:
    return VerdictLine(judgement.holds, escape(judgement.sentence), total)


def rows_were(count: int) -> str:
    return f"{count:,} row was" if count == 1 else f"{count:,} rows were"


def _total(violations: int) -> VerdictLine:
    """A broken total order is no fault: causal order leaves concurrent messages in any order."""
    if violations:
        found = f"{violations:,} disagreement{'' if violations == 1 else 's'} between processes"
        return VerdictLine(None, f"Total order is not kept: {found}; causal order allows that.")
    return VerdictLine(True, "One order of all messages fits what every process delivered.")


def _fates(summary: dict[str, Any]) -> VerdictLine:
    wrong = [
        f"{summary[name]:,} {name.replace('_', ' ')}"
        for name in ("lost", "duplicated", "misdelivered", "never_sent")
        if summary[name]
    ]
    if wrong:
        return VerdictLine(False, f"Messages: {', '.join(wrong)}.")
    if not summary["messages"]:
        return VerdictLine(None, "No messages were recorded.")
    return VerdictLine(True, f"All {summary['messages']:,} messages reached their destinations once.")


def _logged(summary: dict[str, Any]) -> VerdictLine:
    logged = summary["clocks_logged"]
    if not logged:
        return VerdictLine(None, "No vector clocks were logged.")
    wrong, backwards = summary["clock_mismatches"], summary["clock_regressions"]
    if wrong or backwards:
        text = (
            f"Of {logged:,} logged vector clocks {wrong:,} are wrong (of these "
            f"{summary['clock_impossible']:,} impossible), and {backwards:,} ran backwards."
        )
        return VerdictLine(False, text)
    return VerdictLine(True, f"All {logged:,} logged vector clocks are right.")


def _tracked(told: int, wrong: int) -> VerdictLine:
    if wrong:
        return VerdictLine(
            False, f"Trackers recorded timestamps of {told:,} events; {wrong:,} of them are wrong."
        )
    return VerdictLine(True, f"What trackers recorded of {told:,} events is right.")


def _physical(summary: dict[str, Any], timed: bool) -> VerdictLine:
    before, after = summary["receives_before_sends"], summary["receives_before_sends_corrected"]
    backwards = summary.get("times_backwards", 0)
    if before or backwards:
        text = (
            f"By the clocks {before:,} deliveries precede their sends, {after:,} after correction; "
            f"clocks went back {backwards:,} times."
        )
        return VerdictLine(False, text)
    if not timed or not summary["deliveries_judged"]:
        return VerdictLine(None, "No times of sends and deliveries were recorded.")
    return VerdictLine(True, "By the clocks no delivery precedes its send.")
