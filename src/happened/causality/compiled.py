"""Compile kernels on first call, and cache their machine code for later processes.

numba caches the code beside the source or in the user's cache; for a package inside an archive only if the
archive is called .zip, and by the archive's path. A wheel given to spark-submit is called .whl, and Spark
copies it to a new path for every run. So for an archive, the cache's location depends on the content of the
source. If no location is writable, every process compiles for itself: some 10 s.
"""

import hashlib
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import config, njit
from numba.core import caching


def compiled(kernel: Callable[..., Any]) -> Any:
    try:
        return njit(cache=True)(kernel)
    except RuntimeError:  # no writable place for the code
        return njit(kernel)


class ArchiveCacheLocator(caching.UserWideCacheLocator):
    """Caches compiled functions in the user's cache directory if the package is in an archive."""

    def __init__(self, kernel: Any, file: str) -> None:
        super().__init__(kernel, file)  # type: ignore[no-untyped-call]
        archive = next(parent for parent in Path(file).parents if parent.is_file())
        with zipfile.ZipFile(archive) as opened:
            source = opened.read(Path(file).relative_to(archive).as_posix())
        self._stamp = hashlib.sha256(source).hexdigest()
        self._cache_path = str(Path(self._cache_path).with_name(f"happened_{self._stamp[:16]}"))

    def get_source_stamp(self) -> str:
        return self._stamp

    @classmethod
    def from_function(cls, kernel: Any, file: str) -> "ArchiveCacheLocator | None":
        if os.path.exists(file) or not any(parent.is_file() for parent in Path(file).parents):
            return None
        locator = cls(kernel, file)
        try:
            locator.ensure_cache_path()  # type: ignore[no-untyped-call]
        except OSError:
            return None
        return locator


if not os.path.exists(__file__):
    usual = "UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator"
    classes = f"{usual},{__name__}.ArchiveCacheLocator"
    config.CACHE_LOCATOR_CLASSES = classes  # type: ignore[attr-defined]
