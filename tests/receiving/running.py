"""A receiver in a thread of this process, on ports that are free, with short rules."""

import json
import threading
import time
from contextlib import contextmanager

from happened.receiving.intake import WindowRules
from happened.receiving.receiver import Address, Receiver, Settings

PATIENCE = 60  # seconds: the machine may be busy
HERE = Address("127.0.0.1", 0)


@contextmanager
def receiving(out, *, settle=0.3, window=600.0):
    """A receiver whose loop runs; it is ended and closed at the end."""
    receiver = Receiver(out, Settings(HERE, HERE, WindowRules(settle, window), every=0.05))
    receiver.start()
    loop = threading.Thread(target=receiver.run)
    loop.start()
    try:
        yield receiver
    finally:
        receiver.end()
        loop.join(PATIENCE)
        receiver.close()


def until(condition):
    """What the condition gives once it gives something."""
    begun = time.monotonic()
    while not (found := condition()):
        assert time.monotonic() - begun < PATIENCE, "it did not come about"
        time.sleep(0.02)
    return found


def state(out):
    path = out / "live.json"
    return json.loads(path.read_text()) if path.exists() else {}
