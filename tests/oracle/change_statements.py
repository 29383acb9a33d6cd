"""The statements that Debezium and Ottla both read: columns of all types, keys, identities, definitions, TRUNCATE."""

from __future__ import annotations

POSTGRES_KINDS = (
    ("b", "BOOLEAN", "true"),
    ("i2", "SMALLINT", "-3"),
    ("i4", "INT", "7"),
    ("i8", "BIGINT", "9007199254740993"),
    ("f4", "REAL", "0.1"),
    ("f8", "DOUBLE PRECISION", "1e-7"),
    ("n102", "NUMERIC(10,2)", "12.3"),
    ("n", "NUMERIC", "1.2340"),
    ("n5", "NUMERIC(5)", "77"),
    ("money", "MONEY", "'12.34'"),
    ("c5", "CHAR(5)", "'ab'"),
    ("vc", "VARCHAR(10)", "'ünï'"),
    ("tx", "TEXT", "'t\"x'"),
    ("ch", '"char"', "'c'"),
    ("raw", "BYTEA", "'\\x00ff41'"),
    ("d", "DATE", "'2026-01-02'"),
    ("t6", "TIME", "'03:04:05.000006'"),
    ("t3", "TIME(3)", "'03:04:05.006'"),
    ("t0", "TIME(0)", "'03:04:05'"),
    ("ttz", "TIMETZ", "'03:04:05.5+01'"),
    ("ts", "TIMESTAMP", "'2026-01-02 03:04:05.000006'"),
    ("ts3", "TIMESTAMP(3)", "'2026-01-02 03:04:05.006'"),
    ("ts0", "TIMESTAMP(0)", "'1966-01-02 03:04:05'"),
    ("tz", "TIMESTAMPTZ", "'2026-01-02 03:04:05.1+01'"),
    ("tz0", "TIMESTAMPTZ(0)", "'2026-01-02 03:04:05+01'"),
    ("iv", "INTERVAL", "'1 year 2 months 3 days 04:05:06.7'"),
    ("u", "UUID", "'00000000-0000-0000-0000-000000000001'"),
    ("j", "JSON", '\'{"a": 1,  "b": [2]}\''),
    ("jb", "JSONB", '\'{"b": [2], "a": 1}\''),
    ("x", "XML", "'<a>1</a>'"),
    ("bit1", "BIT(1)", "B'1'"),
    ("bit5", "BIT(5)", "B'10110'"),
    ("bit12", "BIT(12)", "B'101100111000'"),
    ("vbit", "VARBIT(10)", "B'101'"),
    ("vbitn", "VARBIT", "B'1011'"),
    ("inet", "INET", "'10.0.0.1'"),
    ("cidr", "CIDR", "'10.0.0.0/8'"),
    ("mac", "MACADDR", "'08:00:2b:01:02:03'"),
    ("mac8", "MACADDR8", "'08:00:2b:01:02:03:04:05'"),
    ("pt", "POINT", "'(1.5,2)'"),
    ("ln", "LINE", "'{1,2,3}'"),
    ("bx", "BOX", "'(1,1),(0,0)'"),
    ("circ", "CIRCLE", "'<(0,0),1>'"),
    ("r4", "INT4RANGE", "'[1,5)'"),
    ("r8", "INT8RANGE", "'[1,5)'"),
    ("rn", "NUMRANGE", "'[1.5,2)'"),
    ("rts", "TSRANGE", "'[2026-01-01 00:00,2026-01-02 00:00)'"),
    ("rtz", "TSTZRANGE", "'[2026-01-01 00:00+00,2026-01-02 00:00+00)'"),
    ("rd", "DATERANGE", "'[2026-01-01,2026-01-03)'"),
    ("o", "OID", "12"),
    ("md", "mood", "'ok'"),
    ("dm", "posint", "5"),
    ("dn", "price", "9.5"),
    ("ci", "CITEXT", "'CiT'"),
    ("lt", "LTREE", "'a.b.c'"),
    ("ai", "INT[]", "'{1,NULL,3}'"),
    ("al", "BIGINT[]", "'{1,2}'"),
    ("asml", "SMALLINT[]", "'{1,2}'"),
    ("at", "TEXT[]", "'{a,\"b, c\",NULL}'"),
    ("av", "VARCHAR(5)[]", "'{x,y}'"),
    ("ac", "CHAR(3)[]", "'{x,y}'"),
    ("ab", "BOOLEAN[]", "'{t,f}'"),
    ("an", "NUMERIC(6,2)[]", "'{1.5,2}'"),
    ("anv", "NUMERIC[]", "'{1.5,2}'"),
    ("af", "REAL[]", "'{0.5}'"),
    ("ad8", "DOUBLE PRECISION[]", "'{0.1}'"),
    ("ad", "DATE[]", "'{2026-01-02}'"),
    ("ats", "TIMESTAMP[]", "'{\"2026-01-02 03:04:05.000006\"}'"),
    ("atz", "TIMESTAMPTZ[]", "'{\"2026-01-02 03:04:05+00\"}'"),
    ("atm", "TIME[]", "'{03:04:05}'"),
    ("au", "UUID[]", "'{00000000-0000-0000-0000-000000000001}'"),
    ("aj", "JSON[]", "ARRAY['{\"a\":1}'::json]"),
    ("ajb", "JSONB[]", "ARRAY['{\"a\":1}'::jsonb]"),
    ("ainet", "INET[]", "'{10.0.0.1}'"),
    ("acidr", "CIDR[]", "'{10.0.0.0/8}'"),
    ("amac", "MACADDR[]", "'{08:00:2b:01:02:03}'"),
    ("aby", "BYTEA[]", "ARRAY['\\x01'::bytea]"),
    ("am", "mood[]", "'{ok,sad}'"),
    ("aci", "CITEXT[]", "'{Ab}'"),
    ("ar4", "INT4RANGE[]", "ARRAY['[1,5)'::int4range]"),
    ("aoid", "OID[]", "'{1}'"),
    ("ahs", "HSTORE[]", "ARRAY['a=>1'::hstore]"),
    ("attz", "TIMETZ[]", "'{03:04:05+01}'"),
    ("tsv", "TSVECTOR", "'a b'"),
    ("tsq", "TSQUERY", "'a & b'"),
    ("lsn", "PG_LSN", "'0/10'"),
    ("mr", "INT4MULTIRANGE", "'{[1,2)}'"),
)
MARIADB_KINDS = (
    ("i1", "TINYINT", "-3"),
    ("i1u", "TINYINT UNSIGNED", "200"),
    ("bo", "BOOLEAN", "1"),
    ("t1", "TINYINT(1)", "0"),
    ("i2", "SMALLINT", "7"),
    ("i2u", "SMALLINT UNSIGNED", "60000"),
    ("i3", "MEDIUMINT", "7"),
    ("i3u", "MEDIUMINT UNSIGNED", "7"),
    ("i4", "INT", "7"),
    ("i4u", "INT UNSIGNED", "4000000000"),
    ("i4z", "INT(8) ZEROFILL", "7"),
    ("i8", "BIGINT", "9007199254740993"),
    ("i8u", "BIGINT UNSIGNED", "18446744073709551615"),
    ("f", "FLOAT", "0.1"),
    ("fd", "DOUBLE", "1e-7"),
    ("fd2", "DOUBLE(8,2)", "1.25"),
    ("de", "DECIMAL(10,2)", "12.3"),
    ("deu", "DECIMAL(5,0) UNSIGNED", "77"),
    ("c", "CHAR(5)", "'ab'"),
    ("vc", "VARCHAR(10)", "'ünï'"),
    ("vcl", "VARCHAR(10) CHARACTER SET latin1", "'ünï'"),
    ("tt", "TINYTEXT", "'t'"),
    ("tx", "TEXT", "'t\"x'"),
    ("mt", "MEDIUMTEXT", "'m'"),
    ("lt", "LONGTEXT", "'l'"),
    ("bi", "BINARY(4)", "x'0102'"),
    ("vb", "VARBINARY(10)", "x'0100'"),
    ("tb", "TINYBLOB", "x'01'"),
    ("bl", "BLOB", "x'00ff'"),
    ("mb", "MEDIUMBLOB", "x'01'"),
    ("lb", "LONGBLOB", "x'01'"),
    ("b1", "BIT(1)", "b'1'"),
    ("b5", "BIT(5)", "b'10110'"),
    ("b12", "BIT(12)", "b'101100111000'"),
    ("b64", "BIT(64)", "b'101'"),
    ("d", "DATE", "'2026-01-02'"),
    ("t0", "TIME", "'-03:04:05'"),
    ("t3", "TIME(3)", "'03:04:05.006'"),
    ("t6", "TIME(6)", "'123:04:05.000006'"),
    ("dt0", "DATETIME", "'2026-01-02 03:04:05'"),
    ("dt3", "DATETIME(3)", "'2026-01-02 03:04:05.006'"),
    ("dt6", "DATETIME(6)", "'2026-01-02 03:04:05.000006'"),
    ("ts0", "TIMESTAMP NULL", "'2026-01-02 03:04:05'"),
    ("ts3", "TIMESTAMP(3) NULL", "'2026-01-02 03:04:05.006'"),
    ("ts6", "TIMESTAMP(6) NULL", "'2026-01-02 03:04:05.000006'"),
    ("y", "YEAR", "2026"),
    ("e", "ENUM('a','c','d''e')", "'c'"),
    ("s", "SET('x','y','z')", "'x,z'"),
    ("j", "JSON", '\'{"a": 1,  "b": [2]}\''),
    ("u", "UUID", "'00000000-0000-0000-0000-0000000000a1'"),
    ("g", "GEOMETRY", "ST_GeomFromText('POINT(1 2)')"),
    ("p", "POINT", "POINT(1.5,2)"),
    ("ls", "LINESTRING", "ST_GeomFromText('LINESTRING(0 0,1 1)')"),
    ("po", "POLYGON", "ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))')"),
    ("gc", "GEOMETRYCOLLECTION", "ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1))')"),
)
NULLABLE_ONLY = ("atm", "ar4", "aoid", "ahs", "attz", "aby")
"""Debezium fails where such a column may not be null and its old row is not sent."""


