"""The scenes that a story consists of, one per step: as values, as text and as JSON."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..core.telling import RuleUse
from ..ordering import notation
from ..ordering.machine import MessageKey

NOT_DELIVERED = "not delivered: "
SEND, ARRIVE, EVENT, REFUSED = "send", "arrive", "event", "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One step of a story: the event, what was carried, the rules applied, and what is known afterwards."""

    number: int
    process: int
    kind: str  # SEND, ARRIVE, EVENT (one that a tracker timestamps) or REFUSED
    what: str
    name: MessageKey | None = None  # the message that is sent or arrives, or the event
    source: int | None = None  # the process it comes from, if it arrives
    departed: int | None = None  # the number of the scene in which it was sent
    to: tuple[int, ...] = ()  # its destinations, if it is sent
    carried: tuple[str, ...] = ()  # one line for each different content of its copies
    arrival: str | None = None  # the name of what arrived, as in `taken`
    taken: tuple[str, ...] = ()  # names of arrivals that need not wait any more from now on
    delivered: tuple[MessageKey, ...] = ()
    follows: tuple[MessageKey, ...] = ()  # the immediate predecessors of a relevant event
    wrong: tuple[str, ...] = ()  # violations by the protocol
    allowed: tuple[str, ...] = ()  # overtaking against causal order, which is not promised
    held: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()  # messages sent because of an arrival
    rules: tuple[RuleUse, ...] = ()
    known: tuple[tuple[str, str], ...] = ()  # what the process remembers now; empty if unknown
    seconds: float | None = None  # virtual time

    def lines(self) -> Iterator[str]:
        when = "" if self.seconds is None else f"  [{self.seconds:.3f} s]"
        yield f"{self.number:>3}. {self.what}{when}"
        yield from (f"       carries {each}" for each in self.carried)
        yield from (f"       {self.process} delivers {notation.key_name(key)}" for key in self.delivered)
        yield from (f"       {each}" for each in (*self.wrong, *self.allowed))
        yield from (f"       {self.process} holds {each}" for each in self.held)
        yield from (f"       {self.process} {each}" for each in self.passed)
        yield from (f"       {each}" for each in self.rules)
        yield from (f"       {title} at {self.process}: {text}" for title, text in self.known)


class Narration:
    """The scenes so far. `now` returns virtual time in seconds, or None if there is none."""

    def __init__(self, now: Callable[[], float | None] = lambda: None) -> None:
        self.scenes: list[Scene] = []
        self._now = now

    def _tell(self, **told: Any) -> Scene:
        scene = Scene(number=len(self.scenes) + 1, seconds=self._now(), **told)
        self.scenes.append(scene)
        return scene


def by_destination(told: Iterable[tuple[int, str]], *, tells_where: bool = True) -> tuple[str, ...]:
    """Each different text about copies; if there are several, each with the destinations of its copies."""
    by_text: dict[str, list[int]] = {}
    for to, text in told:
        by_text.setdefault(text, []).append(to)
    if len(by_text) <= 1 or not tells_where:
        return tuple(by_text)
    return tuple(f"{text}  (to {', '.join(map(str, to))})" for text, to in by_text.items())


def document(
    protocol: str,
    program: str,
    names: Sequence[str],
    scenes: Sequence[Scene],
    notation: str,
    undelivered: Sequence[str] = (),
) -> dict[str, Any]:
    """A whole story as a JSON value. `names`: those of the processes; `notation`: how to read it;
    `undelivered`: the messages that are not delivered when it ends."""
    steps = [
        asdict(scene) | {"rules": [told._asdict() for told in scene.rules], "text": list(scene.lines())}
        for scene in scenes
    ]
    told = {"protocol": protocol, "program": program, "processes": len(names), "names": list(names)}
    end = [f"{NOT_DELIVERED}{each}" for each in undelivered]
    return told | {"notation": notation, "steps": json.loads(json.dumps(steps)), "end": end}


def story_text(story: dict[str, Any]) -> Iterator[str]:
    """A whole story as lines of text."""
    yield f"{story['protocol']}: {story['program']}"
    if named := [name for name in story["names"] if " " in name]:
        yield f"where {', '.join(name.replace(' ', ' is ', 1) for name in named)}"
    for step in story["steps"]:
        yield from step["text"]
    yield from story["end"]
