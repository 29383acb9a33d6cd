"""Writes the rows of a cycle in one transaction with its offsets; refused rows are found by halving.

In a Spark job each range has a transaction of its own, which locks the row of its partition's offset: a task that runs
twice, or that was thought dead, finds the range written.

Tables are made and changed before that transaction, because some databases end a transaction with each such
statement.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from ottla.connect.config.definitions import ConfigValues
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.record import SinkRecord
from ottla.connect.data.schema import Schema
from ottla.connect.databases.connection import Connection, SqlValue
from ottla.connect.databases.dialect import Dialect, TableId
from ottla.connect.databases.keys import dialect_for
from ottla.connect.failures import ConnectError, DataError, Retriable, TaskFailed
from ottla.connect.sinks.jdbc_rows import RowMaker, RowWrite
from ottla.connect.spi import Place, Range, Refuse, SinkCycle, SinkWriter, Written, each_record

_logger = logging.getLogger(__name__)

_OFFSETS: Final = TableId("ottla_connect_offsets")
_OFFSET_KEYS: Final = ("connector", "topic", "kafka_partition")
_OFFSET_VALUES: Final = ("lineage", "next_offset")
_WRITTEN: Final = "written"
"""The message of a range that a task has committed itself."""


class JdbcWriter(SinkWriter):
    """One connection of one connector."""

    idempotent = True  # the table of offsets tells what was written

    def __init__(self, connector: str, values: ConfigValues) -> None:
        self._connector = connector
        self._values = dict(values)
        self._dialect: Dialect = dialect_for(values)
        self._maker = RowMaker(values)
        self._connection: Connection = None
        self._columns: dict[TableId, set[str]] = {}
        # SQLite has one writer at a time, and no locks of rows.
        self.parallel = self._dialect.address.kind != "sqlite"

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_connection": None, "_columns": {}}

    # -- connection and offsets

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._dialect.connect()
            if self._dialect.address.kind == "sqlite":
                self._connection.isolation_level = None
            self._make_offsets()
        return self._connection

    def _make_offsets(self) -> None:
        dialect = self._dialect
        text = dialect.text_key
        with dialect.errors(f"cannot make the table {_OFFSETS}"):
            if dialect.columns(self._connection, _OFFSETS):
                self._connection.rollback()
                return
            cursor = self._connection.cursor()
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {_OFFSETS} (connector {text} NOT NULL, topic {text} NOT NULL, "
                "kafka_partition INTEGER NOT NULL, lineage BIGINT NOT NULL, next_offset BIGINT NOT NULL, "
                "PRIMARY KEY (connector, topic, kafka_partition))"
            )
            self._connection.commit()

    def positions(self, places: Iterable[Place], lineage: int) -> Mapping[Place, int]:
        """The offsets that the tables stand for."""
        connection = self._connected()
        wanted = set(places)
        with self._dialect.errors(f"cannot read the table {_OFFSETS}"):
            found = self._stored(connection, lineage, lock=False)
            connection.rollback()
        return {place: offset for place, offset in found.items() if place in wanted}

    def _stored(self, connection: Connection, lineage: int, *, lock: bool) -> dict[Place, int]:
        cursor = connection.cursor()
        ending = " FOR UPDATE" if lock and self._dialect.address.kind != "sqlite" else ""
        self._dialect.execute(
            cursor,
            f"SELECT topic, kafka_partition, lineage, next_offset FROM {_OFFSETS} "
            f"WHERE connector = {self._dialect.mark}{ending}",
            [self._connector],
        )
        rows = cursor.fetchall()
        cursor.close()
        return {
            Place(topic, int(partition)): int(offset)
            for topic, partition, of, offset in rows
            if of == lineage
        }

    # -- a cycle

    def write(self, cycle: SinkCycle, records: Iterator[SinkRecord], refuse: Refuse) -> None:
        """Applies the rows in an open transaction."""
        rows = self._rows(records, refuse)
        connection = self._connected()
        with self._dialect.errors(f"cannot write to {self._dialect.address}"):
            self._prepare_tables(connection, rows)
            if self._dialect.address.kind == "sqlite":
                connection.execute("BEGIN IMMEDIATE")
            self._check_owner(connection, cycle)
            for batch in self._batches(rows):
                self._apply(connection, batch, refuse)

    def _rows(self, records: Iterator[SinkRecord], refuse: Refuse) -> list[RowWrite]:
        rows: list[RowWrite] = []
        for record in records:
            try:
                row = self._maker.row(record)
            except DataError as error:
                refuse(record, error)
                continue
            if row is not None:
                rows.append(row)
        return rows

    def write_range(
        self, cycle: SinkCycle, part: Range, found: Iterator[SinkRecord | RecordColumns], refuse: Refuse
    ) -> Written:
        """Writes and commits one range, with its offset."""
        connection = self._connected()
        try:
            with self._dialect.errors(f"cannot write to {self._dialect.address}"):
                rows = self._rows(each_record(found), refuse)
                self._prepare_tables(connection, rows)
                self._begin_offset(connection, cycle, part)
                if self._is_due(connection, cycle, part):
                    for batch in self._batches(rows):
                        self._apply(connection, batch, refuse)
                    self._write_offsets(connection, cycle, [part])
                connection.commit()
        except BaseException:
            self.abort(cycle, ())
            raise
        finally:
            self.stop()
        return _WRITTEN

    def _begin_offset(self, connection: Connection, cycle: SinkCycle, part: Range) -> None:
        """Makes the row that stands for the partition, so that it can be locked."""
        key = [self._connector, part.topic, part.partition]
        cursor = connection.cursor()
        self._dialect.execute(
            cursor, f"SELECT lineage FROM {_OFFSETS} WHERE {self._dialect.where(_OFFSET_KEYS)}", key
        )
        there = cursor.fetchone()
        if there is None:
            sql = self._dialect.insert(_OFFSETS, [*_OFFSET_KEYS, *_OFFSET_VALUES])
            try:
                self._dialect.execute(cursor, sql, [*key, cycle.lineage, part.start])
            except Exception as error:
                if not self._dialect.is_error(error) or self._dialect.passes(error):
                    raise
                _logger.debug("another task made the row of %s-%d", part.topic, part.partition)
                connection.rollback()
        cursor.close()
        connection.commit()

    def _is_due(self, connection: Connection, cycle: SinkCycle, part: Range) -> bool:
        """Locks the offset of a partition; False if the range is written. Retriable for an older run."""
        cursor = connection.cursor()
        self._dialect.execute(
            cursor,
            f"SELECT lineage, next_offset FROM {_OFFSETS} WHERE {self._dialect.where(_OFFSET_KEYS)} FOR UPDATE",
            [self._connector, part.topic, part.partition],
        )
        lineage, there = cursor.fetchone()
        cursor.close()
        if lineage == cycle.lineage and there == part.end:
            return False
        if lineage > cycle.lineage or (lineage == cycle.lineage and there > part.start):
            raise self._other_run(there, part)
        return True

    def _other_run(self, there: int, part: Range) -> Retriable:
        return Retriable(
            f"the table {_OFFSETS} is at offset {there} of {part.topic}-{part.partition}, but this run is at "
            f"{part.start}: another run of connector {self._connector} has written"
        )

    def _check_owner(self, connection: Connection, cycle: SinkCycle) -> None:
        """Refuses a run whose rows were written by a newer one."""
        stored = self._stored(connection, cycle.lineage, lock=True)
        for one in cycle.ranges:
            there = stored.get(Place(one.topic, one.partition))
            if there is not None and there > one.start:
                raise self._other_run(there, one)

    def _batches(self, rows: Sequence[RowWrite]) -> Iterator[list[RowWrite]]:
        """Neighbours with the same statement; of one key only the last counts, unless rows are only inserted."""
        size: int = self._values["batch.size"]
        last_wins = self._values["insert.mode"] != "insert"
        batch: dict[object, RowWrite] = {}
        kind: object = None
        for number, row in enumerate(rows):
            own = (row.table, row.others is None, tuple(row.columns()))
            if batch and (own != kind or len(batch) >= size):
                yield list(batch.values())
                batch = {}
            kind = own
            key: object = tuple(one[1] for one in row.keys.values()) if last_wins and row.keys else number
            batch.pop(key, None)
            batch[key] = row
        if batch:
            yield list(batch.values())

    def _apply(self, connection: Connection, batch: list[RowWrite], refuse: Refuse) -> None:
        """Runs a batch; if the database refuses it, its halves, down to the rows that are at fault."""
        sql, parameters = self._statement(batch)
        cursor = connection.cursor()
        cursor.execute("SAVEPOINT ottla_rows")
        try:
            self._dialect.execute_many(cursor, sql, parameters)
        except Exception as error:
            if not self._dialect.is_error(error) or self._dialect.passes(error):
                raise
            cursor.execute("ROLLBACK TO SAVEPOINT ottla_rows")
            if len(batch) == 1:
                words = " ".join(str(error.args[-1] if error.args else error).split())
                refuse(batch[0].record, DataError(f"table {batch[0].table} refuses a row: {words}"))
                return
            middle = len(batch) // 2
            self._apply(connection, batch[:middle], refuse)
            self._apply(connection, batch[middle:], refuse)
            return
        finally:
            cursor.close()

    def _statement(self, batch: list[RowWrite]) -> tuple[str, list[list[SqlValue]]]:
        first = batch[0]
        keys = list(first.keys)
        dialect = self._dialect

        def values(row: RowWrite, part: str) -> list[SqlValue]:
            found = row.keys if part == "keys" else row.others or {}
            return [dialect.parameter(schema, one) for schema, one in found.values()]

        if first.others is None:
            return dialect.delete(first.table, keys), [values(row, "keys") for row in batch]
        others = list(first.others)
        if self._values["insert.mode"] == "update":
            rows = [[*values(row, "others"), *values(row, "keys")] for row in batch]
            return dialect.update(first.table, keys, others), rows
        rows = [[*values(row, "keys"), *values(row, "others")] for row in batch]
        if self._values["insert.mode"] == "upsert":
            return dialect.upsert(first.table, keys, others), rows
        return dialect.insert(first.table, [*keys, *others]), rows

    def commit(self, cycle: SinkCycle, messages: Sequence[Written]) -> None:
        """The offsets, and the end of the transaction. Tasks of a job have done both."""
        if _WRITTEN in messages:
            return
        with self._dialect.errors(f"cannot commit to {self._dialect.address}"):
            self._write_offsets(self._connection, cycle, cycle.ranges)
            if self._dialect.address.kind == "sqlite":
                self._connection.execute("COMMIT")
            else:
                self._connection.commit()

    def _write_offsets(self, connection: Connection, cycle: SinkCycle, ranges: Iterable[Range]) -> None:
        sql = self._dialect.upsert(_OFFSETS, _OFFSET_KEYS, _OFFSET_VALUES)
        rows = [(self._connector, one.topic, one.partition, cycle.lineage, one.end) for one in ranges]
        cursor = connection.cursor()
        self._dialect.execute_many(cursor, sql, rows)
        cursor.close()

    def abort(self, cycle: SinkCycle, messages: Sequence[Written]) -> None:
        """Takes the rows back."""
        self._columns.clear()
        if self._connection is not None:
            try:
                self._connection.rollback()
            except Exception as error:  # noqa: BLE001 - a lost connection rolls back by itself
                _logger.debug("rollback failed: %s", error)

    # -- tables

    def _prepare_tables(self, connection: Connection, rows: Sequence[RowWrite]) -> None:
        """Makes and widens tables where that is allowed."""
        seen: set[tuple[TableId, tuple[str, ...]]] = set()
        for row in rows:
            columns = row.columns()
            known = (row.table, tuple(columns))
            if known in seen or row.others is None:
                continue
            seen.add(known)
            if row.table not in self._columns:
                self._columns[row.table] = {one.name for one in self._dialect.columns(connection, row.table)}
            try:
                self._prepare_table(connection, row, columns)
            except Exception as error:
                if not self._dialect.is_error(error) or self._dialect.passes(error):
                    raise
                # Another task may have done the same.
                connection.rollback()
                self._columns[row.table] = {one.name for one in self._dialect.columns(connection, row.table)}
                if not self._columns[row.table].issuperset(columns):
                    raise
            self._columns[row.table] |= set(columns)
        connection.rollback()

    def _prepare_table(self, connection: Connection, row: RowWrite, columns: Mapping[str, Schema]) -> None:
        there = self._columns[row.table]
        if not there:
            self._create(connection, row)
        elif missing := {name: one for name, one in columns.items() if name not in there}:
            self._evolve(connection, row.table, missing)

    def _create(self, connection: Connection, row: RowWrite) -> None:
        if not self._values["auto.create"]:
            raise TaskFailed(f"there is no table {row.table}: create it, or set auto.create=true")
        columns = [
            self._definition(name, schema, key=name in row.keys) for name, schema in row.columns().items()
        ]
        if row.keys:
            columns.append(f"PRIMARY KEY ({', '.join(map(self._dialect.quote, row.keys))})")
        self._run(connection, f"CREATE TABLE {self._dialect.table(row.table)} ({', '.join(columns)})")

    def _evolve(self, connection: Connection, table: TableId, missing: Mapping[str, Schema]) -> None:
        names = ", ".join(missing)
        if not self._values["auto.evolve"]:
            raise TaskFailed(f"table {table} has no columns {names}: add them, or set auto.evolve=true")
        for name, schema in missing.items():
            if not schema.optional:
                raise TaskFailed(
                    f"table {table} has no column {name}, and the field is not optional, so that old rows have no "
                    "value for it: add the column with a default"
                )
            added = self._definition(name, schema, key=False)
            self._run(connection, f"ALTER TABLE {self._dialect.table(table)} ADD COLUMN {added}")

    def _definition(self, name: str, schema: Schema, *, key: bool) -> str:
        kind = self._dialect.column_type(schema, key=key)
        return f"{self._dialect.quote(name)} {kind}{'' if schema.optional and not key else ' NOT NULL'}"

    def _run(self, connection: Connection, sql: str) -> None:
        _logger.info("%s", sql)
        cursor = connection.cursor()
        cursor.execute(sql)
        cursor.close()
        connection.commit()

    def stop(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            try:
                self._connection.close()
            except Exception as error:
                raise ConnectError(f"the connection did not close: {error}") from error
            self._connection = None
