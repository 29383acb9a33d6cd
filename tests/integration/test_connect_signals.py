"""Signals in a table, incremental snapshots while rows change, and the topic of transactions, on both databases."""

import contextlib
import json
import threading

import psycopg2
import pymysql
import pytest

from integration.connect_changes import create, worker
from integration.connect_rest import eventually
from integration.servers import PASSWORD, USER, running_mariadb, running_postgres
from ottla import KafkaConsumer, TopicPartition
from ottla.connect.plugins import Plugins
from ottla.testing.running import running_broker

pytestmark = pytest.mark.slow

TABLE = "CREATE TABLE {} (id INT, part INT, n INT NOT NULL, PRIMARY KEY (id, part))"
SIGNALS = "CREATE TABLE signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)"


@pytest.fixture(scope="module")
def broker(database):
    """Each database has one of its own: connectors, topics and offsets have the same names for both."""
    with running_broker() as running:
        yield running


@pytest.fixture(scope="module")
def rest(broker):
    # Small cycles cut transactions.
    with worker(broker, ottla_cycle_max_records="3") as found:
        yield found


class Database:
    """A server, what tells its tables apart, and a connector's keys."""

    def __init__(self, schema, connect, keys):
        self.schema, self.connect, self.keys = schema, connect, keys

    def run(self, *lines):
        with contextlib.closing(self.connect()) as connection:
            cursor = connection.cursor()
            for line in lines:
                cursor.execute(line)
            connection.commit()

    def signal(self, name, kind, **data):
        self.run(signal(name, kind, **data))


def signal(name, kind, **data):
    text = json.dumps({key.replace("_", "-"): value for key, value in data.items()})
    return f"INSERT INTO signals VALUES ('{name}', '{kind}', '{text}')"


@pytest.fixture(scope="module", params=["postgres", "mariadb"])
def database(request):
    if request.param == "postgres":
        with running_postgres() as server:
            login = {"host": "127.0.0.1", "port": server.port, "user": USER, "dbname": "shop"}
            keys = {
                "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
                "database.port": str(server.port),
                "database.dbname": "shop",
            }
            found = Database("public", lambda: psycopg2.connect(**login), keys)
            found.run(SIGNALS)
            yield found
        return
    with running_mariadb() as server:
        login = {"host": "127.0.0.1", "port": server.port, "user": "root", "database": "shop"}
        keys = {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.port": str(server.port),
        }
        found = Database("shop", lambda: pymysql.connect(**login), keys)
        found.run(SIGNALS, f"GRANT INSERT ON shop.signals TO '{USER}'@'%'")
        yield found


@contextlib.contextmanager
def connector(rest, database, name, **keys):
    """Reads the table of its name, which is not the table of signals."""
    given = {
        **database.keys,
        "topic.prefix": name,
        "database.hostname": "127.0.0.1",
        "database.user": USER,
        "database.password": PASSWORD,
        "table.include.list": rf"{database.schema}\.{name}",
        "signal.data.collection": f"{database.schema}.signals",
    }
    if database.schema == "public":
        given |= {"slot.name": f"s_{name}", "publication.name": f"p_{name}"}
    create(rest, name, given | {key.replace("_", "."): value for key, value in keys.items()})
    try:
        yield
    finally:
        rest.call("DELETE", f"/connectors/{name}")


def values(broker, topic):
    """The values up to where the topic ends now, without tombstones."""
    with KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        if topic not in consumer.topics():
            return []
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        found = []
        while consumer.position(place) < end:
            for batch in consumer.poll(100).values():
                found += [json.loads(record.value)["payload"] for record in batch if record.value is not None]
        return found


def rows_of(found):
    return sorted((one["after"]["id"], one["after"]["part"], one["after"]["n"]) for one in found)


def test_transactions_have_records_and_their_changes_an_order(rest, broker, database):
    """Cycles of three records cut the transaction: its numbers go on."""
    database.run(TABLE.format("ordered"))
    with connector(rest, database, "ordered", provide_transaction_metadata="true", snapshot_mode="no_data"):
        rest.await_states("ordered", "RUNNING", "RUNNING")
        topic = f"ordered.{database.schema}.ordered"
        eventually(lambda: streams(rest, "ordered"))
        database.run("INSERT INTO ordered VALUES (0, 0, 0)")
        eventually(lambda: len(values(broker, "ordered.transaction")) == 2)
        database.run(
            "INSERT INTO ordered VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 4), (5, 5, 5), (6, 6, 6)",
            "UPDATE ordered SET id = 7 WHERE id = 6",
            "DELETE FROM ordered WHERE id = 1",
        )
        database.run("INSERT INTO signals VALUES ('o1', 'log', NULL)")
        eventually(lambda: len(values(broker, "ordered.transaction")) == 4)
        found = [one["transaction"] for one in values(broker, topic)]
        assert [(one["total_order"], one["data_collection_order"]) for one in found] == [
            (1, 1),
            *((number, number) for number in range(1, 10)),
        ]
        marks = values(broker, "ordered.transaction")
        assert [one["status"] for one in marks] == ["BEGIN", "END", "BEGIN", "END"]
        assert marks[2]["event_count"] is None and marks[2]["data_collections"] is None
        assert marks[3]["event_count"] == 9
        assert marks[3]["data_collections"] == [
            {"data_collection": f"{database.schema}.ordered", "event_count": 9}
        ]
        # PostgreSQL's ids have the position in the log behind the number of the transaction.
        assert {one["id"].split(":")[0] for one in (*marks[2:], *found[1:])} == {marks[2]["id"].split(":")[0]}


