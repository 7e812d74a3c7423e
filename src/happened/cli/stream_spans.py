"""`happened stream --otlp`: receives spans, and shows what those of the last minutes mean."""

import argparse
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..core.errors import LocalProtocolError
from ..core.exit_codes import ExitCode
from .options import local_path, option, refuse_given
from .terminal import note, print_answer

LOOPBACK = ("127.0.0.1", "::1", "localhost")
GRPC, HTTP = "127.0.0.1:4317", "127.0.0.1:4318"
OFF = "off"
OTLP_SETTLE = 5.0  # seconds
OF_TRACES = ("follow", "batch_bytes", "receives", "relevant_only", "complete", "master")
"""Options that say how a trace is followed on Spark."""


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "spans", "receive spans over OTLP instead of following a trace; needs no Spark and no Java"
    )
    option(group, "--otlp", "receive spans, over gRPC and HTTP, on loopback")
    option(group, "--otlp-grpc HOST:PORT", f"where to listen for gRPC, or `{OFF}`", default=GRPC)
    option(group, "--otlp-http HOST:PORT", f"where to listen for HTTP, or `{OFF}`", default=HTTP)
    about = "seconds without a span after which a trace leaves the tables and the page"
    option(group, "--remember S", about, type=seconds, default=300.0)
    about = "spans in the window; more push out the traces that were silent longest"
    option(group, "--most-spans N", about, type=int, default=200_000)
    about = "hours after which what was received is removed from OUT/spans"
    option(group, "--keep HOURS", about, type=seconds, default=24.0)


def run(arguments: argparse.Namespace) -> int:
    from ..receiving.intake import WindowRules
    from ..receiving.receiver import Receiver, Settings

    if arguments.trace is not None:
        raise LocalProtocolError("--otlp receives spans and follows no trace: leave TRACE out")
    refuse_given(arguments, OF_TRACES, "is about traces; leave it out with --otlp")
    settle = arguments.settle or OTLP_SETTLE
    if arguments.remember < settle:
        raise LocalProtocolError("--remember must not be shorter than --settle: nothing would be judged")
    rules = WindowRules(settle, arguments.remember, arguments.most_spans)
    places = (_address(arguments.otlp_grpc, "--otlp-grpc"), _address(arguments.otlp_http, "--otlp-http"))
    if places == (None, None):
        raise LocalProtocolError("with --otlp-grpc off and --otlp-http off nothing can be received")
    out = local_path(str(arguments.out))
    settings = Settings(*places, rules, arguments.every, arguments.keep * 3600)
    receiver = Receiver(out, settings, tell=note)
    note(f"receiving spans: {', '.join(f'{name} {at}' for name, at in receiver.addresses.items())}")
    note(f"the last minutes are in {out}, on {out / 'page.html'}, and `happened view --serve {out}`")
    for place in places:
        if place is not None and place.host not in LOOPBACK:
            note(f"whoever reaches {place} can send spans: they are neither encrypted nor signed")
    with ended_by_signal(receiver.end, once=True):  # after the current round, or at once
        try:
            receiver.start()
            receiver.run()
        finally:
            receiver.close()
    counts = receiver.counts()
    lines = (f"{name.replace('_', ' ')}: {value:,}" for name, value in counts.items())
    print_answer(arguments, lambda: counts, lines)
    if receiver.violations:
        return ExitCode.VIOLATED
    return int(receiver.told.judgement.outcome) if receiver.told is not None else ExitCode.UNDECIDED


@contextmanager
def ended_by_signal(end: Callable[[], None], *, once: bool) -> Iterator[None]:
    """Ctrl-C and SIGTERM call `end`; with `once`, a second one does what it usually does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def handle(*_: object) -> None:
        if once:
            restore()
        end()

    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()


def _address(text: str, option: str) -> Any:
    from ..receiving.receiver import Address

    if text == OFF:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise LocalProtocolError(f"{option} takes HOST:PORT or {OFF}, not {text!r}")
    return Address(host.strip("[]"), int(port))


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"a positive number is needed, not {text!r}")
    return value
