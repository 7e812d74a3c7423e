"""The node of netprocess.py as an earlier or a later version of this package would run it.

earlier   up to 0.2.0: its hello tells no terms, so that it has no feature of the link
later     one more feature: records have a wider checksum, which only it understands, and one more version
"""

import asyncio
import hashlib
import json
import sys

from netprocess import main

from happened.core.errors import RemoteProtocolError
from happened.net import node, tcp
from happened.net.handshake import Channel
from happened.net.terms import Terms

WIDE = "wide-checksum"


class WideChannel(Channel):
    overhead = 16

    def seal(self, frame):
        return hashlib.blake2b(frame, digest_size=16).digest() + frame

    def open(self, sealed):
        if hashlib.blake2b(sealed[16:], digest_size=16).digest() != sealed[:16]:
            raise RemoteProtocolError("a record of another version of the link")
        return sealed[16:]


def become_earlier():
    node.Node._terms = lambda self, options: Terms()


def become_later():
    node.FEATURES |= {WIDE}
    node.HIGHEST += 1
    protect = tcp._Connection._protect

    def wider(self, ours, theirs):
        protect(self, ours, theirs)
        if WIDE in ours.terms.features & theirs.terms.features:
            self._handshake.channel = WideChannel()

    tcp._Connection._protect = wider


if __name__ == "__main__":
    {"earlier": become_earlier, "later": become_later}[sys.argv[1]]()
    asyncio.run(main(json.loads(sys.argv[2])))
