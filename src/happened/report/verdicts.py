"""The statements of a summary as sentences: each holds, is violated, or has no evidence.

The first sentence is the judgement that the commands print. A sign stands before each: ✓, ✗ or –.
"""

from collections.abc import Iterator
from html import escape
from typing import Any, NamedTuple

from ..causality.judgement import judge_totals


class VerdictLine(NamedTuple):
    """`holds` is None if there is no evidence; `total` names the number of the summary that decided."""

    holds: bool | None
    text: str
    total: str = ""

    def html(self, tag: str, kind: str = "", more: str = "") -> str:
        """The sentence as an HTML element, followed by `more`, such as a link to the rows that it counts."""
        sign, name = {True: ("✓", "holds"), False: ("✗", "violated"), None: ("–", "undecided")}[self.holds]
        return f'<{tag} class="{kind} {name}">{sign} {self.text}{more}</{tag}>'


def verdicts(summary: dict[str, Any], *, timed: bool) -> Iterator[VerdictLine]:
    """The sentences, judgements of orders first. If rows are quarantined, no sentence says `holds`."""
    for total, (holds, text) in _verdicts(summary, timed):
        if holds and summary["quarantined"]:
            holds, text = None, f"{text} This is about what was judged."
        yield VerdictLine(holds, text, total)


Finding = tuple[bool | None, str]


def _verdicts(summary: dict[str, Any], timed: bool) -> Iterator[tuple[str, Finding]]:
    for order in ("causal", "fifo"):
        judgement = judge_totals(summary, order)
        yield f"{order}_violations", (judgement.holds, escape(judgement.sentence))
    if summary["deliveries_judged"]:
        yield "total_violations", _total(summary.get("total_violations", 0))
    yield "messages", _fates(summary)
    yield "clocks_logged", _logged(summary)
    if told := summary.get("tracker_stamps"):
        right = f"What trackers recorded of {told:,} events is right."
        faults = summary["tracker_faults"]
        wrong = f"Trackers recorded timestamps of {told:,} events; {faults:,} of them are wrong."
        yield "tracker_stamps", (False, wrong) if faults else (True, right)
    yield "receives_before_sends", _physical(summary, timed)
    lost = summary.get("import_quarantined", 0) - summary.get("import_quarantined_imported", 0)
    if lost:
        yield "", (False, f"{lost:,} records of the logs could not be imported: they are no part of this.")
    if summary["quarantined"]:
        told = f"{rows_were(summary['quarantined'])} quarantined: no part of what follows."
        yield "quarantined", (False, told)


def rows_were(count: int) -> str:
    return f"{count:,} row was" if count == 1 else f"{count:,} rows were"


def _total(violations: int) -> Finding:
    """A broken total order is no fault: causal order permits any order of concurrent messages."""
    if violations:
        found = f"{violations:,} disagreement{'' if violations == 1 else 's'} between processes"
        return None, f"Total order is not kept: {found}; causal order allows that."
    return True, "One order of all messages fits what every process delivered."


def _fates(summary: dict[str, Any]) -> Finding:
    fates = ("lost", "duplicated", "misdelivered", "never_sent")
    if wrong := [f"{summary[name]:,} {name.replace('_', ' ')}" for name in fates if summary[name]]:
        return False, f"Messages: {', '.join(wrong)}."
    if not summary["messages"]:
        return None, "No messages were recorded."
    return True, f"All {summary['messages']:,} messages reached their destinations once."


def _logged(summary: dict[str, Any]) -> Finding:
    logged = summary["clocks_logged"]
    if not logged:
        return None, "No vector clocks were logged."
    wrong, backwards = summary["clock_mismatches"], summary["clock_regressions"]
    if wrong or backwards:
        impossible = f"{wrong:,} are wrong (of these {summary['clock_impossible']:,} impossible)"
        return False, f"Of {logged:,} logged vector clocks {impossible}, and {backwards:,} ran backwards."
    return True, f"All {logged:,} logged vector clocks are right."


def _physical(summary: dict[str, Any], timed: bool) -> Finding:
    before, after = summary["receives_before_sends"], summary["receives_before_sends_corrected"]
    backwards = summary.get("times_backwards", 0)
    if before or backwards:
        preceding = f"{before:,} deliveries precede their sends, {after:,} after correction"
        return False, f"By the clocks {preceding}; clocks went back {backwards:,} times."
    if not timed or not summary["deliveries_judged"]:
        return None, "No times of sends and deliveries were recorded."
    return True, "By the clocks no delivery precedes its send."
