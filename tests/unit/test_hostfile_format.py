"""The host file is read as the installed DeepSpeed reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pplab.core.hostfile import Host, host_lines

runner = pytest.importorskip("deepspeed.launcher.runner")

LINES = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", " ", "#", "# "]),
        st.sampled_from(["worker-0", "10.0.0.1", "n", ""]),
        st.sampled_from([" ", "\t", "  ", ""]),
        st.sampled_from(
            ["slots=4", "slots=0", "slots = 4", "slots=", "slots=two", "slots=12x", ""]
        ),
        st.sampled_from(["", " # half of it", " more"]),
    ),
)


@given(LINES)
def test_a_line_is_a_host_where_deepspeed_says_so(line):
    read = [host for _, _, host in host_lines(line)]
    try:
        theirs = runner._parse_hostfile([line, "last slots=1"])
    except ValueError:
        assert read == [None]
        return
    del theirs["last"]
    assert read == [Host(*item) for item in theirs.items()]


def test_lines_keep_their_numbers():
    found = list(host_lines("# two machines\n\na slots=2\nb slots = 4\n"))
    assert found == [(3, "a slots=2", Host("a", 2)), (4, "b slots = 4", None)]
