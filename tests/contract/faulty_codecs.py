"""Codecs with a fault, each for a kind of message of its own: a codec is known by the kinds it encodes.

A module is a codec, so each one here is an object that stands in `sys.modules` under its name.
"""

import sys
from types import ModuleType

from contract import toy_codec
from contract.toy import ToyMessage


def codec(name, message_type, **changes):
    module = ModuleType(f"contract.{name}")
    module.MESSAGES = (message_type, *changes.get("more", ()))
    module.encode = changes.get("encode", toy_codec.encode)
    module.decode = changes.get("decode", lambda *given: toy_codec.decode(*given, message_type=message_type))
    sys.modules[module.__name__] = module
    return module.__name__


class LostMessage(ToyMessage):
    __slots__ = ()


def _lossy(reader, max_processes):
    """Forgets the oldest entry."""
    message = toy_codec.decode(reader, max_processes, message_type=LostMessage)
    return message._replace(past=message.past[1:])


LOSSY = codec("lossy_codec", LostMessage, decode=_lossy)


class TrustedMessage(ToyMessage):
    __slots__ = ()


def _trusting(reader, max_processes):
    """Raises what it likes when bytes are wrong."""
    try:
        return toy_codec.decode(reader, max_processes, message_type=TrustedMessage)
    except Exception as error:
        raise ValueError("these bytes are wrong") from error


TRUSTING = codec("trusting_codec", TrustedMessage, decode=_trusting)


class UnboundedMessage(ToyMessage):
    __slots__ = ()


UNBOUNDED = codec(
    "unbounded_codec",
    UnboundedMessage,
    decode=lambda reader, _: toy_codec.decode(reader, 1 << 50, message_type=UnboundedMessage),
)


class CheaplyCopiedMessage(ToyMessage):
    __slots__ = ()


def _cheap_copies(messages):
    """Of several messages only the first is encoded whole."""
    first, *others = toy_codec.encode(messages)
    return [first, *(parts._replace(control=b"") for parts in others)]


CHEAP_COPIES = codec("cheap_copies_codec", CheaplyCopiedMessage, encode=_cheap_copies)


class SpokenMessage(ToyMessage):
    __slots__ = ()


class UnspokenMessage(ToyMessage):
    __slots__ = ()


TOO_MANY_KINDS = codec("too_many_kinds_codec", SpokenMessage, more=[UnspokenMessage])
