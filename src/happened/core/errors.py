"""What can go wrong, and whose fault it is.

A rule broken by our caller, a rule broken by a peer, and a file we cannot read are different things
to whoever has to act on them; a violation found in a trace is none of these: it is a result.
"""


class CausalityError(Exception):
    """The root of every error this package raises on purpose."""


class ProtocolError(CausalityError):
    """A protocol's rules were broken; the machine that raised it is unchanged."""


class LocalProtocolError(ProtocolError):
    """Our own caller broke the rules."""


class RemoteProtocolError(ProtocolError):
    """A peer broke the rules, or its bytes are not what they claim to be."""


class TraceFormatError(CausalityError):
    """A trace cannot be read; says where, what, and in which field."""

    def __init__(
        self, reason: str, *, file: str = "", line: int | None = None, field: str | None = None
    ) -> None:
        self.reason = reason
        self.file = file
        self.line = line
        self.field = field
        place = file + (f":{line}" if line is not None else "")
        about = f"field {field!r}: " if field is not None else ""
        super().__init__(f"{place}: {about}{reason}" if place else f"{about}{reason}")
