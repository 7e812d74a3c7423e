"""Readers called as the importer calls them, without files."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from happened import causality, trace
from happened.trace.importing import FileCounts
from happened.trace.readers import FORMATS, Draft, Options, Source
from happened.trace.readers.span_joins import TraceJoins
from happened.trace.writer import table_from_rows


@dataclass
class Reading:
    rows: list
    quarantined: list
    counts: list

    @property
    def table(self):
        """As the trace would be read back; fails unless the rows keep every promise of a trace."""
        table = table_from_rows(self.rows)
        trace.validate(table)
        return table

    @property
    def stamps(self):
        return causality.stamp(self.table)

    def reasons(self):
        return [str(each) for each in self.quarantined]

    def events(self):
        """(process, seq) -> row."""
        return {(row["process"], row["seq"]): row for row in self.rows}

    def places(self):
        """Label -> (computation, process, seq); `x (end)` is the end of span `x`."""
        return {row["label"]: (row["computation"], row["process"], row["seq"]) for row in self.rows}

    def happened_before(self, earlier, later):
        """Whether the event with the one label happened before that with the other."""
        places = self.places()
        (a, *first), (b, *second) = places[earlier], places[later]
        return a == b and self.stamps.happened_before(tuple(first), tuple(second), a)

    def starts(self):
        """Span -> those whose start happened before its own, by label."""
        names = [row["label"] for row in self.rows if (row["attributes"] or {}).get("event") == "start"]
        return {later: {each for each in names if self.happened_before(each, later)} for later in names}

    def causes(self):
        """Effect -> set of causes, both as labels."""
        label = {name: row["label"] for name, row in self.events().items()}
        return {
            row["label"]: {label[c["process"], c["seq"]] for c in row["causes"] or ()} for row in self.rows
        }


@pytest.fixture
def read():
    def read(format, *texts, **options):
        reader, chosen = FORMATS[format], Options(**options)
        drafts, quarantined, counts = [], [], []
        for number, text in enumerate(texts):
            numbered = enumerate(text.splitlines(keepends=True), start=1)
            source = Source(f"log{number}", numbered, "" if reader.names_computations else f"log{number}")
            parsed = list(reader.parse(source, chosen))
            drafts += [each for each in parsed if isinstance(each, Draft)]
            quarantined += [each for each in parsed if not isinstance(each, Draft)]
            told = FileCounts()
            told.add([each for each in parsed if isinstance(each, Draft)], reader.counts)
            counts.append(told.told(f"log{number}", reader.counts))
        if reader.joins_computations:
            _join(drafts)
        assembly = reader.assemble(drafts, chosen)
        return Reading(assembly.rows, quarantined + assembly.quarantined, counts)

    return read


@pytest.fixture
def fixture_text():
    folder = Path(__file__).parents[2] / "fixtures"
    return lambda name: (folder / name).read_text()


def _join(drafts):
    """Join the traces of drafts that are all in memory."""
    joins = TraceJoins()
    for draft in drafts:
        joins.add(draft)
    leaders = joins.leaders(drafts)
    for draft in drafts:
        draft.computation = leaders.get(draft.computation, draft.computation)
