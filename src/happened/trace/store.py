"""Storage of traces and tables, on this machine or in an object store.

`any_path` makes a `pathlib.Path` of a local path or file:// URL, and a `StorePath` of any other URL. A
StorePath has the methods of Path that we use, with the same names and meaning, so that code works for both;
the functions below and `atomic` do the rest.

Promises   a StorePath is a few strings: it pickles to Spark's executors, and each process connects once by
           itself. If a store refuses or is unreachable, a CausalityError says so soon.
Leaves out incremental writing. pyarrow completes an object even if its stream is abandoned, so half a file
           would look whole: `atomic.whole_file` writes to a local file first.

The URL's options (s3://bucket/key?endpoint_override=…) or the environment say how to connect. Credentials are
in the environment only: URLs end up in logs and messages, so a URL with a password is refused.
"""

import io
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa

from ..core.errors import CausalityError
from .store_errors import environment, explained, no_bucket, store_error

SCHEMES = ("s3", "s3a", "gs", "abfss", "hdfs")
OPTIONS = {
    "s3": ("endpoint_override", "scheme", "region", "anonymous", "force_virtual_addressing"),
    "gs": ("endpoint_override", "scheme", "retry_limit_seconds"),
    "abfss": (
        "enable_tls",
        "blob_storage_authority",
        "dfs_storage_authority",
        "credential_kind",
        "tenant_id",
    ),
    "hdfs": ("user", "replication"),
}
"""The options allowed in the query of a URL, by scheme; no secrets."""

CONNECT_SECONDS = 5.0
SILENT_SECONDS = 20.0
ATTEMPTS = 3
"""Timeouts of a store, for connecting and for answers, and the number of attempts."""

READ_AHEAD = 4 << 20
"""Bytes per request when a file is read sequentially, line by line."""


