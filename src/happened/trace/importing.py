"""Import foreign logs: files in, a trace, a quarantine and a summary out.

OUT gets trace/part-*.parquet, quarantine/part-*.parquet (readers.QUARANTINE) and import.json, atomically: it
is written beside its final place and renamed. Memory holds one bucket of computations at a time, or one JSON
document if that is larger.
"""

import hashlib
import json
import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, starmap
from pathlib import Path
from typing import Any
from zlib import crc32

from ..core.errors import TraceFormatError
from .atomic import whole_directory
from .parts import write_part
from .readers import FORMATS, Format, Options, QuarantinedRecord, mapped, open_source
from .readers.detection import detect
from .readers.draft import Draft, Row, by_computation, packed, storable, table_of
from .readers.source import EMPTY, NO_EVENTS, uncompressed_size, unreadable
from .readers.span_joins import TraceJoins
from .schema import SENDS
from .store import AnyPath, size_of
from .writer import TraceWriter

AUTO = "auto"
EXAMPLES = 5
BATCH_ROWS = 20_000
BUCKET_BYTES = 8 << 20  # of logs; as drafts and rows some 150 MB
MOST_HELD = 50_000  # drafts in memory before they are written, some 100 MB

Count = Callable[[list[Draft]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Import:
    """The result of an import; `summary` is also in OUT/import.json."""

    summary: dict[str, Any]
    quarantined: Sequence[QuarantinedRecord]  # at least the first EXAMPLES


def import_files(
    files: Sequence[AnyPath],
    out: AnyPath,
    *,
    format: str = AUTO,
    options: Options | None = None,
    strict: bool = False,
    progress: Callable[[int], object] = lambda files: None,
) -> Import:
    """Read all files, which have one format, into a new trace; TraceFormatError if that fails.

    strict   write nothing if any record has to be quarantined
    progress called with the number of files done
    """
    if out.exists():
        reason = "is already there; import elsewhere, or replace it with --force"
        raise TraceFormatError(reason, file=str(out))
    options = options or Options()
    name = choose_format(files, format, options)
    with tempfile.TemporaryDirectory(prefix="happened-") as work, whole_directory(out) as folder:
        run = _Import(files, name, options, Path(work), folder)
        run.parse(progress)
        run.assemble()
        if strict and run.quarantine.count:
            raise not_understood(str(run.quarantine.first[0]), run.quarantine.count)
        summary = run.summary()
        refuse_nothing(summary["events"], run.quarantine.first)
        write_summary(folder, summary)
    return Import(summary, run.quarantine.first)


class _Import:
    """One import in progress: files are parsed one after another, and computations assembled bucket by
    bucket."""

    def __init__(
        self, files: Sequence[AnyPath], name: str, options: Options, work: Path, folder: AnyPath
    ) -> None:
        self.files, self.name, self.options = files, name, options
        self.reader = FORMATS[name]
        self.folder = folder
        self.quarantine = QuarantineWriter(folder / "quarantine")
        self.facts: Counter[str] = Counter()
        self._work = work
        buckets = buckets_for(sum(uncompressed_size(path) for path in files))
        # A computation is assembled in memory: more buckets than computations would save no memory.
        most = len(files) if self.reader.one_computation else buckets
        self._spill = Spill(work / "parsed", min(buckets, most))
        self._joins = TraceJoins()
        self._counts = FileCounts()
        self._told: list[dict[str, Any]] = []
        self._processes: list[set[str]] = []  # the processes of each file, if the files are parts of one run
        self._totals = Totals()

    def parse(self, progress: Callable[[int], object]) -> None:
        for path, computation in zip(
            self.files, computation_names(self.files, self.reader, self.options), strict=True
        ):
            source = open_source(path, computation)
            records, before = 0, self.quarantine.count
            processes: set[str] = set()
            for parsed in storable(self.reader.parse(source, self.options)):
                if isinstance(parsed, QuarantinedRecord):
                    self.quarantine.add([parsed])
                    continue
                records += not parsed.absent
                if self.options.together:
                    processes.add(parsed.process)
                self._spill.add(parsed)
                if self.reader.joins_computations:
                    self._joins.add(parsed)
            self.quarantine.add(source.faults)
            left_out = self.quarantine.count - before
            if not records:
                refuse_other_format(path, self.name, self.quarantine.first)
                if not left_out:
                    self.quarantine.add([QuarantinedRecord(str(path), None, None, NO_EVENTS)])
                    left_out = 1
            self._told.append({"file": str(path), "records": records, "quarantined": left_out})
            self._processes.append(processes)
            progress(1)

    def assemble(self) -> None:
        if self.reader.joins_computations:
            every = chain.from_iterable(self._spill.buckets())
            self._spill = self._spill.regrouped(self._joins.leaders(every), self._work / "joined")
            self.facts["channels_not_joined"] += self._joins.too_wide
        with TraceWriter(self.folder / "trace") as writer:
            for bucket in self._spill.buckets():
                for drafts in by_computation(bucket).values():
                    self._counts.add(drafts, self.reader.counts)
                    assembly = self.reader.assemble(drafts, self.options)
                    drafts.clear()
                    self.quarantine.add(assembly.quarantined)
                    self.facts += assembly.facts
                    self._totals.add(assembly.rows)
                    for row in assembly.rows:
                        writer.append(row)
        self.quarantine.close()

    def summary(self) -> dict[str, Any]:
        for of_file in self._told:
            of_file |= self._counts.told(of_file["file"], self.reader.counts)
        return {
            "format": self.name,
            "options": asdict(self.options),
            **self._totals.told(),
            **self.quarantine.told(),
            "facts": told_facts(self.facts),
            "remarks": remarks(self.files, self._processes, self.options.together),
            "files": self._told,
        }


class Spill:
    """Drafts by bucket, in memory or, once there are MOST_HELD, in `folder`, which is created when needed.

    Every computation belongs to one bucket; buckets are read back one at a time.
    """

    def __init__(self, folder: Path, buckets: int) -> None:
        self._folder = folder
        self._held: list[list[Draft]] = [[] for _ in range(buckets)]
        self._count = 0

    def add(self, draft: Draft) -> None:
        self._held[crc32(draft.computation.encode()) % len(self._held)].append(draft)
        self._count += 1
        if self._count >= MOST_HELD and len(self._held) > 1:
            self._write()

    def _write(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for number, drafts in enumerate(self._held):
            if drafts:
                with self._file(number).open("ab") as file:
                    pickle.dump([packed(draft) for draft in drafts], file, 5)
                drafts.clear()
        self._count = 0

    def _file(self, number: int) -> Path:
        return self._folder / f"bucket-{number:06d}"

    def bucket(self, number: int) -> Iterator[Draft]:
        """The drafts of a bucket in order of arrival."""
        if self._file(number).exists():
            with self._file(number).open("rb") as file:
                while True:
                    try:
                        values = pickle.load(file)
                    except EOFError:
                        break
                    yield from starmap(Draft, values)
        yield from self._held[number]

    def buckets(self) -> Iterable[Iterator[Draft]]:
        return (self.bucket(number) for number in range(len(self._held)))

    def regrouped(self, computations: Mapping[str, str], folder: Path) -> "Spill":
        """The same drafts with some computations renamed."""
        if not computations:
            return self
        other = Spill(folder, len(self._held))
        for bucket in self.buckets():
            for draft in bucket:
                draft.computation = computations.get(draft.computation, draft.computation)
                other.add(draft)
        return other


class FileCounts:
    """Counts of the contents of each file, added up computation by computation: files may exceed memory.

    A count is a number, a bool that holds for all, or a set of names whose size is the count.
    """

    def __init__(self) -> None:
        self.of_file: dict[str, dict[str, Any]] = {}

    def add(self, drafts: Iterable[Draft], count: Count) -> None:
        """Add the counts of one computation's drafts, which may come from several files."""
        by_file: dict[str, list[Draft]] = {}
        for draft in drafts:
            by_file.setdefault(draft.file, []).append(draft)
        for file, of_file in by_file.items():
            self.merge(file, count(of_file))

    def merge(self, file: str, counts: Mapping[str, Any]) -> None:
        mine = self.of_file.setdefault(file, {})
        for name, value in counts.items():
            if isinstance(value, set):
                mine.setdefault(name, set()).update(value)
            elif isinstance(value, bool):
                mine[name] = value and mine.get(name, True)
            else:
                mine[name] = mine.get(name, 0) + value

    def told(self, file: str, count: Count) -> dict[str, Any]:
        """The counts of a file as numbers; for a file without records, the counts of an empty list."""
        counts = self.of_file.get(file) or count([])
        return {name: len(each) if isinstance(each, set) else each for name, each in counts.items()}


class QuarantineWriter:
    """Writes quarantined records in batches, and keeps the first EXAMPLES of them."""

    def __init__(self, folder: AnyPath) -> None:
        self._folder = folder
        self._parts = 0
        self._held: list[QuarantinedRecord] = []
        self.count = 0
        self.imported = 0
        self.first: list[QuarantinedRecord] = []

    def add(self, quarantined: Sequence[QuarantinedRecord]) -> None:
        self.count += len(quarantined)
        self.imported += sum(each.imported for each in quarantined)
        self.first += quarantined[: max(0, EXAMPLES - len(self.first))]
        self._held += quarantined
        if len(self._held) >= BATCH_ROWS:
            self._write()

    def close(self) -> None:
        if self._held or not self._parts:
            self._write()

    def _write(self) -> None:
        write_part(self._folder, f"part-{self._parts:06d}", table_of(self._held))
        self._held = []
        self._parts += 1

    def told(self) -> dict[str, Any]:
        return {
            "quarantined": self.count,
            "quarantined_imported": self.imported,
            "quarantine_examples": [str(each) for each in self.first],
        }


class Totals:
    """Counts over the rows of an import, which come computation by computation."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.processes: set[str] = set()

    def add(self, rows: Sequence[Row]) -> None:
        self.counts["computations"] += len({row["computation"] for row in rows})
        self.counts["events"] += len(rows)
        self.counts["messages"] += sum(row["kind"] in SENDS for row in rows)
        self.processes.update(row["process"] for row in rows)

    def told(self) -> dict[str, int]:
        counts = {name: self.counts[name] for name in ("computations", "events", "messages")}
        return {**counts, "processes": len(self.processes)}


def buckets_for(size: int) -> int:
    """The number of buckets for an import of this many bytes."""
    return max(1, size // BUCKET_BYTES)


def refuse_other_format(path: AnyPath, format: str, left_out: Sequence[QuarantinedRecord]) -> None:
    """TraceFormatError for a file of which nothing was readable, if it looks like another format."""
    looks_like = detect(path) if path.is_file() else None
    if looks_like is not None and looks_like != format:
        first = f": {left_out[0].reason}" if left_out else ""
        raise TraceFormatError(
            f"nothing in it is {format}{first}. It looks like {looks_like}; say --format {looks_like}",
            file=str(path),
        )


def refuse_nothing(events: int, first: Sequence[QuarantinedRecord]) -> None:
    """TraceFormatError if nothing became an event: names the faults of the files, or says that they are
    empty."""
    if events:
        return
    problems = [each for each in first if each.reason not in (EMPTY, NO_EVENTS)] or first
    raise TraceFormatError(f"no events were found{f': {problems[0]}' if problems else ''}")


def remarks(files: Sequence[AnyPath], processes: Sequence[set[str]], together: bool) -> list[str]:
    """Warnings about the files: two have the same content, or parts of one run have no common process."""
    found = []
    seen: dict[tuple[int, str], AnyPath] = {}
    sizes = Counter(size_of(path) for path in files)
    for path in files:
        if sizes[size_of(path)] > 1:
            with path.open("rb") as raw:
                digest = hashlib.file_digest(raw, "sha256").hexdigest()
            first = seen.setdefault((size_of(path), digest), path)
            if first is not path:
                found.append(f"{path} is the same as {first}")
    for path, of_file in zip(files, processes, strict=True):
        others = set().union(*(each for each in processes if each is not of_file))
        if together and len(files) > 1 and not of_file & others:
            found.append(f"{path} shares no process with the other files; are they of one run?")
    return found


def told_facts(facts: Counter[str]) -> dict[str, int]:
    """The number of times that readers made each kind of decision, by name, without zeros."""
    return {name: facts[name] for name in sorted(facts) if facts[name]}


def not_understood(first: str, count: int) -> TraceFormatError:
    return TraceFormatError(
        f"{first}. {count} such; without --strict they go to OUT/quarantine and the rest is imported"
    )


UNKNOWN_FORMAT = (
    f"its format cannot be told from its beginning; say --format, one of {', '.join(FORMATS)}, "
    "or which fields of JSON lines or CSV mean what with --map"
)
NO_LOG = (
    "Parquet is no log of another system; a trace is not imported but asked as it is, from its directory: "
    "`happened check DIR`"
)


def choose_format(files: Sequence[AnyPath], format: str, options: Options) -> str:
    """The requested format, or else the one that all files are recognised to have."""
    by_map = None
    if options.map is not None:
        by_map = "map-spans" if mapped.Mapping(options.map).is_spans else "map"
    if by_map is not None and format not in (AUTO, by_map):
        kind = "spans" if by_map == "map-spans" else "events"
        raise TraceFormatError(f"--map of {kind} is --format {by_map}, not {format}", field="map")
    if format != AUTO:
        if format not in FORMATS:
            raise TraceFormatError(f"{format!r} is no format; known: {', '.join(FORMATS)}", field="format")
        return format
    if options.regex is not None or options.parsers is not None:
        return "shiviz"
    if by_map is not None:
        return by_map
    found = {path: detect(path) for path in files}
    wrong = {path: unreadable(path) for path, name in found.items() if name is None}
    if len(wrong) < len(files):  # the readable files decide; an empty one is reported later
        wrong = {path: reason for path, reason in wrong.items() if reason != EMPTY}
        found = {path: name for path, name in found.items() if name is not None or path in wrong}
    for path, reason in wrong.items():
        unknown = NO_LOG if path.suffix == ".parquet" else UNKNOWN_FORMAT
        raise TraceFormatError(reason or unknown, file=str(path))
    if len(set(found.values())) > 1:
        of_each = ", ".join(f"{path.name} is {name}" for path, name in found.items())
        raise TraceFormatError(f"the files are in different formats ({of_each}); import them apart")
    return str(next(iter(found.values())))


def computation_names(files: Sequence[AnyPath], reader: Format, options: Options) -> list[str]:
    """The computation that each file records: the file's name, or its path if names repeat."""
    if reader.names_computations or options.together:
        return [""] * len(files)
    names = [path.name for path in files]
    return [path.name if names.count(path.name) == 1 else str(path) for path in files]


def write_summary(directory: AnyPath, summary: dict[str, Any]) -> None:
    text = json.dumps(summary, indent=2, ensure_ascii=False) + "\n"
    (directory / "import.json").write_text(text, encoding="utf-8")