def _columns(kinds, *, required):
    lines = []
    for name, kind, _ in kinds:
        if required and name in NULLABLE_ONLY:
            continue
        if required and kind.startswith("TIMESTAMP") and kind.endswith(" NULL"):
            lines.append(f"{name} {kind.removesuffix(' NULL')} NOT NULL DEFAULT '2020-01-01 00:00:00'")
        else:
            lines.append(f"{name} {kind}{' NOT NULL' if required else ''}")
    return ", ".join(lines)


def _values(kinds, *, required=False):
    return ", ".join(value for name, _, value in kinds if not (required and name in NULLABLE_ONLY))


def _kinds(kinds):
    """Two tables with all types: one whose columns may be null, one whose columns may not."""
    nulls = ", ".join("NULL" for _ in kinds)
    return (
        f"CREATE TABLE kinds (id INT PRIMARY KEY, {_columns(kinds, required=False)})",
        f"CREATE TABLE needed (id INT PRIMARY KEY, {_columns(kinds, required=True)})",
        f"INSERT INTO kinds VALUES (1, {_values(kinds)}), (2, {nulls})",
        f"INSERT INTO needed VALUES (1, {_values(kinds, required=True)})",
    )


def _kind_changes(kinds):
    nulls = ", ".join("NULL" for _ in kinds)
    return (
        f"INSERT INTO kinds VALUES (3, {_values(kinds)}), (4, {nulls})",
        "UPDATE kinds SET i4 = 8 WHERE id = 3",
        "DELETE FROM kinds WHERE id = 3",
        f"INSERT INTO needed VALUES (3, {_values(kinds, required=True)})",
        "DELETE FROM needed WHERE id = 3",
    )


