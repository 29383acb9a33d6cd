"""Which command lines are nodes."""

import pytest

from ottla.cli.processes import node_arguments


@pytest.mark.parametrize(
    "line",
    [
        "/venv/bin/python /venv/bin/ottla start --data x",
        "python3 -m ottla start --data x",
        "/usr/bin/ottla start --data x",
        "python3 -m ottla kafka-server-start --data x",
        "python3 -X dev /venv/bin/ottla start --data x",
    ],
)
def test_nodes(line):
    assert node_arguments(line.split()) == ["--data", "x"]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "/venv/bin/python /venv/bin/ottla storage info",
        "/venv/bin/ottla",
        "vi ottla",
        "tail -f ottla-data/x",
        "python3 start ottla",
    ],
)
def test_other_programs(line):
    assert node_arguments(line.split()) is None
