"""Guards made from files: keys and certificates, which are checked before they are used.

    SharedKey     one secret file for all; frames are authenticated, not encrypted (see `handshake`)
    MutualTls     TLS 1.3; both ends are verified against the group's own authority

A certificate names one process: by the URI `happened:NAME`, or by its only DNS name where another authority
issued it. Wildcards and the common name are ignored. There is no revocation: certificates are short-lived
(a year by default), and after the theft of a key the group needs a new authority.
Nodes need only the standard library to run; making certificates, and nodes that sign with the certificates'
keys (signatures.py), need `cryptography` (extra `net`).
"""

import contextlib
import os
import secrets
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .errors import IdentityError
from .handshake import KEY_SIZE, NONCE_SIZE, Handshake, Mode, certified_name, check_name
from .transport import Guard

AUTHORITY_CERTIFICATE, AUTHORITY_KEY = "ca.pem", "ca.key"


class SharedKey(Guard):
    """A guard of links between processes that trust one another."""

    group_key: bytes

    def __init__(self, key: bytes | str | Path) -> None:
        """`key` is the key itself, or the path of a file that `happened node keys shared` wrote."""
        self.group_key = key if isinstance(key, bytes) else read_key(Path(key))

    def handshake(self, me: str, wanted: str | None, tls: Any) -> Handshake:
        nonce = secrets.token_bytes(NONCE_SIZE)
        return Handshake(me, Mode.SHARED_KEY, nonce=nonce, wanted=wanted, key=self.group_key)


class MutualTls(Guard):
    """A guard of links whose ends both show a certificate of the group's authority."""

    def __init__(self, me: str, *, authority: str | Path, certificate: str | Path, key: str | Path) -> None:
        """Read PEM files; IdentityError unless the certificate is `me`'s, valid now and of that authority."""
        self._me, self._files = me, (Path(authority), Path(certificate), Path(key))
        self.reload()

    def reload(self) -> None:
        """Read the files again, for connections from now on; after an IdentityError nothing has changed."""
        me, files = self._me, self._files
        refuse_exposed(files[2])
        server = _context(ssl.PROTOCOL_TLS_SERVER, *files)
        # A resumed session would skip the check of certificates; links last long enough for full handshakes.
        server.num_tickets = 0
        client = _context(ssl.PROTOCOL_TLS_CLIENT, *files)
        # Check our certificate as a peer would: both contexts shake hands in memory, with every check on.
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        calling = client.wrap_bio(to_client, to_server)
        called = server.wrap_bio(to_server, to_client, server_side=True)
        try:
            for end in (calling, called) * 4:
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
        except ssl.SSLError as error:
            why = getattr(error, "verify_message", "") or error.reason
            raise IdentityError(f"{files[1]}: no peer would accept this certificate: {why}") from None
        found = certified_name(called.getpeercert() or {})
        if found != me:
            raise IdentityError(f"{files[1]}: is the certificate of {found!r}, and this node is {me!r}")
        self._server, self._client = server, client

    def tls(self, *, server: bool) -> ssl.SSLContext | None:
        return self._server if server else self._client

    def handshake(self, me: str, wanted: str | None, tls: Any) -> Handshake:
        nonce, certified = secrets.token_bytes(NONCE_SIZE), certified_name(tls.getpeercert() or {})
        return Handshake(me, Mode.TLS, nonce=nonce, wanted=wanted, certified=certified)


