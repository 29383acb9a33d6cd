"""Messages of pgoutput: what they say, and that a damaged one is refused with a sentence."""

import decimal
import struct

import pytest

from ottla.connect.failures import TaskFailed
from ottla.connect.sources.changes import pgoutput
from ottla.connect.sources.changes.pg_types import TypeModes, array_values, default_of, pg_type

ROW = struct.pack(">H", 3) + b"t" + struct.pack(">i", 2) + b"42" + b"n" + b"u"
RELATION = (
    b"R"
    + struct.pack(">I", 7)
    + b"public\0orders\0d"
    + struct.pack(">H", 1)
    + b"\x01id\0"
    + struct.pack(">Ii", 23, -1)
)
UPDATE = b"U" + struct.pack(">I", 7) + b"K" + ROW + b"N" + ROW
MESSAGES = [
    RELATION,
    UPDATE,
    b"B" + struct.pack(">QqI", 16, 0, 5),
    b"C\0" + struct.pack(">QQq", 16, 32, 0),
    b"I" + struct.pack(">I", 7) + b"N" + ROW,
    b"D" + struct.pack(">I", 7) + b"K" + ROW,
    b"T" + struct.pack(">IBI", 1, 0, 7),
]


def test_messages_are_decoded():
    relation, update, begin, commit, insert, delete, truncate = map(pgoutput.decode, MESSAGES)
    assert (relation.schema, relation.name, relation.columns[0].name, relation.columns[0].key) == (
        "public",
        "orders",
        "id",
        True,
    )
    assert (update.op, update.old_is_key, update.new) == ("u", True, ["42", None, pgoutput.UNCHANGED])
    assert (begin.lsn, begin.xid, begin.time_us) == (16, 5, 946_684_800_000_000)
    assert (commit.lsn, commit.end_lsn) == (16, 32)
    assert (insert.op, insert.old) == ("c", None) and (delete.op, delete.new) == ("d", None)
    assert truncate.relations == (7,)


@pytest.mark.parametrize("message", [one for one in MESSAGES if one[:1] not in b"C"])
def test_a_message_that_ends_early_is_refused(message):
    for size in range(len(message)):
        with pytest.raises(TaskFailed, match="pgoutput"):
            pgoutput.decode(message[:size])


def test_an_unknown_message_is_refused():
    with pytest.raises(TaskFailed, match="unknown kind"):
        pgoutput.decode(b"?")


@pytest.mark.parametrize(
    ("oid", "modifier", "text", "value"),
    [
        (16, -1, "t", True),
        (16, -1, "false", False),
        (1082, -1, "2026-01-02", 20455),
        (1082, -1, "infinity", 2**31 - 1),
        (1083, -1, "03:04:05.000006", 11045000006),
        (1114, -1, "2026-01-02 03:04:05.000006", 1767323045000006),
        (1114, 3, "2026-01-02 03:04:05.006", 1767323045006),
        (1184, -1, "2026-01-02 03:04:05+01", "2026-01-02T02:04:05.000000Z"),
        (1186, -1, "-1 days +02:03:00", -79020000000),
        (17, -1, "\\x00ff", b"\x00\xff"),
        (1184, 3, "2026-01-02 03:04:05.1+00", "2026-01-02T03:04:05.100Z"),
        (790, -1, "-$1,234.50", decimal.Decimal("-1234.50")),
        (1560, 12, "101100111000", b"\x38\x0b"),
        (1560, 1, "1", True),
        (3904, -1, "[1,5)", "[1,5)"),
        (1183, -1, "{03:04:05}", [11045000000]),
    ],
)
def test_texts_of_postgres_become_debezium_s_values(oid, modifier, text, value):
    assert pg_type(oid, modifier, TypeModes()).parse(text) == value


def test_arrays_with_several_dimensions_and_years_out_of_range_are_refused():
    assert array_values('{1,NULL,"a \\"b\\", c"}', str) == ["1", None, 'a "b", c']
    with pytest.raises(TaskFailed, match="several dimensions"):
        array_values("{{1},{2}}", int)
    with pytest.raises(TaskFailed, match="years 1 to 9999"):
        pg_type(1082, -1, TypeModes()).parse("10000-01-01")
    with pytest.raises(TaskFailed, match=r"decimal\.handling\.mode"):
        pg_type(1700, (6 << 16 | 2) + 4, TypeModes()).parse("NaN")
    assert pg_type(628, -1, TypeModes()) is None, "Debezium leaves lines out as well"


@pytest.mark.parametrize(
    ("oid", "expression", "value"),
    [
        (23, "5", 5),
        (23, "'-1'::integer", -1),
        (23, "nextval('orders_id_seq'::regclass)", 0),
        (25, "'x''y'::text", "x'y"),
        (25, "upper('a'::text)", None),
        (16, "true", True),
        (1184, "now()", "1970-01-01T00:00:00.000000Z"),
        (17, "'\\x01'::bytea", None),
        (1082, "'nonsense'::date", None),
        (23, "", None),
    ],
)
def test_defaults_of_columns_are_in_schemas_as_debezium_has_them(oid, expression, value):
    assert default_of(pg_type(oid, -1, TypeModes()), expression) == value
