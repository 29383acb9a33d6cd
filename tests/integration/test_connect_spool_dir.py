"""SpoolDir: each row of each file arrives once, files that are done move on, damaged ones are named."""

import json

import pytest

from integration.connect_changes import JSON
from integration.connect_rest import eventually, running_worker
from ottla import KafkaConsumer
from ottla.testing.running import running_broker

pytestmark = pytest.mark.slow
PACKAGE = "com.github.jcustenborder.kafka.connect.spooldir"
SCHEMA = json.dumps(
    {
        "name": "order",
        "type": "STRUCT",
        "fieldSchemas": {
            "id": {"type": "INT64", "isOptional": False},
            "item": {"type": "STRING", "isOptional": True},
            "price": {
                "type": "BYTES",
                "name": "org.apache.kafka.connect.data.Decimal",
                "parameters": {"scale": "2"},
                "isOptional": True,
            },
        },
    }
)


@pytest.fixture(scope="module")
def broker():
    with running_broker() as running:
        yield running


def worker(broker, **keys):
    return running_worker(
        broker.bootstrap, client_id="spool", value_converter=JSON, key_converter=JSON, **keys
    )


@pytest.fixture(scope="module")
def rest(broker):
    with worker(broker) as found:
        yield found


def values(broker, topic):
    with KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=700,
        isolation_level="read_committed",
    ) as consumer:
        return [json.loads(record.value)["payload"] for record in consumer]


def create(rest, name, folder, kind, **keys):
    for part in ("in", "done", "bad"):
        (folder / part).mkdir(exist_ok=True)
    given = {
        "connector.class": f"{PACKAGE}.SpoolDir{kind}SourceConnector",
        "topic": name,
        "input.path": str(folder / "in"),
        "finished.path": str(folder / "done"),
        "error.path": str(folder / "bad"),
        "input.file.pattern": r".*\.(csv|json|txt)",
    }
    given |= {key.replace("_", "."): value for key, value in keys.items()}
    code, answer = rest.call("POST", "/connectors", {"name": name, "config": given})
    assert code == 201, answer


def put(folder, name, text):
    """A file appears whole."""
    part = folder / "in" / f"{name}.part"
    part.write_text(text)
    part.rename(folder / "in" / name)


def test_rows_of_csv_have_their_schema_and_files_move(rest, broker, tmp_path):
    create(rest, "csv", tmp_path, "Csv", value_schema=SCHEMA, csv_first_row_as_header="true")
    put(tmp_path, "1.csv", 'item,id,price\n"pen, blue",1,1.5\n,2,\n')
    put(tmp_path, "2.csv", "id,item,price\n3,x,-2\n")
    eventually(lambda: len(values(broker, "csv")) == 3)
    assert values(broker, "csv") == [
        {"id": 1, "item": "pen, blue", "price": "AJY="},
        {"id": 2, "item": "", "price": None},
        {"id": 3, "item": "x", "price": "/zg="},
    ]
    eventually(lambda: sorted(one.name for one in (tmp_path / "done").iterdir()) == ["1.csv", "2.csv"])
    # Another file of the same name is another file.
    put(tmp_path, "1.csv", "id,item,price\n4,,\n")
    eventually(lambda: len(values(broker, "csv")) == 4)
    rest.call("DELETE", "/connectors/csv")


def test_json_and_lines(rest, broker, tmp_path):
    for name, kind in (("typed", "Json"), ("texts", "SchemaLessJson"), ("lines", "LineDelimited")):
        folder = tmp_path / name
        folder.mkdir()
        create(rest, name, folder, kind)
        put(folder, "a.json", '{"id": 1, "ok": true}\n{"id": 2,\n "ok": null}\n')
    eventually(lambda: len(values(broker, "lines")) == 3)
    eventually(lambda: values(broker, "typed") == [{"id": 1, "ok": True}, {"id": 2, "ok": None}])
    eventually(lambda: values(broker, "texts") == ['{"id":1,"ok":true}', '{"id":2,"ok":null}'])
    for name in ("typed", "texts", "lines"):
        rest.call("DELETE", f"/connectors/{name}")


def test_damaged_files_stop_the_connector_or_are_set_aside(rest, broker, tmp_path):
    create(rest, "halts", tmp_path, "Csv", value_schema=SCHEMA, csv_first_row_as_header="true")
    put(tmp_path, "1.csv", "id,item,price\n1,a,\nmany,b,\n")
    rest.await_states("halts", "RUNNING", "FAILED")
    trace = rest.call("GET", "/connectors/halts/tasks/0/status")[1]["trace"]
    assert "1.csv: line 3, column id: 'many' is no INT64" in trace
    rest.call("DELETE", "/connectors/halts")
    create(
        rest,
        "skips",
        tmp_path,
        "Csv",
        value_schema=SCHEMA,
        csv_first_row_as_header="true",
        halt_on_error="false",
    )
    put(tmp_path, "2.csv", "id,item,price\n2,c,\n")
    eventually(lambda: [one["id"] for one in values(broker, "skips")] == [1, 2])
    eventually(lambda: (tmp_path / "bad" / "1.csv").exists() and (tmp_path / "done" / "2.csv").exists())
    rest.call("DELETE", "/connectors/skips")


def test_each_row_arrives_once_across_restarts(broker, tmp_path):
    (tmp_path / "in").mkdir()
    put(tmp_path, "a.txt", "".join(f"{number}\n" for number in range(400)))
    for least in (30, 100, 400):
        with worker(broker, ottla_cycle_max_records="7") as rest:
            create(rest, "once-lines", tmp_path, "LineDelimited")
            eventually(lambda least=least: len(values(broker, "once-lines")) >= least, 60)
    assert values(broker, "once-lines") == [str(number) for number in range(400)]
    assert (tmp_path / "done" / "a.txt").exists()
