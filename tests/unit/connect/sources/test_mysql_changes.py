"""Positions, GTIDs and types of MySQL that need no server."""

import pytest

from ottla.connect.sources.changes.binlog import LogPosition
from ottla.connect.sources.changes.mysql_reader import Gtids
from ottla.connect.sources.changes.mysql_types import LogColumn, TypeModes, mysql_type

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def test_gtids_of_mariadb_keep_the_last_of_each_domain():
    found = Gtids("0-1-5,2-7-9", mariadb=True)
    found.add("0-3-6")
    found.add("4-1-1")
    assert str(found) == "0-3-6,2-7-9,4-1-1"


def test_gtids_of_mysql_grow_into_intervals():
    found = Gtids(f"{SERVER}:1-5", mariadb=False)
    found.add(f"{SERVER}:6")
    found.add(f"{SERVER}:9")
    assert str(found) == f"{SERVER}:1-6:9"
    assert str(Gtids("", mariadb=False)) == ""


def test_positions_are_ordered_by_the_number_of_the_file():
    early, late = LogPosition("binlog.999999", 9), LogPosition("binlog.1000000", 4)
    assert early.order() < late.order() < LogPosition("binlog.1000000", 5).order()


@pytest.mark.parametrize(
    ("column", "modes", "value", "expected"),
    [
        (LogColumn("j", "json", True), TypeModes(), {b"a": [1, b"x", None]}, '{"a":[1,"x",null]}'),
        (LogColumn("j", "json", True), TypeModes(), '{"a": 1}', '{"a": 1}'),
        (LogColumn("b", "blob", True), TypeModes(binary="hex"), b"\0\xff", "00ff"),
        (LogColumn("b", "blob", True), TypeModes(binary="base64"), b"\0\xff", "AP8="),
        (LogColumn("n", "decimal", True, precision=4, scale=2), TypeModes(decimals="string"), "1.5", "1.50"),
        (LogColumn("i", "bigint", True, unsigned=True), TypeModes(unsigned="precise"), 2**64 - 1, 2**64 - 1),
    ],
)
def test_values_follow_the_modes(column, modes, value, expected):
    assert mysql_type(column, modes).convert(value) == expected
