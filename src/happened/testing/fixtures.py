"""A pytest fixture for applications: `pytest_plugins = ["happened.testing.fixtures"]` in conftest.py."""

import pytest

from .memory import MemoryNetwork


@pytest.fixture
def memory_network(request: pytest.FixtureRequest) -> MemoryNetwork:
    """A network in memory. Options of MemoryNetwork are given to it by
    `@pytest.mark.parametrize("memory_network", [{"cuts": 0.1}], indirect=True)`."""
    return MemoryNetwork(**getattr(request, "param", {}))
