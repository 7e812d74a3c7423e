"""The errors of this package: which kinds there are, and whose fault each is.

Three cases need different reactions: our caller broke a rule, a peer broke a rule, a file cannot be read. A
violation found in a trace is not an error but a result.
"""


class CausalityError(Exception):
    """The root of every error this package raises on purpose."""


class ProtocolError(CausalityError):
    """A protocol's rules were broken; the machine that raised it is unchanged."""


class LocalProtocolError(ProtocolError):
    """Our own caller broke the rules."""


def require(holds: object, why: str) -> None:
    """Raise LocalProtocolError with the reason `why` unless the condition `holds` is true."""
    if not holds:
        raise LocalProtocolError(why)


class RemoteProtocolError(ProtocolError):
    """A peer broke the rules, or its bytes cannot be decoded."""


class TraceFormatError(CausalityError):
    """A trace cannot be read; the error has the file and line, the field and the reason."""

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
