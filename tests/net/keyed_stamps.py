"""Signatures without certificates, for tests of what is signed and where that is checked: keyed digests."""

import hashlib
import hmac
import itertools

from happened.core.errors import RemoteProtocolError
from happened.net.signed import SIGNATURE_BYTES, Signed

CLUSTER = "tests"
HALF = SIGNATURE_BYTES // 2
NONCES = itertools.count()


class Stamps:
    """Signs for the process `me`; everybody's key is known here, and used for its own stamps alone. As with
    ECDSA, no two are alike."""

    def __init__(self, me):
        self.me = me

    def sign(self, *parts):
        nonce = next(NONCES).to_bytes(HALF, "big")
        return nonce + self._of(self.me, nonce, parts)

    def check(self, name, signature, *parts):
        if signature[HALF:] != self._of(name, signature[:HALF], parts):
            raise RemoteProtocolError(f"{name!r} has not signed this")

    def _of(self, name, nonce, parts):
        return hmac.new(name.encode(), nonce + repr(parts).encode(), hashlib.sha256).digest()


def signed(name, cluster=CLUSTER):
    return Signed(Stamps(name), cluster)
