"""Match receives with sends by what both say of the message.

The same content sent once and received any number of times is one message; sent and never received, each
is lost. Anything else is ambiguous: nobody can tell which of several equal messages a receive got, so
those events stay internal and say what they were, unless the channels are said to be FIFO.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .draft import Draft


@dataclass(slots=True)
class Transmissions:
    """The sends and receives of one content, as indices of drafts in file order."""

    sends: list[int] = field(default_factory=list)
    receives: list[int] = field(default_factory=list)

    @property
    def lost(self) -> int:
        return max(0, len(self.sends) - len(self.receives))

    @property
    def is_unique(self) -> bool:
        return len(self.sends) == 1 or not self.sends or not self.receives


def pair(
    drafts: Sequence[Draft],
    contents: dict[str, Transmissions],
    name: Callable[[Draft], str],
    *,
    fifo: bool = False,
) -> None:
    """Set kind, message and, where the source does not say, `to`: those that received it.

    `contents` maps what identifies a message, as far as the source tells, to its transmissions; `name`
    gives a message the name of its send, or a receive of nothing sent a name of its own.
    """
    for transmissions in contents.values():
        if transmissions.is_unique or fifo:
            _match(drafts, transmissions, name)
        else:
            counted = f"{len(transmissions.sends)} equal sends and {len(transmissions.receives)} receives"
            for i in transmissions.sends + transmissions.receives:
                drafts[i].attributes["ambiguous"] = f"one of {counted}"


def _match(drafts: Sequence[Draft], transmissions: Transmissions, name: Callable[[Draft], str]) -> None:
    sends = [drafts[i] for i in transmissions.sends]
    for send in sends:
        send.kind, send.message = "send", name(send)
    for k, i in enumerate(transmissions.receives):
        # A receive beyond the number of equal sends is a repetition of the last one.
        send = sends[min(k, len(sends) - 1)] if sends else drafts[i]
        drafts[i].kind, drafts[i].message = "receive", name(send)
    receivers = sorted({drafts[i].process for i in transmissions.receives})
    for send in sends:
        send.to = receivers if send.to is None else send.to