def _context(protocol: int, authority: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # A process's name is not a host name: `certified_name` and the handshake compare names instead.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    for path in (authority, certificate, key):
        read_file(path)
    try:
        context.load_verify_locations(cafile=authority)
    except ssl.SSLError as error:
        raise IdentityError(f"{authority}: holds no certificate of an authority ({error.reason})") from None
    try:
        # With an empty password an encrypted key raises an error instead of a prompt that nobody sees.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        why = error.reason or "an encrypted or damaged key"
        raise IdentityError(f"{certificate} and {key} are not a certificate and its key ({why})") from None
    return context


def certificate_lasts(tls: Any) -> float | None:
    """For how many seconds the peer's certificate of a connection stays valid; None without TLS."""
    until = (tls.getpeercert() or {}).get("notAfter") if tls is not None else None
    return None if until is None else max(0.0, ssl.cert_time_to_seconds(until) - time.time())


def make_key(path: Path) -> None:
    """Write a fresh shared key to a file that does not exist yet."""
    _write_new(path, secrets.token_hex(KEY_SIZE).encode() + b"\n", 0o600)


def read_key(path: Path) -> bytes:
    refuse_exposed(path)
    try:
        key = bytes.fromhex(read_file(path).decode().strip())
    except ValueError:
        key = b""
    if len(key) < KEY_SIZE:
        raise IdentityError(f"{path}: is no shared key; make one with `happened node keys shared {path}`")
    return key


def make_authority(directory: Path, *, name: str = "happened authority", days: int = 3650) -> None:
    """Write ca.pem and ca.key into a directory that has neither of the two."""
    from . import certificates

    with trouble_with(directory, "made"):
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    _refuse_existing(directory / AUTHORITY_CERTIFICATE, directory / AUTHORITY_KEY)
    certificate, key = certificates.authority(name, days)
    _write_new(directory / AUTHORITY_KEY, key, 0o600)
    _write_new(directory / AUTHORITY_CERTIFICATE, certificate, 0o644)


def paths(directory: Path, name: str) -> tuple[Path, Path, Path]:
    """The authority's certificate, and the certificate and key of the process `name`."""
    stem = quote(check_name(name), safe=" @+")
    return directory / AUTHORITY_CERTIFICATE, directory / f"{stem}.pem", directory / f"{stem}.key"


def issue(directory: Path, name: str, *, days: float = 365) -> tuple[Path, Path]:
    """Write NAME.pem and NAME.key beside the authority that signs them."""
    from . import certificates

    authority_path, certificate_path, key_path = paths(directory, name)
    if certificate_path == authority_path or name.startswith("."):
        raise IdentityError(
            f"{name!r} would be the name of a hidden file, or of the authority's; choose another"
        )
    _refuse_existing(certificate_path, key_path)
    certificate, key = certificates.issue(name, days, *_authority(directory))
    _write_new(key_path, key, 0o600)
    _write_new(certificate_path, certificate, 0o644)
    return certificate_path, key_path


def renew(directory: Path, name: str, *, days: float = 365) -> Path:
    """Replace NAME.pem by a new certificate for the same key; the authority that signs it is beside it."""
    from . import certificates

    certificate_path, authority = paths(directory, name)[1], _authority(directory)
    before = read_file(certificate_path)
    try:
        renewed = certificates.renew(name, days, before, authority)
    except IdentityError as error:
        raise IdentityError(f"{certificate_path}: cannot be renewed: {error}") from None
    beside = certificate_path.with_name(certificate_path.name + ".new")
    with trouble_with(certificate_path, "written"):
        beside.write_bytes(renewed)
        beside.replace(certificate_path)  # atomically: a node may be reading the file
    return certificate_path


def _authority(directory: Path) -> tuple[bytes, bytes]:
    """The certificate and the key of the authority in this directory."""
    refuse_exposed(directory / AUTHORITY_KEY)
    return read_file(directory / AUTHORITY_CERTIFICATE), read_file(directory / AUTHORITY_KEY)


@contextlib.contextmanager
def trouble_with(path: Path, what: str) -> Iterator[None]:
    """Turn an OSError into an IdentityError that says which file cannot be read or written, and why."""
    try:
        yield
    except OSError as error:
        raise IdentityError(f"{path}: cannot be {what}: {error.strerror}") from None


def read_file(path: Path) -> bytes:
    """Read a file; IdentityError, with the file and the reason, if it cannot be read."""
    with trouble_with(path, "read"):
        return path.read_bytes()


def refuse_exposed(path: Path) -> None:
    """Raise IdentityError if every user of the machine can read this key."""
    with trouble_with(path, "read"):
        exposed = path.stat().st_mode & 0o007
    if exposed:
        raise IdentityError(f"{path}: is open to everyone on this machine; chmod 600 it, or make a new key")


def _refuse_existing(*paths: Path) -> None:
    for path in paths:
        with trouble_with(path, "written"):  # a name may be too long for a file
            exists = path.exists()
        if exists:
            raise IdentityError(f"{path}: exists, and keys are never overwritten; move it away first")


def _write_new(path: Path, data: bytes, mode: int) -> None:
    """Create a file with this mode from the start, so that others can at no instant open it."""
    with trouble_with(path, "written"):
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            _refuse_existing(path)
            raise
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
