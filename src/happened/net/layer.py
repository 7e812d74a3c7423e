"""What an optional part of a node's durable state is to the kernel.

A layer attaches itself to a kernel (kernel.py) once, before the first input. It does so by putting its own
functions into the kernel's tables and lists, or around the kernel's functions:

    inputs        its own inputs, by their kind in the journal: how to give them again
    frames        its own frames, by their first byte: what to do with one that arrives
    may_send      raises LocalProtocolError while nothing may be multicast
    seals         changes a payload before it is journaled, as a signature does
    record_sent   puts a multicast into the trace
    order         gives a multicast to the machine
    encode        makes frames of the machine's messages
    put_each      puts frames into outboxes
    read          makes a message of a frame that arrives, or refuses it
    checks        refuse a message that was read, if it does not fit the state here
    deliver       takes what the machine delivers to the application
    give          numbers a delivery for the application
    on_sent, on_arrival   hear of each multicast, and of each message that has arrived
    joining, joined, left   hear of members: while one is taken in, after that, and when one has gone
    steps         what goes on after each frame, as long as something is under way
    barred        links that take and give nothing, each with the reason
    release_frames, let_go   let frames leave whose cause is durable, and others that wait for that

A layer that is not attached costs nothing and is nowhere mentioned.
"""

from collections.abc import Callable
from typing import Any, Protocol

from ..ordering import Multicast

Take = Callable[[int], bytes]
"""Takes the next so many bytes of a snapshot."""
Order = Callable[[Any, bytes], Multicast]
Read = Callable[[int, bytes], Any]
Hear = Callable[[int, bytes], object]
Deliver = Callable[[int, int, bytes], None]
Give = Callable[[int, int, bytes, str], None]


class Layer(Protocol):
    """One part of a snapshot: `key` names it."""

    @property
    def key(self) -> str: ...
    def state(self) -> tuple[Any, list[bytes]]:
        """As JSON, and blobs that `restore` takes in the same order."""

    def restore(self, state: Any, take: Take) -> None: ...
