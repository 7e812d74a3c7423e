"""A real S3 server on loopback, for the tests of every room that reads or writes URLs.

The fixture `bucket` (tests/conftest.py) gives a test a URL of its own in it, and the environment to reach it.
"""

import json
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pyarrow.fs import FileType, S3FileSystem

from net.brokers import free_ports

KEY, SECRET = "tests", "secret-of-the-tests"
BUCKET = "traces"


class ObjectStore(NamedTuple):
    endpoint: str

    @property
    def environment(self):
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
        }

    def filesystem(self):
        """pyarrow's own, as the test's view of what lies there."""
        return S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            region="us-east-1",
            scheme="http",
            endpoint_override=self.endpoint.removeprefix("http://"),
            allow_bucket_creation=True,
            connect_timeout=2,
            request_timeout=5,
        )


STARTS = 3
"""Times that a server is started: another test's may take a port before it does."""


@contextmanager
def object_store(folder):
    """SeaweedFS, with one empty bucket; what it keeps is in the folder."""
    for attempt in range(1, STARTS + 1):
        server, store = _started(folder / str(attempt))
        try:
            _wait_until_ready(store, server, folder / str(attempt))
            break
        except BaseException as error:
            _end(server)
            if not isinstance(error, TimeoutError) or attempt == STARTS:
                raise
    try:
        yield store
    finally:
        _end(server)


def _started(folder):
    names = ("master", "volume", "filer", "admin", "s3")
    ports = free_ports(2 * len(names))
    identity = {"credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"], "name": KEY}
    (folder / "data").mkdir(parents=True)
    (folder / "identities.json").write_text(json.dumps({"identities": [identity]}))
    command = [_weed(), "-logtostderr", "mini", f"-dir={folder / 'data'}"]
    command += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false"]
    command += [f"-s3.config={folder / 'identities.json'}", "-s3.autoCreateBucket=false"]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-webdav=false", "-admin.ui=false"]
    for name, port, grpc in zip(names, ports[::2], ports[1::2], strict=True):
        command += [f"-{name}.port={port}", f"-{name}.port.grpc={grpc}"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    return server, ObjectStore(f"http://127.0.0.1:{ports[-2]}")


def _end(server):
    server.kill()
    server.wait()


def _weed():
    beside = Path(sys.executable).parent / "weed"
    return str(beside) if beside.exists() else shutil.which("weed")


def _wait_until_ready(store, server, folder, seconds=60):
    end = time.monotonic() + seconds
    filesystem = store.filesystem()
    while True:
        try:
            filesystem.create_dir(BUCKET)
            # A bucket can be made before there is a volume to write to.
            with filesystem.open_output_stream(f"{BUCKET}/ready") as file:
                file.write(b"yes")
            if filesystem.get_file_info(f"{BUCKET}/ready").type == FileType.File:
                return
        except OSError:
            pass
        if time.monotonic() > end or server.poll() is not None:
            raise TimeoutError(f"no object store became ready; see {folder / 'log'}")
        time.sleep(0.1)
