"""How much of what could be tried is tried: a part in `make test`, all of it in `make test-slow`.

Tests that ask for `samples` of something random, for `some` of many cases or for the fixture `some_programs`
bear the marker `sampled`; `make test-slow` runs them again, with HAPPENED_TESTS=thorough.
"""

import os

THOROUGH = os.environ.get("HAPPENED_TESTS") == "thorough"
SHARE = 8  # of random samples, one in so many
STEP = 4  # of cases that are listed, one in so many
MANY = 100


def samples(most):
    return most if THOROUGH else most // SHARE


def some(cases):
    """These cases, or if they are many every fourth of them, always the same ones."""
    cases = list(cases)
    return cases if THOROUGH or len(cases) <= MANY else cases[1::STEP]


def count(most):
    """How many `some` are, of this many."""
    return len(some(range(most)))
