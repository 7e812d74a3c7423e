"""A record that a machine applied a rule of its paper, as a story (`happened play`) shows it."""

from typing import NamedTuple


class RuleUse(NamedTuple):
    """One application of a rule; `rule` is the name that the paper gives it."""

    about: str  # the object, as the paper writes it: an entry 0,1:{2}, an element VC[2]
    what: str  # the action: "left out", "leaves H"
    rule: str  # "R8", "PC1"; empty if no rule explains it
    reason: str
    who: tuple[int, ...] = ()  # the processes that the reason for the application is about

    def __str__(self) -> str:
        return f"{self.about} {self.what}{f' ({self.rule})' if self.rule else ''}: {self.reason}"
