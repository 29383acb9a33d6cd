"""Delta and Iceberg tables behind a worker: records of a topic are rows once, and a reset reads them again."""

import json

import pytest

from integration.connect_rest import eventually, running_worker
from ottla import KafkaProducer
from ottla.testing.running import running_broker

deltalake = pytest.importorskip("deltalake")
catalogs = pytest.importorskip("pyiceberg.catalog")
JSON = "org.apache.kafka.connect.json.JsonConverter"


def test_both_tables_hold_the_topic_once_and_again_after_a_reset(tmp_path):
    fields = [{"field": "id", "type": "int32"}, {"field": "name", "type": "string", "optional": True}]
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    with running_broker() as broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(5):
                schema = {"type": "struct", "fields": fields[: 1 + number % 2]}
                payload = {"id": number, "name": f"n{number}"} if number % 2 else {"id": number}
                producer.send("orders", json.dumps({"schema": schema, "payload": payload}).encode())
        with running_worker(broker.bootstrap, client_id="lake", value_converter=JSON) as rest:
            delta = {"connector.class": "DeltaSink", "delta.table": f"{tmp_path}/delta/${{topic}}"}
            iceberg = {
                "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
                "iceberg.tables": "shop.orders",
                "iceberg.tables.auto-create-enabled": "true",
                "iceberg.tables.evolve-schema-enabled": "true",
                **{f"iceberg.catalog.{key}": value for key, value in catalog.items()},
            }
            for name, config in (("delta", delta), ("iceberg", iceberg)):
                given = {"name": name, "config": {"topics": "orders", **config}}
                code, answer = rest.call("POST", "/connectors", given)
                assert code == 201, answer

            def written(name):
                found = rest.call("GET", f"/connectors/{name}/offsets")[1]["offsets"]
                return [one["offset"]["kafka_offset"] for one in found] == [5]

            for times in (1, 2):
                for name in ("delta", "iceberg"):
                    eventually(lambda name=name: written(name))
                tables = (
                    deltalake.DeltaTable(f"{tmp_path}/delta/orders").to_pyarrow_table(),
                    catalogs.load_catalog("iceberg", **catalog).load_table("shop.orders").scan().to_arrow(),
                )
                for table in tables:
                    rows = sorted((row["id"], row["name"]) for row in table.to_pylist() if row["name"])
                    assert rows == sorted([(1, "n1"), (3, "n3")] * times)
                    assert table.num_rows == 5 * times
                for name in ("delta", "iceberg"):
                    rest.call("PUT", f"/connectors/{name}/stop")
                    rest.await_states(name, "STOPPED")
                    assert rest.call("DELETE", f"/connectors/{name}/offsets")[0] == 200
                    rest.call("PUT", f"/connectors/{name}/resume")
