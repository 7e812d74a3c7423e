"""JSON documents: a whole file, or one document per line, as exporters write them."""

import json
from collections.abc import Iterator
from typing import Any

from .draft import Quarantined, excerpt
from .jsonlines import objects
from .source import Source


def document_or_lines(source: Source) -> Iterator[tuple[int | None, Any]]:
    """(None, document) of a file that is one, else (line, object) of each line that is one.

    What is neither comes as a Quarantined.
    """
    text = source.text()
    try:
        yield None, json.loads(text)
        return
    except (ValueError, RecursionError) as error:
        lines = text.splitlines(keepends=True)
        if len(lines) < 2 or not _is_json(lines[0]):
            if text.strip():
                yield None, _not_json(source.file, text, error)
            return
    yield from objects(Source(source.file, enumerate(lines, start=1)))


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


def _not_json(file: str, text: str, error: Exception) -> Quarantined:
    line = error.lineno if isinstance(error, json.JSONDecodeError) else None
    at = error.pos if isinstance(error, json.JSONDecodeError) else 0
    # Python reports an unterminated string where it begins, anything else that lacks an end at the end.
    cut = "; the file ends too early" if at >= len(text.rstrip()) or "Unterminated" in str(error) else ""
    return Quarantined(file, line, None, f"is not JSON ({error}){cut}", excerpt(text[max(0, at - 80) :]))