@dataclass(frozen=True, slots=True)
class StorePath:
    """An object in a store, or all objects whose names begin with its name and "/", like a directory."""

    scheme: str  # a key of OPTIONS
    authority: str  # the bucket; container@account; host:port
    key: str  # names joined by "/"
    options: str = ""  # the connection options, as in the URL

    def __str__(self) -> str:
        """The URL; `any_path` turns it back into the same StorePath."""
        return self._url(self.scheme) + (f"?{self.options}" if self.options else "")

    def _url(self, scheme: str) -> str:
        return f"{scheme}://{self.authority}/{self.key}".rstrip("/")

    @property
    def hadoop_url(self) -> str:
        """The URL for Spark's own reader and writer, which have different options and connectors."""
        return self._url("s3a" if self.scheme == "s3" else self.scheme)

    @property
    def name(self) -> str:
        return PurePosixPath(self.key).name

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.key).suffix

    @property
    def stem(self) -> str:
        return PurePosixPath(self.key).stem

    @property
    def parent(self) -> "StorePath":
        """The parent path; a bucket is its own parent."""
        return self._at(self.key.rpartition("/")[0])

    def __truediv__(self, below: str) -> "StorePath":
        return self._at(f"{self.key}/{below}")

    def with_name(self, name: str) -> "StorePath":
        return self.parent / name

    def relative_to(self, other: "StorePath") -> PurePosixPath:
        return PurePosixPath(self.key).relative_to(other.key)

    def __lt__(self, other: "StorePath") -> bool:
        return self.key.split("/") < other.key.split("/")  # the same order as Path's

    def absolute(self) -> "StorePath":
        return self

    def exists(self) -> bool:
        return self._type() != "NotFound"

    def is_file(self) -> bool:
        return self._type() == "File"

    def is_dir(self) -> bool:
        return self._type() == "Directory"

    def size(self) -> int:
        with explained(self):
            return int(self._filesystem().get_file_info(self._inside()).size or 0)

    def iterdir(self) -> Iterator["StorePath"]:
        """The direct children, sorted by name."""
        return iter(self._below(recursive=False))

    def glob(self, pattern: str) -> Iterator["StorePath"]:
        return (path for path in self._below(recursive=False) if fnmatchcase(path.name, pattern))

    def rglob(self, pattern: str) -> Iterator["StorePath"]:
        return (path for path in self._below(recursive=True) if fnmatchcase(path.name, pattern))

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """Open for reading; use `atomic.whole_file` for writing."""
        if mode != "rb":
            raise ValueError(f"a store's file is opened for reading, rb, not {mode!r}")
        return io.BufferedReader(_Reading(self), READ_AHEAD)

    def open_arrow(self) -> Any:
        """Open for reading with pyarrow: a NativeFile with random access."""
        with explained(self):
            return self._filesystem().open_input_file(self._inside())

    def read_bytes(self) -> bytes:
        with self.open() as file:
            return file.read()

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def write_bytes(self, data: bytes) -> None:
        """Write the whole object, replacing an existing one."""
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            self.put(Path(file.name))

    def write_text(self, text: str, encoding: str = "utf-8") -> None:
        self.write_bytes(text.encode(encoding))

    def put(self, file: Path) -> None:
        """Upload a local file atomically: readers see the previous object or the whole new one."""
        # An object appears under its name when its upload ends. A file of HDFS appears when writing begins,
        # and HDFS does not rename to an existing name.
        target = self.with_name(f".{self.name}.{os.urandom(8).hex()}") if self.scheme == "hdfs" else self
        with explained(self):
            filesystem = self._filesystem()
            # One write, which no interrupt divides, then close: close reports if a part of the upload failed,
            # and then completes no object. pyarrow's copy_files does not report such a failure.
            with pa.memory_map(str(file)) as data, filesystem.open_output_stream(target._inside()) as stream:
                stream.write(data.read_buffer())
            if target != self:
                self.unlink(missing_ok=True)
                filesystem.move(target._inside(), self._inside())

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: an object store has no empty directories."""

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            with explained(self):
                self._filesystem().delete_file(self._inside())
        except FileNotFoundError:
            if not missing_ok:
                raise

    def _at(self, key: str) -> "StorePath":
        return StorePath(self.scheme, self.authority, _names(key), self.options)

    def _filesystem(self) -> Any:
        return _connected(self.scheme, self.authority, self.options)[0]

    def _inside(self) -> str:
        """The path within the pyarrow filesystem."""
        root = _connected(self.scheme, self.authority, self.options)[1]
        return f"{root}/{self.key}" if self.key else root or "/"

    def _type(self) -> str:
        with explained(self):
            found = str(self._filesystem().get_file_info(self._inside()).type.name)
        if found == "NotFound":
            self._refuse_missing_bucket()
        return found

    def _refuse_missing_bucket(self) -> None:
        """Raise CausalityError if the bucket does not exist: S3 gives the same answer for a missing
        object."""
        if self.scheme == "s3" and self.key:
            try:
                bucket = self._filesystem().get_file_info(self.authority)
            except OSError:  # permission to read objects does not imply access to the bucket
                return
            if bucket.type.name == "NotFound":
                raise CausalityError(no_bucket(self))

    def _below(self, *, recursive: bool, files: bool = False) -> list["StorePath"]:
        from pyarrow.fs import FileSelector

        selector = FileSelector(self._inside(), allow_not_found=True, recursive=recursive)
        with explained(self):
            found = self._filesystem().get_file_info(selector)
        if not found:
            self._refuse_missing_bucket()
        beyond = len(self._inside().rstrip("/")) + 1
        return sorted(self / info.path[beyond:] for info in found if info.is_file or not files)


AnyPath = Path | StorePath


def any_path(given: "str | os.PathLike[str] | StorePath") -> AnyPath:
    """A local path or, for a URL, a StorePath; opens no connection. CausalityError if the URL is not
    supported."""
    if isinstance(given, StorePath):
        return given
    if not isinstance(given, str):
        path = Path(given)
        if path.parts and path.parts[0].removesuffix(":") in ("file", *SCHEMES) and path.parts[0][-1] == ":":
            raise CausalityError(
                f"{path} was a URL before it became a local path; give the URL as text, or make a path of it "
                "with happened.trace.store.any_path"
            )
        return path
    scheme, there, rest = given.partition("://")
    if not there or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return Path(given)
    scheme = scheme.lower()
    if scheme == "file":
        parts = urlsplit(given)
        if parts.netloc not in ("", "localhost"):
            raise CausalityError(
                f"{given} names a file of another host; write file:///path, with three slashes"
            )
        return Path(unquote(parts.path))
    if scheme not in SCHEMES:
        known = ", ".join(f"{each}://" for each in SCHEMES)
        raise CausalityError(
            f"{scheme}:// is no storage I know; give a local path, or a URL that begins with file://, {known}"
        )
    return _parsed("s3" if scheme == "s3a" else scheme, rest)


def files_below(path: AnyPath) -> list[AnyPath]:
    """All files below a directory, in the order of their names; none if there is no directory."""
    if isinstance(path, StorePath):
        return [*path._below(recursive=True, files=True)]
    return sorted(file for file in path.rglob("*") if file.is_file())


def matching(directory: AnyPath, pattern: str) -> list[AnyPath]:
    """The paths in a directory that match a pattern, sorted by name; none if there is no directory."""
    if isinstance(directory, StorePath):
        return [*directory.glob(pattern)]
    return [*sorted(directory.glob(pattern))]


def remove_tree(path: AnyPath) -> None:
    """Remove a directory and its contents; do nothing if it does not exist."""
    if not isinstance(path, StorePath):
        if path.exists():
            shutil.rmtree(path)
        return
    try:
        with explained(path):
            path._filesystem().delete_dir(path._inside())
    except FileNotFoundError:
        pass


def size_of(path: AnyPath) -> int:
    """The number of bytes of a file."""
    return path.size() if isinstance(path, StorePath) else path.stat().st_size


def versions_of(paths: Sequence[AnyPath]) -> list[tuple[int, int]]:
    """The size in bytes and modification time in ns of each file; they change when the file changes."""
    found: dict[AnyPath, tuple[int, int]] = {}
    stores: dict[tuple[str, str, str], list[StorePath]] = {}
    for path in paths:
        if isinstance(path, StorePath):
            stores.setdefault((path.scheme, path.authority, path.options), []).append(path)
        else:
            about = path.stat()
            found[path] = about.st_size, about.st_mtime_ns
    for group in stores.values():
        with explained(group[0]):
            told = group[0]._filesystem().get_file_info([path._inside() for path in group])
        found |= {path: (info.size or 0, info.mtime_ns or 0) for path, info in zip(group, told, strict=True)}
    return [found[path] for path in paths]


def arrow_source(path: AnyPath) -> Any:
    """The argument with which pyarrow's readers open this file."""
    return path.open_arrow() if isinstance(path, StorePath) else path


