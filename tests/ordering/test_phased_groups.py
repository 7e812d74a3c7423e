"""`phased` in groups that share three members: two messages of one phase could wait for each other.

In groups {0, 1, 2} and {0, 1, 2, 3}, 2 sends to the larger and then to the smaller, 1 to the smaller and then
to the larger. At 0, M(2, 2) and M(1, 2) each wait for the other's sender to pass a phase of their own group,
which only the other does. So such groups are refused.
"""

import pytest

from happened.core.errors import LocalProtocolError
from happened.ordering import create


def test_groups_that_share_three_members_are_refused_and_those_that_share_two_are_not():
    with pytest.raises(LocalProtocolError, match=r"share more than 2 members, and.*use bss-groups"):
        create("phased", 0, 4, groups=[[0, 1, 2], [0, 1, 2, 3]])
    create("phased", 0, 4, groups=[[0, 1, 2], [1, 2, 3]])
