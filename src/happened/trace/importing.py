"""Import foreign logs: files in, a trace, a quarantine and a summary out.

OUT gets trace/part-*.parquet, quarantine/part-000000.parquet (readers.QUARANTINE) and import.json, all at
once or not at all: it is made beside its final place and renamed.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow.parquet as pq

from ..core.errors import TraceFormatError
from .atomic import whole_directory, whole_file
from .readers import FORMATS, Assembly, Draft, Format, Options, Quarantined, open_source
from .readers.detection import detect
from .readers.draft import storable, table_of
from .store import AnyPath
from .writer import TraceWriter

AUTO = "auto"
EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Import:
    """What an import did; `summary` is also OUT/import.json."""

    summary: dict[str, Any]
    quarantined: Sequence[Quarantined]  # the first EXAMPLES at least


def import_files(
    files: Sequence[AnyPath],
    out: AnyPath,
    *,
    format: str = AUTO,
    options: Options | None = None,
    strict: bool = False,
    progress: Callable[[int], object] = lambda files: None,
) -> Import:
    """Read all files, which have one format, into a new trace; raise TraceFormatError if that fails.

    strict   nothing is written if anything had to be quarantined.
    progress is told the number of files done.
    """
    if out.exists():
        raise TraceFormatError("is already there; remove it or import elsewhere", file=str(out))
    options = options or Options()
    name = choose_format(files, format, options)
    reader = FORMATS[name]
    drafts, quarantined, told = _parse(files, reader, options, progress)
    assembly = reader.assemble(drafts, options)
    quarantined += assembly.quarantined
    if strict and quarantined:
        raise not_understood(str(quarantined[0]), len(quarantined))
    summary = {
        "format": name,
        "options": asdict(options),
        **_totals(assembly, quarantined),
        "facts": told_facts(assembly.facts),
        "files": told,
    }
    _write(out, assembly, quarantined, summary)
    return Import(summary, quarantined)


def told_facts(facts: Counter[str]) -> dict[str, int]:
    """What readers had to decide, by name; what did not occur is left out."""
    return {name: facts[name] for name in sorted(facts) if facts[name]}


def not_understood(first: str, count: int) -> TraceFormatError:
    return TraceFormatError(
        f"{first}. {count} such; without --strict they go to OUT/quarantine and the rest is imported"
    )


def choose_format(files: Sequence[AnyPath], format: str, options: Options) -> str:
    """The format that was asked for, or else the one that all files are recognised to be in."""
    if format != AUTO:
        if format not in FORMATS:
            raise TraceFormatError(f"{format!r} is no format; known: {', '.join(FORMATS)}", field="format")
        return format
    if options.regex is not None or options.parsers is not None:
        return "shiviz"
    found = {path: detect(path) for path in files}
    unknown = next((path for path, name in found.items() if name is None), None)
    if unknown is not None:
        raise TraceFormatError(
            f"its format cannot be told from its beginning; say --format, one of {', '.join(FORMATS)}",
            file=str(unknown),
        )
    if len(set(found.values())) > 1:
        of_each = ", ".join(f"{path.name} is {name}" for path, name in found.items())
        raise TraceFormatError(f"the files are in different formats ({of_each}); import them apart")
    return str(next(iter(found.values())))


def _parse(
    files: Sequence[AnyPath], reader: Format, options: Options, progress: Callable[[int], object]
) -> tuple[list[Draft], list[Quarantined], list[dict[str, Any]]]:
    drafts: list[Draft] = []
    quarantined: list[Quarantined] = []
    told = []
    for path, computation in zip(files, computation_names(files, reader, options), strict=True):
        source = open_source(path, computation)
        of_file: list[Draft] = []
        left_out: list[Quarantined] = []
        for parsed in storable(reader.parse(source, options)):
            if isinstance(parsed, Draft):
                of_file.append(parsed)
            else:
                left_out.append(parsed)
        left_out += source.faults
        if not of_file and not left_out:
            left_out.append(Quarantined(str(path), None, None, "holds no events"))
        counts = reader.counts(of_file)
        records = sum(not draft.absent for draft in of_file)
        told.append({"file": str(path), "records": records, "quarantined": len(left_out), **counts})
        drafts += of_file
        quarantined += left_out
        progress(1)
    return drafts, quarantined, told


def computation_names(files: Sequence[AnyPath], reader: Format, options: Options) -> list[str]:
    """The computation that each file records: the file's name, or its path where names repeat."""
    if reader.names_computations or options.together:
        return [""] * len(files)
    names = [path.name for path in files]
    return [path.name if names.count(path.name) == 1 else str(path) for path in files]


def _totals(assembly: Assembly, quarantined: Sequence[Quarantined]) -> dict[str, Any]:
    computations: dict[str, dict[str, Any]] = {}
    for row in assembly.rows:
        of = computations.setdefault(row["computation"], {"events": 0, "processes": set(), "messages": 0})
        of["events"] += 1
        of["messages"] += row["kind"] == "send"
        of["processes"].add(row["process"])
    every = computations.values()
    return {
        "computations": len(computations),
        "processes": len({process for of in every for process in of["processes"]}),
        "events": len(assembly.rows),
        "messages": sum(of["messages"] for of in every),
        "quarantined": len(quarantined),
        "quarantined_imported": sum(each.imported for each in quarantined),
        "quarantine_examples": [str(each) for each in quarantined[:EXAMPLES]],
    }


def _write(
    out: AnyPath, assembly: Assembly, quarantined: Sequence[Quarantined], summary: dict[str, Any]
) -> None:
    with whole_directory(out) as folder:
        with TraceWriter(folder / "trace") as writer:
            for row in assembly.rows:
                writer.append(row)
        (folder / "quarantine").mkdir()
        with whole_file(folder / "quarantine" / "part-000000.parquet") as unfinished:
            pq.write_table(table_of(quarantined), unfinished)
        write_summary(folder, summary)


def write_summary(directory: AnyPath, summary: dict[str, Any]) -> None:
    text = json.dumps(summary, indent=2, ensure_ascii=False) + "\n"
    (directory / "import.json").write_text(text, encoding="utf-8")
