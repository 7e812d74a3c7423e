"""What a summary says, in sentences: each holds, is violated, or has nothing to be judged by.

Signs go before colours: ✓, ✗ and –.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple


class Verdict(NamedTuple):
    """`holds` is None where there is nothing to judge."""

    holds: bool | None
    text: str

    def html(self, tag: str, kind: str = "") -> str:
        sign, name = {True: ("✓", "holds"), False: ("✗", "violated"), None: ("–", "undecided")}[self.holds]
        return f'<{tag} class="{kind} {name}">{sign} {self.text}</{tag}>'


def verdicts(summary: dict[str, Any], *, timed: bool) -> Iterator[Verdict]:
    judged, early = summary["deliveries_judged"], summary["causal_violations"]
    if not judged:
        yield Verdict(None, "Causal order is undecided: there are no deliveries to judge.")
    elif early:
        text = f"Causal order is violated: {early:,} of {judged:,} deliveries came too early."
        yield Verdict(False, text)
    else:
        yield Verdict(True, f"Causal order holds: {judged:,} deliveries examined, no violation.")
    overtook = summary["fifo_violations"]
    if judged and overtook:
        text = f"FIFO order is violated: {overtook:,} deliveries overtook an earlier message of their sender."
        yield Verdict(False, text)
    else:
        yield Verdict(True, "FIFO order holds.") if judged else Verdict(None, "FIFO order is undecided.")
    if judged:
        yield _total(summary.get("total_violations", 0))
    yield _fates(summary)
    yield _logged(summary)
    yield _physical(summary, timed)
    if summary["quarantined"]:
        yield Verdict(False, f"{rows_were(summary['quarantined'])} set aside: no part of what follows.")


def rows_were(count: int) -> str:
    return f"{count:,} row was" if count == 1 else f"{count:,} rows were"


def _total(violations: int) -> Verdict:
    """Not a fault where it is broken: causal order leaves concurrent messages in any order."""
    if violations:
        found = f"{violations:,} disagreements between two processes"
        return Verdict(None, f"Total order is not kept: {found}; causal order allows that.")
    return Verdict(True, "No two processes disagree on the order of what they both delivered.")


def _fates(summary: dict[str, Any]) -> Verdict:
    wrong = [
        f"{summary[name]:,} {name.replace('_', ' ')}"
        for name in ("lost", "duplicated", "misdelivered", "never_sent")
        if summary[name]
    ]
    if wrong:
        return Verdict(False, f"Messages: {', '.join(wrong)}.")
    if not summary["messages"]:
        return Verdict(None, "No messages were recorded.")
    return Verdict(True, f"All {summary['messages']:,} messages reached their destinations once.")


def _logged(summary: dict[str, Any]) -> Verdict:
    logged = summary["clocks_logged"]
    if not logged:
        return Verdict(None, "No vector clocks were logged.")
    wrong, backwards = summary["clock_mismatches"], summary["clock_regressions"]
    if wrong or backwards:
        text = (
            f"Of {logged:,} logged vector clocks {wrong:,} are wrong (of these "
            f"{summary['clock_impossible']:,} impossible), and {backwards:,} ran backwards."
        )
        return Verdict(False, text)
    return Verdict(True, f"All {logged:,} logged vector clocks are right.")


def _physical(summary: dict[str, Any], timed: bool) -> Verdict:
    before, after = summary["receives_before_sends"], summary["receives_before_sends_corrected"]
    backwards = summary.get("times_backwards", 0)
    if before or backwards:
        text = (
            f"By the clocks {before:,} deliveries precede their sends, {after:,} after correction; "
            f"clocks went back {backwards:,} times."
        )
        return Verdict(False, text)
    if not timed or not summary["deliveries_judged"]:
        return Verdict(None, "No times of sends and deliveries were recorded.")
    return Verdict(True, "By the clocks no delivery precedes its send.")