def arrow_dataset(directory: AnyPath, schema: pa.Schema | None = None) -> Any:
    """The Parquet files of a directory as a pyarrow Dataset."""
    import pyarrow.dataset as ds

    if not isinstance(directory, StorePath):
        return ds.dataset(directory, schema, format="parquet")
    with explained(directory):
        parts = [part._inside() for part in directory.glob("*.parquet")]
        return ds.dataset(parts, schema, format="parquet", filesystem=directory._filesystem())


def _parsed(scheme: str, rest: str) -> StorePath:
    before, _, options = rest.partition("?")
    authority, _, key = before.partition("/")
    user, has_user, bucket = authority.rpartition("@")
    if ":" in user or (has_user and scheme == "s3"):
        raise CausalityError(
            f"{scheme}://…@{bucket}: credentials in a URL would be shown in logs; take them out and set them "
            "in the environment (for S3 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
        )
    if not bucket:
        raise CausalityError(f"{scheme}:///{key} names no bucket; write {scheme}://BUCKET/{key or 'NAME'}")
    if scheme == "abfss" and not has_user:
        raise CausalityError(
            f"abfss://{bucket} names no container; write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/NAME"
        )
    for option, _ in parse_qsl(options, keep_blank_values=True):
        if option not in OPTIONS[scheme]:
            raise CausalityError(
                f"{scheme}://{authority}/{key}: {option!r} is no option of its URL; "
                f"it may have {', '.join(OPTIONS[scheme])}"
            )
    return StorePath(scheme, authority, _names(key), options)


def _names(key: str) -> str:
    return "/".join(name for name in key.split("/") if name)


class _Reading(io.RawIOBase):
    """A store's file in the interface of the standard library, with errors that say what to do."""

    def __init__(self, path: StorePath) -> None:
        self._path = path
        self._file = path.open_arrow()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readinto(self, buffer: Any) -> int:
        with explained(self._path):
            return int(self._file.readinto(buffer))

    def readall(self) -> bytes:
        with explained(self._path):
            return bytes(self._file.readall())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


@cache
def _connected(scheme: str, authority: str, options: str) -> tuple[Any, str]:
    """The filesystem, and the path of its root within it."""
    from pyarrow import fs

    path = StorePath(scheme, authority, "", options)
    try:
        if scheme == "s3":
            return _s3(authority, dict(parse_qsl(options))), authority
        query = options
        if scheme == "gs" and "retry_limit_seconds" not in options:
            query = "&".join(filter(None, [options, f"retry_limit_seconds={ATTEMPTS * SILENT_SECONDS:.0f}"]))
        filesystem, root = fs.FileSystem.from_uri(f"{path._url(scheme)}/{query and '?' + query}")
    except (OSError, ImportError, pa.ArrowException) as error:
        raise store_error(path, error) from error
    return filesystem, root.rstrip("/")


def _s3(bucket: str, options: dict[str, str]) -> Any:
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem, resolve_s3_region

    endpoint = options.get("endpoint_override") or environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    protocol, there, host = (endpoint or "").partition("://")
    if not there:
        protocol, host = "https", protocol
    region = options.get("region") or environment("AWS_REGION", "AWS_DEFAULT_REGION")
    if region is None:
        region = "us-east-1" if host else resolve_s3_region(bucket)
    return S3FileSystem(
        anonymous=_is_true(options.get("anonymous")),
        region=region,
        scheme=options.get("scheme") or protocol,
        endpoint_override=host or None,
        force_virtual_addressing=_is_true(options.get("force_virtual_addressing")),
        connect_timeout=CONNECT_SECONDS,
        request_timeout=SILENT_SECONDS,
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        allow_delayed_open=True,  # a small object then takes one request, not three
    )


def _is_true(text: str | None) -> bool:
    return (text or "").lower() in ("1", "true", "yes")
