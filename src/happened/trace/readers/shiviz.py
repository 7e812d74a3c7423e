r"""ShiViz and GoVector logs: a regular expression finds the host, clock and event in the text.

The expression is JavaScript's, as in ShiViz, (?<host>…), or Python's, (?P<host>…); it may span lines and need
match no more than a part of one.
The expression comes from --regex; from a file of {"log", "parser", "delimiter"} objects (--parsers); from the
log itself, if its first line is one (its second line may then be the delimiter); or it is GoVector's own,
(?<host>\S*) (?<clock>{.*})\n(?<event>.*). A delimiter matches the line before each of several runs; its group
`trace` names the run. Other groups become attributes.

A log holds no message names: causes are read off the clocks, see clocked.py.
"""

import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from ...core.errors import TraceFormatError
from .clocked import assemble_clocked, clock_problem
from .clocked import counts as counts
from .draft import Assembly, Draft, Options, Parsed, QuarantinedRecord, excerpt
from .source import Source

GOVECTOR = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"
GROUPS = ("host", "clock", "event")
JAVASCRIPT_GROUP = re.compile(r"(?<!\\)\(\?<(?=[A-Za-z_])")
JAVASCRIPT_REFERENCE = re.compile(r"\\k<(\w+)>")


def compile_javascript(expression: str, needs: Iterable[str] = ()) -> re.Pattern[str]:
    """A regular expression with named groups in either notation; TraceFormatError if it is none."""
    python = JAVASCRIPT_REFERENCE.sub(r"(?P=\1)", JAVASCRIPT_GROUP.sub("(?P<", expression))
    try:
        pattern = re.compile(python, re.MULTILINE)
    except re.error as error:
        raise TraceFormatError(f"{expression!r} is no regular expression: {error}", field="regex") from error
    missing = [name for name in needs if name not in pattern.groupindex]
    if missing:
        reason = f"{expression!r} has no group {' or '.join(missing)}; write (?<{missing[0]}>…) in it"
        raise TraceFormatError(reason, field="regex")
    return pattern


def begins_with_regex(text: str) -> bool:
    first = text.partition("\n")[0]
    return bool(JAVASCRIPT_GROUP.search(first)) and all(f"<{name}>" in first for name in GROUPS)


def parse(source: Source, options: Options) -> Parsed:
    text = source.text()
    regex, delimiter, start = _expressions(text, source.file, options)
    pattern = compile_javascript(regex, GROUPS)
    log = _Log(source.file, text, start)
    for computation, begin, end in _runs(log, source.computation, delimiter):
        for match in pattern.finditer(text, begin, end):
            if match[0]:  # an expression that matches nothing at all would match everywhere
                log.found(match)
                yield _draft(match, log, computation)
    yield from log.unmatched(regex)


def assemble(drafts: Iterable[Draft], options: Options) -> Assembly:
    return assemble_clocked(drafts, causes_from_clocks=True)


class _Log:
    """The text with its line numbers, and the lines in which the expression matched."""

    def __init__(self, file: str, text: str, start: int) -> None:
        self.file, self.text, self.start = file, text, start
        self._ends = [match.start() for match in re.finditer("\n", text)]
        self._found: set[int] = set()

    def line(self, offset: int) -> int:
        return bisect_left(self._ends, offset) + 1

    def found(self, match: re.Match[str]) -> None:
        self._found.update(range(self.line(match.start()), self.line(match.end() - 1) + 1))

    def unmatched(self, regex: str) -> Iterator[QuarantinedRecord]:
        """The lines without a match; TraceFormatError if no line has one."""
        numbered = enumerate(self.text[self.start :].split("\n"), start=self.line(self.start))
        lines = [(number, text) for number, text in numbered if text.strip()]
        left = [(number, text) for number, text in lines if number not in self._found]
        if lines and len(left) == len(lines):
            number, first = left[0]
            raise TraceFormatError(
                f"{regex!r} matches 0 of {len(lines)} lines; the first that does not is line {number}: "
                f"{excerpt(first)!r}. Give the log's own: --regex '(?<host>…) (?<clock>{{.*}})…(?<event>…)'",
                file=self.file,
                field="regex",
            )
        matched = len(lines) - len(left)
        reason = f"does not match the regular expression; {matched} of {len(lines)} lines do"
        for number, text in left:
            yield QuarantinedRecord(self.file, number, "regex", reason, excerpt(text))


def _expressions(text: str, file: str, options: Options) -> tuple[str, str | None, int]:
    """The regular expression, the delimiter, and where the log itself begins."""
    if options.regex is not None:
        return options.regex, options.delimiter, 0
    if options.parsers is not None:
        for entry in _parsers(options.parsers):
            if entry.get("log") == Path(file).name:
                return str(entry["parser"]), options.delimiter or entry.get("delimiter"), 0
    if begins_with_regex(text):
        first, _, rest = text.partition("\n")
        second = rest.partition("\n")[0]
        named = "(?<trace>" in second or "(?P<trace>" in second
        start = len(first) + 1 + (len(second) + 1 if named else 0)
        return first.strip(), options.delimiter or (second.strip() if named else None), min(start, len(text))
    return GOVECTOR, options.delimiter, 0


def _parsers(path: str) -> list[dict[str, str]]:
    try:
        entries = json.loads(Path(path).read_text(encoding="utf-8"))
        if all(isinstance(entry, dict) and "log" in entry and "parser" in entry for entry in entries):
            return list(entries)
    except (OSError, ValueError, TypeError) as error:
        raise TraceFormatError(f"cannot be read as parsers: {error}", file=path) from error
    raise TraceFormatError('is no list of {"log": …, "parser": …, "delimiter": …}', file=path)


def _runs(log: _Log, computation: str, delimiter: str | None) -> Iterator[tuple[str, int, int]]:
    """(computation, begin, end) of each run."""
    begin, name = log.start, computation
    used: Counter[str] = Counter()
    if delimiter is not None:
        pattern = compile_javascript(delimiter)
        for number, match in enumerate(pattern.finditer(log.text, log.start), start=1):
            if number > 1 or log.text[begin : match.start()].strip():
                yield name, begin, match.start()
            label = match["trace"] if "trace" in pattern.groupindex else str(number)
            used[label] += 1
            again = f" ({used[label]})" if used[label] > 1 else ""
            begin, name = match.end(), f"{computation}#{label}{again}"
            log.found(match)
    yield name, begin, len(log.text)


def _draft(match: re.Match[str], log: _Log, computation: str) -> Draft | QuarantinedRecord:
    line = log.line(match.start())
    groups = {name: value.strip() for name, value in match.groupdict().items() if value is not None}
    host = groups.pop("host", "")
    label = groups.pop("event", "")

    def rejected(field: str, reason: str) -> QuarantinedRecord:
        return QuarantinedRecord(log.file, line, field, reason, excerpt(match[0]))

    if not host:
        return rejected("host", "is empty; every event belongs to a host")
    text = groups.pop("clock", "")
    if '\\"' in text:  # as TLA+ prints a string that holds a clock: with its quotation marks escaped
        text = text.strip('"').replace('\\"', '"')
    try:
        clock = json.loads(text)
    except (ValueError, RecursionError) as error:
        return rejected("clock", f"is not JSON: {error}")
    problem = clock_problem(host, clock)
    if problem is not None:
        return rejected("clock", problem)
    clock = {name: count for name, count in clock.items() if count}
    return Draft(log.file, line, computation, host, label, clock=clock, attributes=groups)
