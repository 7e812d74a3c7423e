"""JSON: a document that is a whole file, one document per line, or several one after another.

A document that was cut off is read up to its last whole record: the text is closed after the last element of
a list of records; the caller names the fields that hold such lists.
"""

import json
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from .draft import QuarantinedRecord, excerpt
from .source import Source

Object = dict[str, Any]

LISTS = frozenset({"data", "spans", "traces", "resourceSpans", "batches", "scopeSpans", "traceEvents"})
LISTS |= {"instrumentationLibrarySpans", "Blocks", "txns", "Traces", "Segments"}
"""Fields whose lists hold records, or objects that hold records."""

NOT_BLANK = re.compile(r"\S")
NEXT_LINE = re.compile(r"[^\n]*\n?\s*")
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)


def as_object(value: Any) -> Object:
    """The value if it is an object, and otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def objects_in(value: Any) -> list[Object]:
    """The objects in a list; none if the value is no list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def objects(source: Source, *, exact: bool = False) -> Iterator[tuple[int, Object | QuarantinedRecord]]:
    """(line, object or why it is none) of JSON lines. `exact` reads fractions as Decimal, which keeps
    nanoseconds."""
    for number, text in source.lines():
        yield number, object_in(source, number, text, exact=exact)


def object_in(source: Source, number: int, text: str, *, exact: bool = False) -> Object | QuarantinedRecord:
    """The object in one line, or why there is none."""
    try:
        record = json.loads(text, parse_float=Decimal if exact else None)
    except (ValueError, RecursionError) as error:
        cut = "; the file may have been cut here" if text.lstrip()[:1] == "{" else ""
        return source.quarantined(number, text, None, f"is not JSON ({error}){cut}")
    if isinstance(record, dict):
        return record
    return source.quarantined(number, text, None, "is not a JSON object")


def document_or_lines(source: Source) -> Iterator[tuple[int | None, Any]]:
    """(None, document) if the file is one document, else (line, object) for each line that is an object.

    Anything else becomes a QuarantinedRecord, after the whole records of a document that was cut off.
    """
    text = source.text()
    try:
        yield None, json.loads(text)
        return
    except (ValueError, RecursionError) as error:
        lines = text.splitlines(keepends=True)
        if len(lines) < 2 or _json(lines[0]) is None:
            if text.strip():
                yield from _one_after_another(source.file, text, error)
            return
    yield from objects(Source(source.file, enumerate(lines, start=1)))


def _one_after_another(file: str, text: str, error: Exception) -> Iterator[tuple[int | None, Any]]:
    """(line, document) for consecutive documents, each over any number of lines.

    Lines between them that are not JSON, such as console output, are reported and skipped. If a document
    breaks off on a later line than it begins on, reading ends: the beginning of the next document is unknown.
    """
    decoder = json.JSONDecoder()
    at = len(text) - len(text.lstrip())
    line = 1 + text.count("\n", 0, at)
    while at < len(text) and not isinstance(error, RecursionError):
        end = NEXT_LINE.search(text, at).end()  # type: ignore[union-attr]
        try:
            if text[at] not in "{[":
                raise json.JSONDecodeError("Expecting value", text[at:end], 0)
            document, end = decoder.raw_decode(text, at)
        except RecursionError as problem:
            error = problem
            break
        except json.JSONDecodeError as problem:
            reached = problem.pos - at if text[at] in "{[" else 0
            broken = text[at:] if reached >= end - at or end == len(text) else text[at:end]
            error = json.JSONDecodeError(problem.msg, broken, reached)
            yield from _before_the_cut(file, broken, line, error)
            end = at + len(broken)
        else:
            yield line, document
        following = NOT_BLANK.search(text, end)
        start, at = at, following.start() if following is not None else len(text)
        line += text.count("\n", start, at)
    if at < len(text):
        yield from _before_the_cut(file, text[at:], line, error)


def records(source: Source, lists: Iterable[str]) -> Iterator[tuple[int, Any, dict[str, Any]]]:
    """(number, record, innermost enclosing object) for the members of `lists`, and of the lists in those
    fields of objects; the number is a line number, or counts the records of a document."""
    names = tuple(lists)
    count = 0
    for line, document in document_or_lines(source):
        for record, holder in members(document, {}, names):
            count += 1
            yield line or count, record, holder


def members(
    value: Any, holder: dict[str, Any], names: tuple[str, ...]
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """(record, innermost enclosing object) for each record in `value`, as for `records`."""
    if isinstance(value, list):
        for member in value:
            yield from members(member, holder, names)
    elif isinstance(value, dict) and (
        held := next((n for n in names if isinstance(value.get(n), list)), None)
    ):
        yield from members(value[held], value, names)
    else:
        yield value, holder


def _before_the_cut(file: str, text: str, line: int, error: Exception) -> Iterator[tuple[None, Any]]:
    """The complete records of a document that breaks off, and why the rest is unreadable."""
    mended = _mended(text) if not isinstance(error, RecursionError) else None
    if mended is not None:
        yield None, mended
    number, at = None, 0
    if isinstance(error, json.JSONDecodeError):
        number, at = line + error.lineno - 1, error.pos
    # Python reports an unterminated string at its beginning, other incomplete values at the end of the text.
    cut = "; the file ends too early" if at >= len(text.rstrip()) or "Unterminated" in str(error) else ""
    kept = "; the records before are imported" if mended is not None else ""
    reason = f"is not JSON ({error}){cut}{kept}"
    yield None, QuarantinedRecord(file, number, None, reason, excerpt(text[max(0, at - 80) :]))


def _mended(text: str) -> Any:
    """The document up to its last complete record, with open brackets closed; None if there is no complete
    record."""
    stack: list[tuple[str, bool]] = []  # closing bracket, and whether it closes a list of records
    key = previous = ""
    whole: tuple[int, str] | None = None
    for token in TOKEN.finditer(text):
        mark = token[0]
        if mark in "{[":
            in_list = bool(stack) and stack[-1][0] == "]" and stack[-1][1]
            holds = mark == "[" and (not stack or in_list or (previous == ":" and key in LISTS))
            stack.append(("]" if mark == "[" else "}", holds))
        elif mark in "}]":
            if not stack or stack.pop()[0] != mark:
                return None  # invalid rather than cut off
            if stack and stack[-1][1]:
                whole = (token.end(), "".join(bracket for bracket, _ in reversed(stack)))
        elif mark == ":":
            key = previous[1:-1]
        previous = mark
    return _json(text[: whole[0]] + whole[1]) if whole is not None and stack else None


def _json(text: str) -> Any:
    """The object or list that a text encodes; None if it encodes none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None
