"""Signatures by the keys of certificates: everybody can check who said something, whoever passed it on.

    key         the private key of this process, NAME.key of `happened node keys issue`
    members     a folder with the certificate of every process, NAME.pem; a file may hold several certificates
                of its process, one after the other, so that signatures by an earlier key still count
    authority   who issued them, ca.pem

Signatures are ECDSA on the curve P-256 with SHA-256, 64 bytes. A certificate counts while it is valid, if the
authority itself has issued it, for one process of that name (identity.py). When a signature cannot be checked
with the certificates read so far, the folder is read again: so the certificate of a newcomer, or a renewed
one, may be put there while nodes run.

Bounds     certificates are kept only for processes whose signatures were checked; a failed check costs one
           look at a file, and reading it if it has changed.
Needs      `cryptography` (extra `net`).
"""

import contextlib
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ..core.errors import RemoteProtocolError
from .errors import IdentityError
from .identity import paths, read_file, refuse_exposed, trouble_with
from .signed import SIGNATURE_BYTES

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

    from . import certificates
except ImportError:
    raise IdentityError("signatures need cryptography: pip install 'happened[net]'") from None

CONTEXT = b"happened signature 1\0"
"""The prefix of all signed bytes, so that no signature made in TLS with the same key can pass for one."""
HALF = SIGNATURE_BYTES // 2
ALGORITHM = ec.ECDSA(hashes.SHA256())
MOST_BYTES = 1 << 20
"""The longest file of certificates, in bytes."""


class _Certified(NamedTuple):
    """A key that the authority certifies, and the times between which it does, in seconds since 1970."""

    key: ec.EllipticCurvePublicKey
    begins: float
    ends: float


class _Member(NamedTuple):
    """The certificates of one process in the folder, and a stamp that tells its file from a later one."""

    file: tuple[int, int, int]
    keys: list[_Certified]

    def trouble(self, signature: bytes, data: bytes) -> str | None:
        """Why a signature of these bytes does not count; None if it does."""
        why = (
            "was altered on its way, or signed with a key that no certificate in the folder proves: if that "
            "process has a new key, put its certificate there, and the old one behind it in the same file"
        )
        for key, begins, ends in self.keys:
            if _is_signed(key, signature, data):
                if begins <= time.time() < ends:
                    return None
                first, last = (datetime.fromtimestamp(when, UTC) for when in (begins, ends))
                why = (
                    f"is signed with a certificate that is valid from {first:%Y-%m-%d %H:%M} to "
                    f"{last:%Y-%m-%d %H:%M} UTC: `happened node keys renew` makes a new one for the same key"
                )
        return why


class Signatures:
    """Signs for the process `me`, and checks others' signatures. The module's docstring lists the files."""

    def __init__(self, me: str, *, key: str | Path, members: str | Path, authority: str | Path) -> None:
        """IdentityError, with the file, unless all files needed to sign are there and belong together."""
        self.me = me
        self._key_file, self._folder, self._authority_file = Path(key), Path(members), Path(authority)
        self.reload()

    def reload(self) -> None:
        """Read the files again: signatures from now on use the key that is there now. After an IdentityError
        nothing has changed."""
        key = _private_key(self._key_file)
        authorities = _certificates(self._authority_file)
        own = _read_member(self._path_of(self.me), self.me, authorities)
        if not any(each.key == key.public_key() and each.ends > time.time() for each in own.keys):
            raise IdentityError(
                f"{self._path_of(self.me)}: has no valid certificate of the key {self._key_file}, which "
                "others would need to check what it signs"
            )
        self._key, self._authorities, self._known = key, authorities, {self.me: own}

    def sign(self, *parts: str | bytes) -> bytes:
        """Our signature of these parts together, in this order."""
        r, s = decode_dss_signature(self._key.sign(_joined(parts), ALGORITHM))
        return r.to_bytes(HALF, "big") + s.to_bytes(HALF, "big")

    def check(self, name: str, signature: bytes, *parts: str | bytes) -> None:
        """Raise RemoteProtocolError unless the process `name` has signed these parts together."""
        data, known = _joined(parts), self._known.get(name)
        if known is not None and known.trouble(signature, data) is None:
            return
        path = self._path_of(name)
        try:
            if known is None or known.file != _stamp(path):
                known = self._known[name] = _read_member(path, name, self._authorities)
        except IdentityError as error:
            raise RemoteProtocolError(
                f"what {name!r} is said to have sent cannot be checked: {error}. Put its certificate there"
            ) from None
        if (why := known.trouble(signature, data)) is not None:
            raise RemoteProtocolError(f"what {name!r} is said to have sent {why}")

    def _path_of(self, name: str) -> Path:
        return paths(self._folder, name)[1]


def _joined(parts: tuple[str | bytes, ...]) -> bytes:
    """One sequence of bytes for a list of parts, different for different lists."""
    told = [part.encode() if isinstance(part, str) else part for part in parts]
    return CONTEXT + b"".join(len(part).to_bytes(8, "big") for part in told) + b"".join(told)


def _is_signed(key: ec.EllipticCurvePublicKey, signature: bytes, data: bytes) -> bool:
    if len(signature) != SIGNATURE_BYTES:
        return False
    r, s = int.from_bytes(signature[:HALF], "big"), int.from_bytes(signature[HALF:], "big")
    try:
        key.verify(encode_dss_signature(r, s), data, ALGORITHM)
    except InvalidSignature:
        return False
    return True


def _stamp(path: Path) -> tuple[int, int, int]:
    with trouble_with(path, "read"):
        found = os.stat(path)
    return found.st_mtime_ns, found.st_size, found.st_ino


def _private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    refuse_exposed(path)
    try:
        key = serialization.load_pem_private_key(read_file(path), password=None)
    except (ValueError, TypeError) as error:
        raise IdentityError(f"{path}: is no key that could be used: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise IdentityError(f"{path}: is no key on the curve P-256, as `happened node keys issue` makes them")
    return key


def _read_member(path: Path, name: str, authorities: list[x509.Certificate]) -> _Member:
    stamp = _stamp(path)
    if stamp[1] > MOST_BYTES:
        raise IdentityError(f"{path}: has {stamp[1]} bytes, too many for certificates")
    keys = []
    for each in _certificates(path):
        with _about(path):
            key = certificates.key_of(each, name, authorities)
        lasts = each.not_valid_before_utc.timestamp(), each.not_valid_after_utc.timestamp()
        keys.append(_Certified(key, *lasts))
    return _Member(stamp, keys)


def _certificates(path: Path) -> list[x509.Certificate]:
    data = read_file(path)
    with _about(path):
        return certificates.read(data)


@contextlib.contextmanager
def _about(path: Path) -> Iterator[None]:
    """Add to an IdentityError the file that it is about."""
    try:
        yield
    except IdentityError as error:
        raise IdentityError(f"{path}: {error}") from None