_LARGE = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 2000) i)"
POSTGRES_BEFORE = (
    *("CREATE EXTENSION citext", "CREATE EXTENSION hstore", "CREATE EXTENSION ltree"),
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE DOMAIN posint AS INT CHECK (VALUE > 0)",
    "CREATE DOMAIN price AS NUMERIC(8,3)",
    *_kinds(POSTGRES_KINDS),
    "CREATE TABLE plain (id INT PRIMARY KEY, a INT NOT NULL, t TEXT, big TEXT)",
    "CREATE TABLE nokey (a INT, b TEXT)",
    "CREATE TABLE whole (id INT PRIMARY KEY, a INT NOT NULL, big TEXT, u TEXT)",
    "ALTER TABLE whole REPLICA IDENTITY FULL",
    "CREATE TABLE byindex (id INT NOT NULL, a INT NOT NULL, b TEXT)",
    "CREATE UNIQUE INDEX byindex_a ON byindex (a)",
    "ALTER TABLE byindex REPLICA IDENTITY USING INDEX byindex_a",
    "CREATE TABLE two (b INT, a TEXT, v INT, PRIMARY KEY (a, b))",
    "CREATE TABLE defaults (id SERIAL PRIMARY KEY, i INT NOT NULL DEFAULT 5, t TEXT DEFAULT 'x''y', "
    "n NUMERIC(6,2) DEFAULT 1.5, b BOOLEAN DEFAULT true, ts TIMESTAMP DEFAULT '2020-01-01 00:00:00', "
    "now TIMESTAMPTZ DEFAULT now(), d DATE DEFAULT '2020-01-01', e mood DEFAULT 'ok', j JSONB DEFAULT '{}', "
    "u UUID DEFAULT gen_random_uuid(), neg INT DEFAULT -1, f REAL DEFAULT 0.5, "
    "g INT GENERATED ALWAYS AS (neg * 2) STORED, bn BYTEA DEFAULT '\\x01', nn TEXT NOT NULL DEFAULT '', "
    "nl INT DEFAULT NULL, ar INT[] DEFAULT '{}', iv INTERVAL DEFAULT '1 day', "
    "ident INT GENERATED BY DEFAULT AS IDENTITY, nv NUMERIC NOT NULL DEFAULT 1.50, bb BIT(3) DEFAULT B'101')",
    "CREATE TABLE ddl (id INT PRIMARY KEY, a INT)",
    'CREATE TABLE weird (id INT PRIMARY KEY, "Mixed Case" TEXT, "dot.col" INT, "select" INT)',
    "INSERT INTO plain VALUES (1, 1, 'x', NULL), (2, 2, NULL, 'b'), (5, 5, 'v', 'b')",
    "INSERT INTO nokey VALUES (1, 'x')",
    "INSERT INTO whole VALUES (1, 1, 'short', 'u')",
    "INSERT INTO byindex VALUES (1, 1, 'x')",
    "INSERT INTO two VALUES (1, 'x', 1)",
    "INSERT INTO defaults DEFAULT VALUES",
    "INSERT INTO ddl VALUES (1, 1)",
    "INSERT INTO weird VALUES (1, 'm', 1, 2)",
)
POSTGRES_AFTER = (
    *_kind_changes(POSTGRES_KINDS),
    f"INSERT INTO plain VALUES (3, 3, 'y', {_LARGE})",
    "UPDATE plain SET a = 4 WHERE id = 3",
    "UPDATE plain SET id = 30 WHERE id = 3",
    "DELETE FROM plain WHERE id = 2",
    "UPDATE plain SET t = 'z'",
    "TRUNCATE plain",
    "BEGIN; INSERT INTO plain SELECT i, i, 's', NULL FROM generate_series(100, 400) i; "
    "DELETE FROM plain WHERE id < 150; UPDATE plain SET id = id + 1000 WHERE id > 390; COMMIT",
    "INSERT INTO nokey VALUES (2, 'y')",
    "TRUNCATE nokey, two",
    f"INSERT INTO whole VALUES (2, 1, {_LARGE}, NULL)",
    "UPDATE whole SET a = 2",
    "UPDATE whole SET id = 20 WHERE id = 2",
    "DELETE FROM whole",
    "INSERT INTO byindex VALUES (2, 2, 'x')",
    "UPDATE byindex SET b = 'z' WHERE a = 2",
    "UPDATE byindex SET a = 3 WHERE a = 2",
    "DELETE FROM byindex WHERE a = 3",
    "INSERT INTO two VALUES (2, 'x', 1)",
    "UPDATE two SET v = 2",
    "UPDATE two SET b = 3 WHERE b = 2",
    "DELETE FROM two",
    "INSERT INTO defaults DEFAULT VALUES",
    "UPDATE defaults SET i = 6",
    "INSERT INTO weird VALUES (2, 'm', 1, 2)",
    "CREATE TABLE later (id INT PRIMARY KEY, a INT)",
    "INSERT INTO later VALUES (1, 1)",
)
POSTGRES_DEFINITIONS = (
    ("ALTER TABLE ddl ADD COLUMN b TEXT NOT NULL DEFAULT 'q'", "INSERT INTO ddl VALUES (3, 3, 'r')"),
    ("ALTER TABLE ddl DROP COLUMN a", "INSERT INTO ddl VALUES (4, 's')"),
    ("ALTER TABLE ddl RENAME COLUMN b TO c", "INSERT INTO ddl VALUES (5, 't')"),
    (
        "ALTER TABLE ddl ALTER COLUMN c TYPE VARCHAR(20), ALTER COLUMN c DROP NOT NULL",
        "INSERT INTO ddl VALUES (6, NULL)",
    ),
    ("ALTER TABLE ddl DROP CONSTRAINT ddl_pkey", "INSERT INTO ddl VALUES (7, 'k')"),
)
"""Each definition and a record that shows it. A reader asks the server for what the log does not say, so each waits."""
POSTGRES_COUNTS = {
    "kinds": 7, "needed": 4, "plain": 445, "nokey": 3, "whole": 11, "byindex": 8, "two": 9, "defaults": 4, "weird": 2,
    "later": 1, "ddl": 6,
}  # fmt: skip

