"""How a node authenticates itself to a NATS server, and how nodes authenticate each other's messages.

The server authenticates its clients by a credentials file, an nkey, a token or a certificate. Its permissions
can keep clients apart, but any client that may publish on a node's subjects can speak for the node. With a
group's key, each message has a tag over its place (stream, receiver, sender) and its bytes, which only
holders of the key can make: messages of other clients are refused. As on links with a shared key, holders are
not told apart. With signatures (signatures.py) the tag is the sender's signature, which nobody else can make.
"""

import hmac
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import LocalProtocolError, RemoteProtocolError
from .errors import IdentityError
from .handshake import KEY_SIZE
from .identity import read_file, read_key
from .signed import Signer

TAG = "Happened-Tag"
PLACE = "nats"
"""The first of the signed parts: it tells these signatures from those of the messages of protocols."""


class Seal:
    """Makes and checks the tags of one group's messages; without a key there are none."""

    def __init__(self, key: bytes | str | Path | None, *, protected: bool = False) -> None:
        """`key` is the key itself, or the path of a file that `happened node keys shared` wrote;
        `protected` says that nothing can be altered on its way to the broker."""
        self._key = key if key is None or isinstance(key, bytes) else read_key(Path(key))
        if self._key is not None and len(self._key) < KEY_SIZE:
            raise LocalProtocolError(
                f"a group's key has at least {KEY_SIZE} bytes; `happened node keys shared` makes one"
            )
        self._signer: Signer | None = None
        self._is_protected = protected

    def sign_with(self, signer: Signer) -> None:
        self._signer = signer

    @property
    def rereads(self) -> bool:
        """Whether to read messages again, as altered ones can occur and would be noticed (nats_broker.py)."""
        return not self._is_protected and (self._key is not None or self._signer is not None)

    def headers(self, *parts: str | bytes) -> dict[str, str]:
        """The header to send with a message of these parts."""
        if self._signer is not None:
            return {TAG: self._signer.sign(PLACE, *parts).hex()}
        return {} if self._key is None else {TAG: self._tag(self._key, parts)}

    def check(self, speaker: str, headers: Mapping[str, str] | None, *parts: str | bytes) -> None:
        """Raise RemoteProtocolError unless the process `speaker` has sent these parts together; without
        signatures, any holder of the key may have sent them."""
        told = (headers or {}).get(TAG, "")
        if self._signer is not None:
            try:
                signature = bytes.fromhex(told)
            except ValueError:
                signature = b""
            self._signer.check(speaker, signature, PLACE, *parts)
        elif self._key is not None and not hmac.compare_digest(
            told.encode(), self._tag(self._key, parts).encode()
        ):
            raise RemoteProtocolError(
                "a message on our subject has no tag of the group's key: another client of the broker "
                "sends here, or a node has no `key` or another one"
            )

    @staticmethod
    def _tag(key: bytes, parts: tuple[str | bytes, ...]) -> str:
        told = [part.encode() if isinstance(part, str) else part for part in parts]
        lengths = b"".join(len(part).to_bytes(8, "big") for part in told)  # no two lists of parts are alike
        return hmac.digest(key, b"happened nats 1\0" + lengths + b"".join(told), "sha256").hex()


def connect_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of NatsTransport that say who we are, from the settings of `[nats]`; paths can be opened."""
    names = {"credentials": "user_credentials", "nkey": "nkeys_seed", "token": "token", "key": "key"}
    options: dict[str, Any] = {names[each]: settings[each] for each in names if each in settings}
    for setting in ("credentials", "nkey"):
        if setting in settings:
            read_file(Path(settings[setting]))  # it raises if the file cannot be read
    if (tls := settings.get("tls")) is not None:
        try:
            # The broker's certificate is checked against `authority`, or else the system's authorities.
            options["tls"] = context = ssl.create_default_context(cafile=tls.get("authority"))
            if "certificate" in tls:
                context.load_cert_chain(tls["certificate"], tls.get("private_key"), password="")
        except (OSError, ssl.SSLError) as error:
            raise IdentityError(f"[nats.tls] {', '.join(tls.values())}: cannot be used: {error}") from None
    return options


def is_protected(servers: Sequence[str], options: Mapping[str, Any]) -> bool:
    """Whether TLS protects what goes to these servers from being altered."""
    return "tls" in options or all(server.startswith("tls://") for server in servers)
