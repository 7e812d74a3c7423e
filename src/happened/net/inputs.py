"""The inputs of an engine as the journal keeps them, one entry each, in the order in which they were given.

An entry is a head (kind, number, length of the data; big-endian) and the data. The kind decides what the
number and the data mean:

    MULTICAST        bytes of the set   the destination set (little-endian), then the payload
    FRAME_RECEIVED   link's process     the next frame of that link
    DELIVERY_ACKED   delivery number    nothing: the application has acknowledged that delivery
    FRAMES_FREED     link's process     a link number: the peer has our frames up to there
    PEER_MET         index              the incarnation of its journal
    RELEVANT_EVENT   0                  its label
    MEMBER_ADMITTED  0                  name, NUL, address
    MEMBER_DEPARTED  index              nothing: this process leaves
    MEMBER_EXPELLED  index              nothing: another process is declared gone
    SITE_PROPOSED    0                  the text of a topology that is to follow the present one
    UNORDERED        bytes of the set   as MULTICAST, for a message outside of all orders
    QUALIFIED        bytes of the head  the head (qualified.py), then the payload: an incomplete order
    EXPIRED          0                  nothing: what was known the last time is delivered everywhere
    TOKEN_WANTED     0                  nothing: this process asks for its turn to send
    TOKEN_RELEASED   1 if away          nothing: its turn has ended; if it goes away, the token is passed on
    STATE_OWED       index              nothing: a newcomer is to get the application's state
    STATE_GIVEN      index              8 bytes each: clocks of the multicasts before, which are that state
    STATE_AWAITED    index              nothing: this process begins with the state that another one gives
    LIFE_BEGUN       0                  the name of the life that begins: the node was started (lives.py)
    LIFE_HEARD       link's process     the life that numbered its last frame; nothing: nobody knows
"""

import struct
from collections.abc import Iterator
from enum import IntEnum

HEAD = struct.Struct(">BQI")


class Input(IntEnum):
    """The numbers are part of the journal's format: never reused, never changed."""

    MULTICAST = 1
    FRAME_RECEIVED = 2
    DELIVERY_ACKED = 3
    FRAMES_FREED = 4
    PEER_MET = 5
    RELEVANT_EVENT = 6
    MEMBER_ADMITTED = 7
    MEMBER_DEPARTED = 8
    MEMBER_EXPELLED = 9
    SITE_PROPOSED = 10
    UNORDERED = 11
    QUALIFIED = 12
    EXPIRED = 13
    TOKEN_WANTED = 14
    TOKEN_RELEASED = 15
    STATE_OWED = 16
    STATE_GIVEN = 17
    STATE_AWAITED = 18
    LIFE_BEGUN = 19
    LIFE_HEARD = 20


def read_entries(entries: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The kind, number and data of each entry; ValueError if the last one is cut off."""
    position, end = 0, len(entries)
    while position < end:
        if end - position < HEAD.size:
            raise ValueError("an entry is cut off within its head")
        kind, number, length = HEAD.unpack_from(entries, position)
        position += HEAD.size + length
        if position > end:
            raise ValueError("an entry is cut off")
        yield kind, number, entries[position - length : position]
