"""Wheels of this package and of a version after it, each installed for an interpreter of its own."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pyarrow

REPOSITORY = Path(__file__).resolve().parents[2]

NEXT_FEATURE = "wide-checksum"
NEXT_LINK = '''

import hashlib
import logging

from ..core.errors import RemoteProtocolError as _Refused
from .handshake import Channel as _Channel


class _WideChannel(_Channel):
    """Records with a checksum of sixteen bytes, which this version does not read."""

    def seal(self, frame: bytes) -> bytes:
        return hashlib.blake2b(frame, digest_size=16).digest() + frame

    def open(self, sealed: bytes) -> bytes:
        if hashlib.blake2b(sealed[16:], digest_size=16).digest() != sealed[:16]:
            raise _Refused("a record of another version of the link")
        return sealed[16:]


def _protect(self, ours, theirs, _before=Connection._protect):
    _before(self, ours, theirs)
    if "wide-checksum" in ours.terms.features & theirs.terms.features:
        self._handshake.channel = _WideChannel()
        logging.getLogger("happened.node").warning("wide records with %s", self.peer)


Connection._protect = _protect
'''


def copied(folder):
    """The sources of the package, without what lies beside them."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, folder)
    leftovers = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(REPOSITORY / "src", folder / "src", ignore=leftovers)
    return folder


def become_next(source):
    """Make the next version of copied sources: one more version of the link, and one more feature of it."""
    package = source / "src" / "happened"
    for file, before, after in (
        ("__init__.py", '__version__ = "', '__version__ = "99.'),
        ("net/terms.py", "LOWEST, HIGHEST = 1, 1", "LOWEST, HIGHEST = 1, 2"),
        ("net/terms.py", "frozenset({CHECKSUM})", f'frozenset({{CHECKSUM, "{NEXT_FEATURE}"}})'),
    ):
        text = (package / file).read_text()
        assert text.count(before) == 1, f"{file} has changed: {before}"
        (package / file).write_text(text.replace(before, after))
    with open(package / "net" / "tcp_connections.py", "a") as link:
        link.write(NEXT_LINK)
    return source


def built(source, folder):
    """The wheel of these sources, made without a network."""
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(source)], check=True, timeout=600)
    (wheel,) = folder.glob("*.whl")
    return wheel


def interpreter_with(wheel, folder):
    """An interpreter that has this wheel, and finds the other packages where this one has them."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    site = next(folder.glob("lib/python*/site-packages"))
    options = ["--quiet", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(wheel)], check=True, timeout=300)
    places = {sysconfig.get_path("purelib"), str(Path(pyarrow.__file__).parents[1])}
    (site / "others.pth").write_text("\n".join(places) + "\n")  # no .pth file in there is heeded
    return folder / "bin" / "python"
