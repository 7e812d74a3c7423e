"""Messages of the toy as bytes: address, rows of the past, payload."""

from contract.toy import ToyMessage
from happened.wire.envelope import encode_alike, read_single_kind_address
from happened.wire.rows import read_rows, rows_of, write_rows

MESSAGES = (ToyMessage,)


def encode(messages):
    return encode_alike(messages, lambda out, message: write_past(out, message))


def write_past(out, message):
    write_rows(out, rows_of(message.past), message.clock, message.n)


def decode(reader, max_processes, message_type=ToyMessage):
    address = read_single_kind_address(reader, max_processes)
    rows = read_rows(reader, address.clock, address.n)
    past = tuple(sorted((s, t, dests) for s, row in rows.items() for t, dests in row))
    return message_type(*address, past, reader.take(reader.left))
