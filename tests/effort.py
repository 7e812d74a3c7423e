"""How many samples random tests take: a quarter in `make test`, all of them in `make test-slow`.

Tests that ask for `samples` bear the marker `sampled`; `make test-slow` runs them again, with
HAPPENED_TESTS=thorough.
"""

import os

THOROUGH = os.environ.get("HAPPENED_TESTS") == "thorough"


def samples(most):
    return most if THOROUGH else most // 4
