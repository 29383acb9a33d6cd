"""Signals, the work that they leave in offsets, and what queries and statements say, without a database."""

import json
import logging

import pytest

pytest.importorskip("pymysqlreplication", reason="changes of MariaDB need mysql-replication")

from ottla.connect.databases.dialect import TableId
from ottla.connect.sources.changes.keys import pattern_errors
from ottla.connect.sources.changes.pg_chunks import Visible
from ottla.connect.sources.changes.schema_changes import statement
from ottla.connect.sources.changes.signals import Waiting, Work, obey
from ottla.connect.sources.changes.transactions import Counter

TABLES = [TableId("a", "shop"), TableId("b", "shop")]


def after(work, kind, **data):
    text = json.dumps({key.replace("_", "-"): value for key, value in data.items()})
    return obey(work, kind, text, lambda: TABLES, "{lsn=7}")


def test_work_goes_on_from_an_offset_as_it_was():
    work = after(Work(), "execute-snapshot", data_collections=["shop.a", r"shop\.[ab]"])
    assert [one.table for one in work.tables] == ["shop.a", "shop.b"]
    work = work.read_up_to([1, {"bytes": "ff"}, "x"])
    assert Work.of(work.into({"pos": 4})) == work and work.current == Waiting(
        "shop.a", after=(1, {"bytes": "ff"}, "x")
    )
    assert work.read_up_to(None).current == Waiting("shop.b")
    assert work.read_up_to(None).read_up_to(None).into({"pos": 4, "ottla_incremental": "old"}) == {"pos": 4}


def test_a_pause_keeps_the_place_and_a_stop_does_not():
    work = after(Work(), "execute-snapshot", data_collections=["shop.*"]).read_up_to([9])
    paused = after(work, "pause-snapshot")
    assert paused.current is None and Work.of(paused.into({})) == paused
    assert after(paused, "resume-snapshot") == work
    assert after(work, "stop-snapshot", data_collections=["shop.a"]).current == Waiting("shop.b")
    assert after(work, "stop-snapshot") == Work()


def test_a_table_that_waits_is_not_added_again():
    work = after(Work(), "execute-snapshot", data_collections=["shop.a"])
    assert after(work, "execute-snapshot", data_collections=["shop.a"]) == work


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        ("execute-snapshot", "no JSON", "cannot be followed"),
        ("execute-snapshot", "[]", "cannot be followed"),
        ("execute-snapshot", "{}", 'names no tables in "data-collections"'),
        ("execute-snapshot", '{"data-collections": ["c"]}', "no table that this connector reads"),
        ("execute-snapshot", '{"data-collections": ["("]}', "cannot be followed"),
        ("execute-snapshot", '{"data-collections": "shop.a"}', "cannot be followed"),
        ("execute-snapshot", '{"data-collections": ["shop.a"], "type": "blocking"}', "type incremental"),
        ("execute-snapshot", '{"data-collections": ["shop.a"], "additional-conditions": 5}', "cannot be"),
        ("execute-snapshot", "[" * 100_000, "cannot be followed"),
        ("execute-snapshot", " " * 2_000_000, "longer than 1 MiB"),
        ("stop-snapshot", "{", "cannot be followed"),
        ("explode", "{}", "explode is not known"),
        (None, None, "None is not known"),
    ],
)
def test_a_signal_that_is_wrong_changes_nothing_and_says_why(kind, data, words, caplog):
    work = Work((Waiting("shop.b"),))
    assert obey(work, kind, data, lambda: TABLES, "") == work
    assert words in caplog.text


def test_a_signal_writes_into_the_log(caplog):
    with caplog.at_level(logging.INFO):
        after(Work(), "log", message="at {}")
    assert "at {lsn=7}" in caplog.text


def test_only_signals_of_a_table_are_there():
    assert pattern_errors({"signal.enabled.channels": "source"}) == {}
    found = pattern_errors({"signal.enabled.channels": "source, kafka"})
    assert "the channel kafka is not there" in found["signal.enabled.channels"][0]


def test_what_a_query_saw_is_told_by_the_lower_half_of_a_number():
    """The log has 32 bits of a transaction's number, which begin again from time to time."""
    epoch = 3 << 32
    seen = Visible.of(f"{epoch + 2}:{epoch + 9}:{epoch + 2},{epoch + 5}")
    assert [seen.includes(one) for one in (2, 3, 5, 8, 9, 10)] == [False, True, False, True, False, False]
    assert seen.includes(2**32 - 1)
    seen = Visible.of(f"{epoch - 3}:{epoch - 1}:")
    assert seen.includes(2**32 - 2) and not seen.includes(2**32 - 1) and not seen.includes(3)


def test_changes_are_numbered_in_a_transaction_and_in_their_table():
    counter = Counter()
    found = [counter.count("7", table, count) for table, count in (("a", 1), ("b", 2), ("a", 1))]
    assert [(one.total, one.table) for one in found] == [(1, 1), (2, 1), (4, 2)]
    assert found[1].block(True).values() == ["7", 3, 2]
    assert counter.end() == {"a": 2, "b": 2} and counter.end() == {}


@pytest.mark.parametrize(
    ("text", "kind", "tables"),
    [
        ("create table a(id int)", "CREATE", [("shop", "a")]),
        ("/* by hand */ CREATE OR REPLACE TABLE IF NOT EXISTS `x`.`a``b` LIKE c", "CREATE", [("x", "a`b")]),
        ("ALTER ONLINE TABLE a ADD COLUMN b INT", "ALTER", [("shop", "a")]),
        ("create unique index i on x.a (b)", "ALTER", [("x", "a")]),
        ("DROP INDEX i ON a", "ALTER", [("shop", "a")]),
        ("DROP TABLE IF EXISTS a, x.b /* generated by server */", "DROP", [("shop", "a"), ("x", "b")]),
        ("rename table a to b, c to x.d", "ALTER", [("shop", "b"), ("x", "d")]),
    ],
)
def test_a_statement_says_which_tables_it_is_about(text, kind, tables):
    found = statement(text, "shop")
    assert found.tables == tuple((kind, TableId(name, schema)) for schema, name in tables)
    assert found.database == tables[0][0]


@pytest.mark.parametrize(
    "text", ["CREATE VIEW v AS SELECT 1", "GRANT ALL ON *.* TO a", "", "ANALYZE TABLE a"]
)
def test_other_statements_have_no_record(text):
    assert statement(text, "shop") is None


def test_a_statement_about_a_database_has_no_tables():
    found = statement("create database if not exists `x`", "shop")
    assert (found.database, found.tables) == ("x", ())
