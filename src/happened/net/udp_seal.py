"""How datagrams of a UDP medium are authenticated: by the key of the group, and by signatures."""

import hmac

from ..core.errors import RemoteProtocolError
from .signed import SIGNATURE_BYTES, Signer

MAC_BYTES = 16


class Seal:
    """Makes datagrams of one group authentic; without key and signatures it adds nothing and believes all."""

    def __init__(self, key: bytes, group: tuple[str, int], signer: Signer | None = None) -> None:
        context = f"happened medium {group[0]}:{group[1]}"
        self._key = hmac.digest(key, context.encode(), "sha256") if key else b""
        self._context, self._signer = context, signer
        self._signature_bytes = SIGNATURE_BYTES if signer is not None else 0

    @property
    def size(self) -> int:
        return self._signature_bytes + (MAC_BYTES if self._key else 0)

    def close(self, data: bytes) -> bytes:
        if self._signer is not None:
            data += self._signer.sign(self._context, data)
        return data + self._mac(data)

    def open(self, datagram: bytes) -> tuple[bytes, bytes]:
        """What was sealed, and its signature, which is yet to be checked; RemoteProtocolError if it was not
        sealed with our key."""
        data = datagram
        if self._key:
            data, mac = datagram[:-MAC_BYTES], datagram[-MAC_BYTES:]
            if not hmac.compare_digest(mac, self._mac(data)):
                raise RemoteProtocolError("a datagram that was not made with our key")
        end = max(0, len(data) - self._signature_bytes)
        return data[:end], data[end:]

    def check(self, speaker: str, data: bytes, signature: bytes) -> None:
        """Raise RemoteProtocolError unless, where nodes sign, the process `speaker` has signed this."""
        if self._signer is not None:
            self._signer.check(speaker, signature, self._context, data)

    def _mac(self, data: bytes) -> bytes:
        return hmac.digest(self._key, data, "sha256")[:MAC_BYTES] if self._key else b""
