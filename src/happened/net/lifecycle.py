"""The states of a node from its construction to its end, and the transitions between them.

Invariant  only `move` changes `state`, along TRANSITIONS. Only the first failure is recorded.
"""

from collections.abc import Mapping
from enum import Enum

from ..core.errors import LocalProtocolError
from .errors import NodeClosed


class State(Enum):
    """The states of a node; `Node.stats` shows their values."""

    NEW = "new"  # constructed, nothing is open yet
    REPLAYING = "replaying"  # its journal is being read; the event loop goes on
    RUNNING = "running"  # takes part in the group
    CLOSING = "closing"  # refuses multicasts; frames still come and go, and the application may acknowledge
    SAVING = "saving"  # takes no input at all; the last batch and a snapshot go to the journal
    FAILED = "failed"  # stopped at once by an error, kept in `failure`; `close` is still to be called
    CLOSED = "closed"  # the end: files and connections are released


TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.NEW: frozenset({State.REPLAYING, State.CLOSED}),
    # To CLOSED at once: the journal cannot be replayed, or `start` or `close` was cancelled or failed.
    State.REPLAYING: frozenset({State.RUNNING, State.CLOSED}),
    State.RUNNING: frozenset({State.CLOSING, State.FAILED, State.CLOSED}),
    State.CLOSING: frozenset({State.SAVING, State.FAILED, State.CLOSED}),
    State.SAVING: frozenset({State.FAILED, State.CLOSED}),
    State.FAILED: frozenset({State.CLOSED}),
    State.CLOSED: frozenset(),
}


class Lifecycle:
    """The current state of the node `name`.

    `is_running` and `takes_input` follow from the state; they are stored because every message asks for them.
    """

    __slots__ = ("_name", "failure", "is_running", "state", "takes_input")

    def __init__(self, name: str) -> None:
        self._name = name
        self.state = State.NEW
        self.failure: BaseException | None = None
        self.is_running = False
        self.takes_input = False  # whether it takes frames, and acknowledgements of the application

    def move(self, to: State) -> None:
        """Enter a state; LocalProtocolError, with nothing changed, if no transition leads there."""
        if to not in TRANSITIONS[self.state]:
            raise LocalProtocolError(
                f"{self._name!r} is {self.state.value} and cannot become {to.value}; make another node"
            )
        self.state = to
        self.is_running = to is State.RUNNING
        self.takes_input = to is State.RUNNING or to is State.CLOSING

    def fail(self, error: BaseException) -> bool:
        """Enter FAILED and keep the reason; False, with nothing changed, if the node has failed or ended."""
        if self.failure is not None or self.state is State.CLOSED:
            return False
        self.move(State.FAILED)
        self.failure = error
        return True

    def check_running(self) -> None:
        """Raise NodeClosed unless the application may multicast."""
        if not self.is_running:
            raise self.closed_error()

    def check_takes_input(self) -> None:
        """Raise NodeClosed unless the application may acknowledge."""
        if not self.takes_input:
            raise self.closed_error()

    def closed_error(self) -> NodeClosed:
        """The error for a call that comes after the end; its cause is the failure, if there was one."""
        if self.failure is None:
            is_early = self.state in (State.NEW, State.REPLAYING)
            return NodeClosed(f"{self._name!r} is {'not started' if is_early else 'closed'}")
        error = NodeClosed(f"{self._name!r} has stopped: {self.failure}")
        error.__cause__ = self.failure
        return error
