"""Turn the findings about a trace into one sentence and one exit code, the same for every command.

`happened check`, `happened analyze` (with all questions, or `--only order`), `happened stream` and the report
all call `judge`, so the same trace gets the same outcome and the same sentence from each of them:

    violated     the order is violated; or a delivery is duplicated, misdelivered or of something never
                 sent; or the trace is complete and has a lost cause (see `order`)
    quarantined  not violated, but rows are quarantined: the judgement of the rest does not cover them
    undecided    neither, but no deliveries are evidence; or there is a lost cause and the trace may be
                 cut off, so that the message may have been delivered after the end of the trace
    holds        none of these

The sentence ends with remarks that change no outcome: how many exact duplicates of rows were dropped, and
what a window of a trace leaves undecided.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from html import escape

import pyarrow as pa

from .. import trace as traces
from ..core.errors import LocalProtocolError
from ..core.exit_codes import ExitCode
from ..trace.validation import validate_rows
from .analysis import sound_whole
from .computation import REFUSE, RENUMBER, Computation, Trace, check_gaps, encode
from .order import DEFAULT_LIMIT, Deliveries, check_delivery, check_order
from .questions import Answers
from .verdict import LostCause, Verdict, Witness

ASTRAY = ("duplicated", "misdelivered", "never_sent")
"""Deliveries that are wrong whatever their order."""


class Outcome(IntEnum):
    """The value of a member is the exit code."""

    HOLDS = ExitCode.HOLDS
    VIOLATED = ExitCode.VIOLATED
    QUARANTINED = ExitCode.BAD_INPUT
    UNDECIDED = ExitCode.UNDECIDED


@dataclass(frozen=True, slots=True)
class Judgement:
    """An outcome, its sentence, and the verdict on the order from which it follows."""

    outcome: Outcome
    sentence: str
    verdict: Verdict

    @property
    def holds(self) -> bool | None:
        return {Outcome.HOLDS: True, Outcome.VIOLATED: False}.get(self.outcome)

    @property
    def exit_code(self) -> int:
        return int(self.outcome)

    @property
    def witnesses(self) -> tuple[Witness | LostCause, ...]:
        """The witnesses of violations of the order, then those of lost causes, up to the requested limit."""
        return (*self.verdict.witnesses, *self.verdict.lost_witnesses)

    def __str__(self) -> str:
        return "\n".join([self.sentence, *map(str, self.witnesses[:1])])

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        shown = "".join(f"<pre>{escape(str(witness))}</pre>" for witness in self.witnesses[:1])
        return f"<p><strong>{escape(self.sentence)}</strong></p>{shown}"


def judge(verdict: Verdict, totals: Mapping[str, int], *, complete: bool) -> Judgement:
    """Combine a verdict on one order with the counts of wrong deliveries and quarantined rows.

    totals    counts by the names of ASTRAY, `quarantined` and `duplicate_rows`; an absent name counts 0.
              `sent_outside` and `causes_outside` are present if the trace is a window of a longer one
    complete  whether the trace is known to contain everything that happened
    """
    astray = {name: totals.get(name, 0) for name in ASTRAY}
    quarantined = totals.get("quarantined", 0)
    lost = verdict.lost_causes
    if verdict.holds is False or any(astray.values()) or (lost and complete):
        outcome = Outcome.VIOLATED
    elif quarantined:
        outcome = Outcome.QUARANTINED
    elif verdict.holds is None or lost:
        outcome = Outcome.UNDECIDED
    else:
        outcome = Outcome.HOLDS
    sentence = str(verdict)
    if lost and verdict.holds:
        word = "VIOLATED" if complete else "undecided"
        sentence = f"{verdict.order} order {word}: {verdict.examined}, none of them too early"
    besides = [f"{count:,} {name.replace('_', ' ')}" for name, count in astray.items() if count]
    if lost:
        messages = "1 message was" if lost == 1 else f"{lost:,} messages were"
        unless = "" if complete else ", unless that is beyond the end of the trace (see --complete)"
        besides.append(f"{messages} never delivered where one sent causally after was{unless}")
    if quarantined:
        rows = "1 row is" if quarantined == 1 else f"{quarantined:,} rows are"
        besides.append(f"{rows} quarantined and not judged")
    if besides:
        sentence = f"{sentence}; but {', '.join(besides)}"
    remarks = [*_remarks(totals)]
    if remarks:
        sentence = f"{sentence} ({'; '.join(remarks)})"
    return Judgement(outcome, sentence, verdict)


def _remarks(totals: Mapping[str, int]) -> Iterator[str]:
    if repeated := totals.get("duplicate_rows", 0):
        rows = "1 row that repeats another" if repeated == 1 else f"{repeated:,} rows that repeat others"
        yield f"{rows} exactly {'was' if repeated == 1 else 'were'} dropped"
    if "sent_outside" not in totals:
        return
    yield "of a window: messages that only events outside of it connect were not judged against each other"
    if sent := totals["sent_outside"]:
        deliveries = "1 delivery of a message" if sent == 1 else f"{sent:,} deliveries of messages"
        yield f"{deliveries} sent outside the window {'was' if sent == 1 else 'were'} not judged"
    if causes := totals.get("causes_outside", 0):
        named = (
            "1 cause outside the window is" if causes == 1 else f"{causes:,} causes outside the window are"
        )
        yield f"{named} absent, not false"


def judge_totals(totals: Mapping[str, int], order: str = "causal") -> Judgement:
    """The judgement on causal or FIFO order that follows from a summary of `happened analyze`.

    Total order is not judged: causal order permits any order of concurrent messages.
    """
    judged, early = totals["deliveries_judged"], totals[f"{order}_violations"]
    lost = totals.get("lost_causes" if order == "causal" else f"{order}_lost_causes", 0)
    verdict = Verdict(order, early == 0 if judged else None, judged, early, (), lost)
    return judge(verdict, totals, complete=bool(totals.get("complete", False)))


@dataclass(frozen=True, slots=True)
class Checked:
    """A judged trace: the judgement and its basis.

    quarantine   why rows, or causes that are not in the trace, were left out
    totals       `quarantined` and `duplicate_rows`; for a window also references to events outside it
    """

    judgement: Judgement
    deliveries: Deliveries
    table: pa.Table  # the rows of the sound computations
    computations: tuple[Computation, ...]
    quarantine: tuple[str, ...] = field(default=())
    totals: Mapping[str, int] = field(default_factory=dict)


def check(
    trace: Trace | str | os.PathLike[str],
    order: str = "causal",
    *,
    complete: bool | None = None,
    limit: int = DEFAULT_LIMIT,
    gaps: str = REFUSE,
) -> Judgement:
    """Judge a trace: the result of `trace.read`, or the path of a trace.

    order     "causal", "fifo" or "total"
    complete  whether the trace contains everything that happened; None: as the recorded run says, else no
    limit     how many witnesses to compute
    gaps      "renumber" if the trace is a window of a longer one, or filtered (docs/pipeline.md)

    A violation is part of the answer, not an error; TraceFormatError means that the path holds no trace.
    """
    if isinstance(trace, str | os.PathLike):
        return check_path(trace, order, complete=complete, limit=limit, gaps=gaps).judgement
    known = refuse_complete_window(complete, gaps)
    computations = encode(trace, gaps)
    verdict = check_order(computations, order, limit=limit)
    deliveries = check_delivery(computations, examples=0)
    return judge(verdict, _counts(deliveries, computations), complete=bool(known))


def check_path(
    path: str | os.PathLike[str],
    order: str = "causal",
    *,
    complete: bool | None = None,
    limit: int = DEFAULT_LIMIT,
    gaps: str = REFUSE,
) -> Checked:
    """Judge the trace at a path like `check`, and return the basis of the judgement as well."""
    complete = refuse_complete_window(complete, gaps)
    table = traces.read(path, validate_rows)
    answers = Answers()
    table, computations = sound_whole(table, answers, partial(encode, gaps=gaps), gaps)
    verdict = check_order(computations, order, limit=limit)
    deliveries = check_delivery(computations)
    totals = {"quarantined": 0, "duplicate_rows": 0, **answers.totals, **_counts(deliveries, computations)}
    known = traces.locate(path).is_complete if complete is None else complete
    reasons = tuple(
        f"{row['computation']}: {row['reason']}" if row["computation"] else row["reason"]
        for part in answers.tables["quarantine"]
        for row in part.to_pylist()
    )
    judgement = judge(verdict, totals, complete=known)
    return Checked(judgement, deliveries, table, tuple(computations), reasons, totals)


def refuse_complete_window(complete: bool | None, gaps: str) -> bool | None:
    """`complete`, or False for a window; LocalProtocolError if the caller calls a window complete."""
    check_gaps(gaps)
    if gaps != RENUMBER:
        return complete
    if complete:
        raise LocalProtocolError(
            'a trace is complete, or a window of one (gaps="renumber", --gaps renumber): say one of them'
        )
    return False


def _counts(deliveries: Deliveries, computations: Sequence[Computation]) -> dict[str, int]:
    """The totals that `judge` needs."""
    counts = {name: getattr(deliveries, name) for name in ASTRAY}
    if any(c.is_window for c in computations):
        counts["sent_outside"] = deliveries.sent_outside
        counts["causes_outside"] = sum(c.causes_outside for c in computations)
    return counts
