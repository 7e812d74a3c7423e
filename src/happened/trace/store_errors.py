"""Turn errors of object stores into sentences that say what to do.

The libraries' own error texts are long, and may quote the request.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol
from urllib.parse import parse_qsl

import pyarrow as pa

from ..core.errors import CausalityError

REFUSED = (
    "OAuth2",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH",
    "EXPIRED_TOKEN",
    "MISSING_",
)
UNREACHABLE = ("NETWORK_CONNECTION", "REQUEST_TIMEOUT", "Bucket region resolution failed", "UNAVAILABLE")
CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or a role, or ?anonymous=true in the URL)",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "abfss": "AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET (or log in with `az login`)",
}
ABSENT = ("Unrecognized filesystem", "compiled without", "Unable to load libjvm", "libhdfs")


class StoreLocation(Protocol):
    """What a sentence says about a path in a store; `store.StorePath` is one."""

    @property
    def scheme(self) -> str: ...
    @property
    def options(self) -> str: ...
    def _at(self, path: str) -> object: ...


@contextmanager
def explained(path: StoreLocation) -> Iterator[None]:
    """Turn what pyarrow raises into a CausalityError that says what to do; FileNotFoundError stays."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise store_error(path, error) from error


def store_error(path: StoreLocation, error: Exception) -> CausalityError:
    reason = reason_of(path, error)
    said = str(error).partition("\n")[0][:200]
    return CausalityError(reason or f"{path}: the store fails ({said}); try again, or look at its log")


def reason_of(path: StoreLocation, error: Exception) -> str | None:
    """What is wrong and what to do; None if nothing is known about such an error."""
    text = str(error)
    code = re.search(r"AWS Error (\w+) during (\w+)", text)
    said = f" ({code[1]} during {code[2]})" if code else ""
    if "NO_SUCH_BUCKET" in text:
        return no_bucket(path)
    if any(word in text for word in REFUSED):
        return (
            f"{path}: the store refuses these credentials{said}; set "
            f"{CREDENTIALS.get(path.scheme, 'a user who may do so')} for the driver and for every executor, "
            "and see that they may read and write there"
        )
    if any(word in text for word in UNREACHABLE):
        named = " (endpoint_override in the URL, or AWS_ENDPOINT_URL)" if path.scheme == "s3" else ""
        return (
            f"{path}: the store cannot be reached{_endpoint(path)}; see that it runs, and that this machine "
            f"reaches it{named}"
        )
    if isinstance(error, ImportError) or any(word in text for word in ABSENT):
        needs = " and Hadoop's libraries (JAVA_HOME, HADOOP_HOME, CLASSPATH)" if path.scheme == "hdfs" else ""
        return (
            f"{path}: the pyarrow installed here cannot open {path.scheme}://; it needs one with that "
            f"filesystem{needs}; or copy the files to another storage"
        )
    return f"{path}: the store fails{said}; try again, or look at its log" if code else None


def no_bucket(path: StoreLocation) -> str:
    return f"{path._at('')}: there is no such bucket{_endpoint(path)}; create it, or correct its name"


def _endpoint(path: StoreLocation) -> str:
    options = dict(parse_qsl(path.options))
    given = options.get("endpoint_override") or environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    return f" at {given.rpartition('@')[2]}" if given and path.scheme == "s3" else ""


def environment(*names: str) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)
