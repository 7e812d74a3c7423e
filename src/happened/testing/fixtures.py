"""A pytest fixture for applications: `pytest_plugins = ["happened.testing.fixtures"]` in conftest.py."""

import pytest

from .memory import MemoryNetwork


@pytest.fixture
def memory_network(request: pytest.FixtureRequest) -> MemoryNetwork:
    """A network in memory. Set the options of MemoryNetwork by
    `@pytest.mark.parametrize("memory_network", [{"cuts": 0.1}], indirect=True)`."""
    return MemoryNetwork(**getattr(request, "param", {}))
