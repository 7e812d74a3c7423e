"""How codecs are declared: a protocol's kinds of message, and the fields of each kind.

    kind  n  sender  clock  dests  …    an application message; its payload is the end of the frame
    kind  sender  clock  …              a control message, about M(sender, clock) or, with clock 0, about none

Kinds are numbered from 0 within a protocol. After the parts above come the rest of the address and then the
control information: fields (fields.py), in the order of their declaration.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

from ..core.errors import RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT
from ..core.tuples import new
from ..ordering.messages import Control
from . import ks
from .primitives import Encoded, Reader, write_number, write_set


class Field(NamedTuple):
    """How one field is written and read. `about` is the field's message; while that is being read, `about`
    has the fields read so far, and `most`, the largest number of processes that there may be."""

    write: Callable[[bytearray, Any, Any], None]  # the value; about
    read: Callable[[Reader, Any], Any]  # about


Fields = Mapping[str, Field]


class Kind:
    """One kind of message: its class, the fields that its address adds to the usual ones, its control fields.

    `check` is a condition on the fields, and the text of the error about M(sender, clock) if it fails, with
    names of fields in braces. A message that ends in a `ks` message, with the payload, gives as `hop` the
    number of processes that the `ks` message may know.
    """

    def __init__(
        self,
        made: Any,
        address: Fields = MappingProxyType({}),
        *,
        check: tuple[Callable[[Any], object], str] = (lambda _: True, ""),
        hop: int = 0,
        **control: Field,
    ) -> None:
        self.made = made
        self.number = 0  # its codec assigns it
        self._fields = (*address.items(), *control.items())
        self._address_fields = len(address)
        self._check, self._hop = check, hop
        self._is_control = issubclass(made, Control)
        self._values = itemgetter(*self.made._fields)

    def encode(self, messages: Sequence[Any]) -> list[Encoded]:
        encoded = _each_once(messages, self._encode)
        if not self._hop:
            return encoded
        hops = ks.encode([message.hop for message in messages])
        both = zip(encoded, hops, strict=True)
        return [Encoded(own.address + hop.address, own.control + hop.control) for own, hop in both]

    def _encode(self, message: Any) -> Encoded:
        address = bytearray((self.number,))
        if self._is_control:
            write_number(address, message.sender)
            write_number(address, message.clock)
        else:
            _write_address(address, message)
        control = bytearray()
        for place, (name, field) in enumerate(self._fields):
            out = address if place < self._address_fields else control
            field.write(out, getattr(message, name), message)
        return Encoded(bytes(address), bytes(control))

    def decode(self, reader: Reader, max_processes: int) -> Any:
        """Read the message that follows the number of the kind."""
        about = SimpleNamespace(most=max_processes)
        found = vars(about)
        if self._is_control:
            about.sender, about.clock = reader.number(max_processes), reader.number(CLOCK_LIMIT)
            if about.clock and "clock" not in self.made._fields:
                what = f"{self.made.__name__} of process {about.sender}"
                raise RemoteProtocolError(f"a {what} has clock {about.clock}; it names no message")
        else:
            about.sender, about.clock, about.n, about.dests = read_address(reader, max_processes)
        for name, field in self._fields:
            found[name] = field.read(reader, about)
        holds, why = self._check
        if not holds(about):
            raise RemoteProtocolError(f"M({about.sender}, {about.clock}) {why.format(**found)}")
        if self._hop:
            about.hop = ks.decode(reader, min(about.n, self._hop))
        elif not self._is_control:
            about.payload = reader.take(reader.left)
        elif reader.left:
            raise RemoteProtocolError(f"{reader.left} bytes follow the end of a control message")
        return new(self.made, self._values(found))


class Codec:
    """The codec object that a protocol's facts name: see wire/__init__.py."""

    def __init__(self, *kinds: Kind) -> None:
        self.MESSAGES = tuple(kind.made for kind in kinds)
        self._kinds = kinds
        self._kind_of = {kind.made: kind for kind in kinds}
        for number, kind in enumerate(kinds):
            kind.number = number

    def encode(self, messages: Sequence[Any]) -> list[Encoded]:
        return self._kind_of[type(messages[0])].encode(messages)

    def decode(self, reader: Reader, max_processes: int) -> Any:
        number = reader.byte()
        if number >= len(self._kinds):
            raise _unknown(number)
        return self._kinds[number].decode(reader, max_processes)


def single(*arguments: Any, **fields: Any) -> Codec:
    """The codec of a protocol that has one kind of message."""
    return Codec(Kind(*arguments, **fields))


class Address(NamedTuple):
    sender: int
    clock: int
    n: int
    dests: int


def _write_address(out: bytearray, message: Any) -> None:
    for number in (message.n, message.sender, message.clock):
        write_number(out, number)
    write_set(out, message.dests, message.n)


def read_address(reader: Reader, max_processes: int) -> Address:
    n = reader.number(max_processes + 1)
    sender, clock, dests = reader.number(n), reader.number(CLOCK_LIMIT), reader.set(n)
    if not clock or not dests:
        raise RemoteProtocolError(f"M({sender}, {clock}) lacks a clock or a destination")
    return new(Address, (sender, clock, n, dests))


def encode_alike(messages: Iterable[Any], write_control: Callable[[bytearray, Any], None]) -> list[Encoded]:
    """The parts of one multicast's messages, for a hand-written codec with one kind of message."""

    def encode(message: Any) -> Encoded:
        address, control = bytearray(1), bytearray()
        _write_address(address, message)
        write_control(control, message)
        return Encoded(bytes(address), bytes(control))

    return _each_once(messages, encode)


def read_single_kind_address(reader: Reader, max_processes: int) -> Address:
    """The address that `encode_alike` wrote."""
    if kind := reader.byte():
        raise _unknown(kind)
    return read_address(reader, max_processes)


def _each_once(messages: Iterable[Any], encode: Callable[[Any], Encoded]) -> list[Encoded]:
    """The encoded parts of messages; a message that goes to several destinations is encoded once."""
    parts: dict[int, Encoded] = {}
    encoded = []
    for message in messages:
        if id(message) not in parts:
            parts[id(message)] = encode(message)
        encoded.append(parts[id(message)])
    return encoded


def _unknown(kind: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"no message of this protocol is of kind {kind}")
