"""`--out` and `--force`: which earlier results a command may replace.

Without --force nothing is replaced. With it, results of ours are replaced: a directory that holds anything
else is refused. Replaced results are renamed until the new ones are complete, and restored if the command
fails; in a store, where nothing can be renamed, they are deleted first.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import LocalProtocolError

if TYPE_CHECKING:
    from ..trace.store import AnyPath

RESULTS = frozenset({"summary.json", "report.html", "view.html"})
"""Files of results beside tables."""
TRACES = frozenset({"trace", "import.json"})
"""Files of an import: only another import may replace them, since the logs may be gone."""


def refuse_earlier(out: Path | None, names: Iterable[str], *, force: bool) -> None:
    """Raise if a directory has results of one of these names that may not be replaced."""
    if out is not None and out.is_file():
        raise LocalProtocolError(f"{out} is a file; name a directory to write to")
    for name in names:
        if out is not None and not force and (out / name).exists():
            raise LocalProtocolError(
                f"{out} has {name} already; name another directory, or replace it with --force"
            )


def refuse_earlier_file(path: Path | None, *, force: bool) -> None:
    """Raise if a file exists and may not be replaced, is a directory, or has no directory to be in."""
    if path is None:
        return
    if not (folder := path.parent).is_dir():
        raise LocalProtocolError(f"{path}: there is no directory {folder}; make it, or name another file")
    if path.is_dir():
        raise LocalProtocolError(f"{path} is a directory; name a file to write")
    if path.exists() and not force:
        raise LocalProtocolError(f"{path} exists already; name another file, or replace it with --force")


@contextmanager
def replacing(
    out: "AnyPath | None", *, force: bool, traces: bool = False, reads: "Iterable[AnyPath]" = ()
) -> Iterator[None]:
    """Make room for a file or directory that the body creates; without `force`, the body must refuse an
    existing one. Imported traces are replaced only if the body also makes one (`traces`), and its inputs
    (`reads`) never."""
    if out is None or not force or not out.exists():
        yield
        return
    for given in reads:
        if f"{_resolved(given)}/".startswith(f"{_resolved(out)}/"):
            raise LocalProtocolError(
                f"{out} is or holds the input, and --force would replace it: name another output"
            )
    from ..trace.store import remove_tree  # with pyarrow, which most commands do without

    if out.is_dir():
        foreign = sorted(entry.name for entry in out.iterdir() if not _is_result(entry, traces))
        if foreign:
            raise LocalProtocolError(
                f"{out} holds files that are not results of happened ({', '.join(foreign[:3])}); --force "
                "replaces results only: name another directory"
            )
    if not isinstance(out, Path):
        remove_tree(out)
        yield
        return
    aside = out.absolute().with_name(f".{out.absolute().name}.replaced")
    if aside.exists():
        raise LocalProtocolError(f"{aside} was left by a run that died; move it back to {out}, or remove it")
    out.rename(aside)
    try:
        yield
    except BaseException:
        if not out.exists():
            aside.rename(out)
        raise
    remove_tree(aside) if aside.is_dir() else aside.unlink()


def _resolved(path: "AnyPath") -> "AnyPath":
    return path.resolve() if isinstance(path, Path) else path.absolute()


def _is_result(entry: "AnyPath", traces: bool) -> bool:
    """Whether it is one of RESULTS, or a directory of Parquet alone; with `traces`, also an import's."""
    if entry.name in TRACES:
        return traces
    if entry.is_file():
        return entry.name in RESULTS
    return all(file.name.endswith(".parquet") for file in entry.rglob("*") if file.is_file())