MARIADB_BEFORE = (
    "SET time_zone = '+00:00'",
    *_kinds(MARIADB_KINDS),
    "CREATE TABLE plain (id INT PRIMARY KEY, a INT NOT NULL, t TEXT)",
    "CREATE TABLE nokey (a INT, b TEXT)",
    "CREATE TABLE uniq (a INT NOT NULL UNIQUE, b TEXT)",
    "CREATE TABLE two (b INT, a VARCHAR(20), v INT, PRIMARY KEY (a, b))",
    "CREATE TABLE defaults (id INT AUTO_INCREMENT PRIMARY KEY, i INT NOT NULL DEFAULT 5, t VARCHAR(9) DEFAULT 'xy', "
    "n DECIMAL(6,2) DEFAULT 1.5, b BOOLEAN DEFAULT true, ts TIMESTAMP DEFAULT CURRENT_TIMESTAMP, "
    "tn TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, dt DATETIME DEFAULT '2020-01-01 00:00:00', "
    "d DATE DEFAULT '2020-01-01', e ENUM('a','b') DEFAULT 'b', neg INT DEFAULT -1, f FLOAT DEFAULT 0.5, "
    "g INT GENERATED ALWAYS AS (neg * 2) STORED, nn VARCHAR(5) NOT NULL DEFAULT '', nl INT DEFAULT NULL, "
    "bt BIT(1) DEFAULT b'1', tm TIME DEFAULT '01:02:03', y YEAR DEFAULT 2020, bg BIGINT UNSIGNED DEFAULT 7)",
    "CREATE TABLE ddl (id INT PRIMARY KEY, a INT)",
    "INSERT INTO plain VALUES (1, 1, 'x'), (2, 2, NULL), (5, 5, 'v')",
    "INSERT INTO nokey VALUES (1, 'x')",
    "INSERT INTO uniq VALUES (1, 'x')",
    "INSERT INTO defaults () VALUES ()",
    "INSERT INTO two VALUES (1, 'x', 1)",
    "INSERT INTO ddl VALUES (1, 1)",
)
MARIADB_AFTER = (
    *_kind_changes(MARIADB_KINDS),
    "INSERT INTO plain VALUES (3, 3, 'y')",
    "UPDATE plain SET a = 4 WHERE id = 3",
    "UPDATE plain SET id = 30 WHERE id = 3",
    "DELETE FROM plain WHERE id = 2",
    "UPDATE plain SET t = 'z'",
    "TRUNCATE plain",
    "TRUNCATE TABLE shop.`plain`",
    "BEGIN",
    "INSERT INTO plain SELECT seq, seq, 's' FROM seq_100_to_400",
    "DELETE FROM plain WHERE id < 150",
    "UPDATE plain SET id = id + 1000 WHERE id > 390",
    "COMMIT",
    "INSERT INTO nokey VALUES (2, 'y')",
    "INSERT INTO uniq VALUES (2, 'x')",
    "UPDATE uniq SET a = 3 WHERE a = 2",
    "INSERT INTO two VALUES (2, 'x', 1)",
    "UPDATE two SET v = 2",
    "UPDATE two SET b = 3 WHERE b = 2",
    "DELETE FROM two",
    "INSERT INTO defaults () VALUES ()",
    "UPDATE defaults SET i = 6",
    "CREATE TABLE later (id INT PRIMARY KEY, a INT)",
    "INSERT INTO later VALUES (1, 1)",
    *("XA START 'x'", "INSERT INTO later VALUES (2, 2)", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"),
)
MARIADB_DEFINITIONS = (
    ("ALTER TABLE ddl ADD COLUMN b VARCHAR(9) NOT NULL DEFAULT 'q'", "INSERT INTO ddl VALUES (3, 3, 'r')"),
    ("ALTER TABLE ddl DROP COLUMN a", "INSERT INTO ddl VALUES (4, 's')"),
    ("ALTER TABLE ddl CHANGE b c VARCHAR(20) NULL", "INSERT INTO ddl VALUES (6, NULL)"),
)
MARIADB_COUNTS = {
    "kinds": 7, "needed": 4, "plain": 446, "nokey": 2, "uniq": 5, "two": 11, "defaults": 4, "later": 2, "ddl": 4,
}  # fmt: skip
