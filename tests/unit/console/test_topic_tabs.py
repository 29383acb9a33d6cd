"""What the tabs Schema and Access of a topic say, from plain values."""

from __future__ import annotations

from ottla.admin.acls import Entry, Pattern
from ottla.console.pages.topic_access import table
from ottla.console.pages.topic_schema import NONE, carried, role_of, subjects_of
from ottla.console.reader.records import Seen
from ottla.records.batch import BatchHeader
from ottla.wire.enums import AclOperation, AclPermissionType, PatternType, ResourceType

HEADER = BatchHeader(0, 100, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)


def test_the_subjects_of_a_topic_are_found_by_its_name():
    names = [
        "orders-eu-value",
        "orders-key",
        "orders-value",
        "orders-com.shop.Order",
        "users-value",
        "orders",
    ]
    found = subjects_of("orders", names, {"orders", "orders-eu", "users"})
    assert found == ["orders-value", "orders-key", "orders-com.shop.Order"]
    assert subjects_of("orders", ["orders-eu-value"], {"orders"}) == ["orders-eu-value"]
    assert [role_of("orders", each) for each in found] == [
        "values",
        "keys",
        "records of the type com.shop.Order",
    ]


def test_what_records_carry_is_counted_by_part():
    def seen(schemas, key=b"k", control=""):
        return Seen("orders", 0, 0, 0, key, b"v", [], HEADER, control=control, schemas=schemas)

    records = [seen(("", "Avro, schema 5"))] * 3 + [seen(("", "")), seen(("", ""), control="COMMIT")]
    assert carried(records) == [("value", "Avro, schema 5", 3, 0.75), ("value", NONE, 1, 0.25)]
    assert carried([seen(("", ""))]) == []


def test_who_may_do_what_with_a_topic():
    def rule(user, operation, permission, name="orders", pattern=PatternType.LITERAL):
        return Pattern(ResourceType.TOPIC, name, pattern), Entry(f"User:{user}", "*", operation, permission)

    allow, deny = AclPermissionType.ALLOW, AclPermissionType.DENY
    rules = [
        rule("alice", AclOperation.READ, allow),
        rule("alice", AclOperation.WRITE, allow, "ord", PatternType.PREFIXED),
        rule("alice", AclOperation.WRITE, deny),
        rule("*", AclOperation.DESCRIBE, allow, "*"),
    ]
    rows = {who: [may for may, _ in answers] for who, answers in table(rules, "orders")}
    # read, write, create, delete, alter, describe
    assert rows == {
        "alice": [True, False, False, False, False, True],
        "everyone else": [False, False, False, False, False, True],
    }