def streams(rest, name):
    return bool(rest.call("GET", f"/connectors/{name}/offsets")[1]["offsets"])


def waiting(rest, name):
    """The tables that wait, as the offset has them."""
    return rest.call("GET", f"/connectors/{name}/offsets")[1]["offsets"][0]["offset"].get("ottla_incremental")


def test_a_signal_asks_for_rows_again_while_they_change(rest, broker, database):
    """Chunks of nine rows; what the topic says last of each row is what the table has."""
    database.run(
        TABLE.format("again"),
        *(f"INSERT INTO again VALUES ({one // 4}, {one % 4}, 0)" for one in range(50)),
    )
    topic = f"again.{database.schema}.again"
    with connector(rest, database, "again", incremental_snapshot_chunk_size="9"):
        eventually(lambda: len(values(broker, topic)) == 50)
        ended = threading.Event()

        def change():
            number = 0
            # At a pace that cycles of three records can follow.
            while not ended.wait(0.5):
                number += 1
                database.run(
                    f"UPDATE again SET n = {number} WHERE id = {number % 12}",
                    f"DELETE FROM again WHERE id = 5 AND part = {number % 4}",
                    f"INSERT INTO again VALUES (5, {number % 4}, {number})",
                )

        writer = threading.Thread(target=change)
        writer.start()
        database.signal("a1", "execute-snapshot", data_collections=[f"{database.schema}.again"])

        def snapshot():
            return [one for one in values(broker, topic) if one["source"]["snapshot"] == "incremental"]

        try:
            eventually(
                lambda: {(one["after"]["id"], one["after"]["part"]) for one in snapshot()} >= {(12, 1)}
            )
        finally:
            ended.set()
            writer.join()
        database.run("UPDATE again SET n = -1 WHERE id = 12 AND part = 1")
        eventually(lambda: values(broker, topic)[-1]["after"] == {"id": 12, "part": 1, "n": -1})
        found = snapshot()
        keys = [(one["after"]["id"], one["after"]["part"]) for one in found]
        assert len(keys) == len(set(keys)) and keys == sorted(keys)
        # What did not change is in the snapshot; what changed beside a chunk is in the log alone.
        assert {(12, 0), (12, 1)} <= set(keys)
        assert {one["op"] for one in found} == {"r"} and {one["transaction"] for one in found} == {None}
        last = {}
        for one in values(broker, topic):
            row = one["after"] or one["before"]
            last[row["id"], row["part"]] = None if one["after"] is None else row["n"]
        with contextlib.closing(database.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT id, part, n FROM again")
            there = {(id, part): n for id, part, n in cursor.fetchall()}
        assert {key: n for key, n in last.items() if n is not None} == there
        # The table of signals is not in the list of tables, so it has no topic.
        assert (
            f"again.{database.schema}.signals"
            not in rest.call("GET", "/connectors/again/topics")[1]["again"]["topics"]
        )


def test_conditions_pauses_and_signals_that_are_wrong(rest, broker, database):
    database.run(
        TABLE.format("chosen"),
        "CREATE TABLE keyless (id INT)",
        *(f"INSERT INTO chosen VALUES ({one}, 0, {one})" for one in range(10)),
    )
    topic = f"chosen.{database.schema}.chosen"
    schema = database.schema
    with connector(
        rest,
        database,
        "chosen",
        incremental_snapshot_chunk_size="2",
        snapshot_mode="no_data",
        table_include_list=rf"{schema}\.(chosen|keyless)",
    ):
        eventually(lambda: streams(rest, "chosen"))
        for name, kind, data in (
            ("c1", "execute-snapshot", "no JSON"),
            ("c2", "execute-snapshot", "{}"),
            ("c3", "execute-snapshot", '{"data-collections": ["unknown"]}'),
            ("c4", "execute-snapshot", '{"data-collections": ["("]}'),
            ("c5", "execute-snapshot", '{"data-collections": ["x"], "type": "blocking"}'),
            ("c6", "execute-snapshot", f'{{"data-collections": ["{schema}.keyless"]}}'),
            ("c7", "unknown", "{}"),
        ):
            database.run(f"INSERT INTO signals VALUES ('{name}', '{kind}', '{data}')")
        database.signal(
            "c8",
            "execute-snapshot",
            data_collections=[f"{schema}.chosen"],
            additional_conditions=[{"data-collection": f"{schema}.chosen", "filter": "no_such_column = 1"}],
        )
        database.run("INSERT INTO chosen VALUES (99, 0, 99)")
        eventually(lambda: len(values(broker, topic)) == 1)
        eventually(lambda: not waiting(rest, "chosen"))
        condition = {"data-collection": f"{schema}.chosen", "filter": "n % 2 = 0 AND n < 8"}
        database.run(
            signal(
                "c9",
                "execute-snapshot",
                data_collections=[f"{schema}.chosen"],
                additional_conditions=[condition],
            ),
            signal("c10", "pause-snapshot"),
            "INSERT INTO chosen VALUES (100, 0, 101)",
        )
        eventually(lambda: len(values(broker, topic)) == 2)
        # The end of a transaction comes to each partition by itself.
        assert json.loads(eventually(lambda: waiting(rest, "chosen")))["paused"] is True
        database.signal("c11", "resume-snapshot")
        eventually(lambda: len(values(broker, topic)) == 6 and not waiting(rest, "chosen"))
        assert rows_of(values(broker, topic)[2:]) == [(one, 0, one) for one in (0, 2, 4, 6)]
        rest.await_states("chosen", "RUNNING", "RUNNING")


def test_an_incremental_snapshot_goes_on_after_a_restart(rest, broker, database):
    database.run(
        TABLE.format("restarted"),
        *(f"INSERT INTO restarted VALUES ({one}, 0, {one})" for one in range(300)),
    )
    topic = f"restarted.{database.schema}.restarted"
    with connector(rest, database, "restarted", incremental_snapshot_chunk_size="2", snapshot_mode="no_data"):
        eventually(lambda: streams(rest, "restarted"))
        database.signal("r1", "execute-snapshot", data_collections=[f"{database.schema}.restarted"])
        eventually(lambda: len(values(broker, topic)) > 10)
        rest.call("POST", "/connectors/restarted/restart?includeTasks=true")
        eventually(lambda: len(values(broker, topic)) >= 300, 120)
        found = rows_of(values(broker, topic))
        assert found == [(one, 0, one) for one in range(300)]


def test_a_large_table_of_a_snapshot_is_read_in_parts(rest, broker, database):
    """A table is one transaction, which brokers end after 15 minutes: one with more rows is read beside the log."""
    database.run(TABLE.format("large"), *(f"INSERT INTO large VALUES ({one}, 0, {one})" for one in range(60)))
    database.run("ANALYZE large" if database.schema == "public" else "ANALYZE TABLE large")
    topic = f"large.{database.schema}.large"
    with connector(
        rest, database, "large", incremental_snapshot_chunk_size="7", ottla_snapshot_max_rows="20"
    ):
        eventually(lambda: len(values(broker, topic)) == 60)
        found = values(broker, topic)
        assert rows_of(found) == [(one, 0, one) for one in range(60)]
        assert {one["source"]["snapshot"] for one in found} == {"incremental"}
        database.run("UPDATE large SET n = 0 WHERE id = 3")
        eventually(lambda: values(broker, topic)[-1]["op"] == "u")
        assert len(values(broker, topic)) == 61


def test_a_missing_table_of_signals_is_named_with_the_statement_that_makes_it(rest, database, caplog):
    database.run(TABLE.format("unsignalled"))
    with connector(rest, database, "unsignalled", signal_data_collection=f"{database.schema}.typo"):
        eventually(lambda: "CREATE TABLE" in caplog.text)
        config = rest.call("GET", "/connectors/unsignalled/config")[1]
        # Not its slot, which the running connector uses.
        config |= {"slot.name": "s_of_nobody"} if database.schema == "public" else {}
        findings = Plugins().connector(config["connector.class"])(config).check()
        assert [one.good for one in findings] == [False]
        assert findings[0].text.startswith(
            f"there is no table {database.schema}.typo for signals: run CREATE TABLE {database.schema}.typo (id"
        )


def test_signals_come_though_creations_are_skipped_and_the_publication_has_chosen_tables(
    rest, broker, database
):
    database.run(TABLE.format("filtered"), "INSERT INTO filtered VALUES (1, 1, 1)")
    topic = f"filtered.{database.schema}.filtered"
    keys = {"publication_autocreate_mode": "filtered"} if database.schema == "public" else {}
    with connector(rest, database, "filtered", skipped_operations="c,t", **keys):
        eventually(lambda: len(values(broker, topic)) == 1)
        database.run("INSERT INTO filtered VALUES (2, 2, 2)")
        database.signal("f1", "execute-snapshot", data_collections=[f"{database.schema}.filtered"])
        eventually(lambda: len(values(broker, topic)) == 3)
        assert [one["op"] for one in values(broker, topic)] == ["r", "r", "r"]
