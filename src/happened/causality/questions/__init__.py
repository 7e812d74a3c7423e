"""The questions of the pipeline, one file each; a caller asks them by name.

Every module of this package that has a QUESTION is a question; there is no other list. `happened analyze`
asks all of them, and `--only` some. `register` adds further ones.
"""

import pkgutil
from collections.abc import Sequence
from importlib import import_module

import pyarrow as pa

from ...core.errors import CausalityError
from ...trace.schema import QUARANTINE
from .question import Answers, Arrays, ColumnFold, EpochView, Fold, Question, Subject

__all__ = [
    "QUESTIONS", "TABLES", "Answers", "Arrays", "ColumnFold", "EpochView", "Fold", "Question", "Subject",
    "asked", "register", "withdraw",
]  # fmt: skip

QUESTIONS: dict[str, Question] = {}
TABLES: dict[str, pa.Schema] = {"quarantine": QUARANTINE}


def register(question: Question) -> None:
    """Add a question; no other question may have its name or its tables."""
    taken = QUESTIONS.keys() & {question.name} | TABLES.keys() & question.tables.keys()
    if taken:
        raise CausalityError(f"{', '.join(sorted(taken))}: there is such a question or table already")
    QUESTIONS[question.name] = question
    TABLES.update(question.tables)


def withdraw(name: str) -> None:
    """Remove a question that was added."""
    for table in QUESTIONS.pop(name).tables:
        del TABLES[table]


def asked(questions: Sequence[str | Question] | None = None) -> list[Question]:
    """The questions given by name or as objects; all of them if None."""
    if questions is None:
        return [*QUESTIONS.values()]
    unknown = [q for q in questions if isinstance(q, str) and q not in QUESTIONS]
    if unknown:
        raise CausalityError(f"{unknown[0]!r} is no question; ask one of {', '.join(QUESTIONS)}")
    return [QUESTIONS[q] if isinstance(q, str) else q for q in questions]


for _module in pkgutil.iter_modules(__path__):
    _question = getattr(import_module(f".{_module.name}", __name__), "QUESTION", None)
    if _question is not None:
        register(_question)
