"""A standalone worker: lines of a file to a topic and back to a file, each once, over REST."""

import pytest

from integration.connect_rest import Rest, eventually, running_worker
from ottla import KafkaConsumer, KafkaProducer
from ottla.connect.config.worker import worker_config
from ottla.connect.failures import ConfigInvalid, ConnectError
from ottla.connect.worker import Worker
from ottla.testing.running import running_broker


@pytest.fixture(scope="module")
def broker():
    with running_broker() as running:
        yield running


@pytest.fixture(scope="module")
def rest(broker):
    with running_worker(broker.bootstrap, client_id="module") as found:
        yield found


def values(broker, topic):
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=1500,
        isolation_level="read_committed",
    )
    found = [record.value.decode() for record in consumer]
    consumer.close()
    return found


def test_lines_travel_from_a_file_to_a_topic_to_a_file(rest, broker, tmp_path):
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("one\ntwo\r\nthree")
    answer = rest.create("lines-in", connector_class="FileStreamSource", file=str(source), topic="lines")
    assert answer["tasks"] == [{"connector": "lines-in", "task": 0}] and answer["type"] == "source"
    rest.create("lines-out", connector_class="FileStreamSink", file=str(sink), topics="lines")
    eventually(lambda: sink.exists() and sink.read_text() == "one\ntwo\n")
    with source.open("a") as file:
        file.write("\nfour\n")
    eventually(lambda: sink.read_text() == "one\ntwo\nthree\nfour\n")
    rest.await_states("lines-in", "RUNNING", "RUNNING")
    assert values(broker, "lines") == ["one", "two", "three", "four"]
    _, offsets = rest.call("GET", "/connectors/lines-in/offsets")
    assert offsets == {"offsets": [{"partition": {"filename": str(source)}, "offset": {"position": 20}}]}
    _, offsets = rest.call("GET", "/connectors/lines-out/offsets")
    # Markers of transactions take offsets too.
    assert offsets["offsets"][0]["partition"] == {"kafka_topic": "lines", "kafka_partition": 0}
    assert rest.call("GET", "/connectors/lines-in/topics") == (200, {"lines-in": {"topics": ["lines"]}})
    for name in ("lines-in", "lines-out"):
        assert rest.call("DELETE", f"/connectors/{name}") == (204, None)


def test_a_sink_whose_offsets_were_reset_reads_everything_again(rest, broker, tmp_path):
    out = tmp_path / "out.txt"
    with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(3):
            producer.send("again-out", str(number).encode())
    rest.create("again-out", connector_class="FileStreamSink", file=str(out), topics="again-out")
    for times in (1, 2, 3):
        eventually(lambda times=times: out.exists() and out.read_text() == "0\n1\n2\n" * times)
        rest.call("PUT", "/connectors/again-out/stop")
        rest.await_states("again-out", "STOPPED")
        assert rest.call("DELETE", "/connectors/again-out/offsets")[0] == 200
        assert rest.call("GET", "/connectors/again-out/offsets")[1] == {"offsets": []}
        rest.call("PUT", "/connectors/again-out/resume")
    rest.call("DELETE", "/connectors/again-out")


def test_offsets_are_shown_set_and_reset_while_a_connector_is_stopped(rest, broker, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("a\nb\n")
    rest.create("rewound", connector_class="FileStreamSource", file=str(source), topic="rewound")
    eventually(lambda: rest.call("GET", "/connectors/rewound/offsets")[1]["offsets"])
    code, answer = rest.call("DELETE", "/connectors/rewound/offsets")
    assert code == 400 and "must be in the STOPPED state" in answer["message"]
    assert rest.call("PUT", "/connectors/rewound/stop")[0] == 204
    rest.await_states("rewound", "STOPPED")
    wanted = {"offsets": [{"partition": {"filename": str(source)}, "offset": {"position": 2}}]}
    code, answer = rest.call("PATCH", "/connectors/rewound/offsets", wanted)
    assert (code, answer) == (
        200,
        {"message": "The offsets for this connector have been altered successfully"},
    )
    assert rest.call("GET", "/connectors/rewound/offsets")[1] == wanted
    bad = {"offsets": [{"partition": {"filename": str(source)}, "offset": {"position": "x"}}]}
    code, answer = rest.call("PATCH", "/connectors/rewound/offsets", bad)
    assert "is expected to be a Long value" in answer["message"]
    rest.call("PUT", "/connectors/rewound/resume")
    eventually(lambda: values(broker, "rewound") == ["a", "b", "b"])
    rest.call("PUT", "/connectors/rewound/stop")
    rest.await_states("rewound", "STOPPED")
    code, answer = rest.call("DELETE", "/connectors/rewound/offsets")
    assert (code, answer) == (200, {"message": "The offsets for this connector have been reset successfully"})
    assert rest.call("GET", "/connectors/rewound/offsets")[1] == {"offsets": []}
    rest.call("DELETE", "/connectors/rewound")


def test_a_paused_connector_moves_nothing(rest, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("a\n")
    rest.create("paused", connector_class="FileStreamSource", file=str(source), topic="paused")
    rest.await_states("paused", "RUNNING", "RUNNING")
    assert rest.call("PUT", "/connectors/paused/pause") == (202, None)
    rest.await_states("paused", "PAUSED", "PAUSED")
    assert rest.call("PUT", "/connectors/paused/resume") == (202, None)
    rest.await_states("paused", "RUNNING", "RUNNING")
    rest.call("DELETE", "/connectors/paused")
    code, answer = rest.call("GET", "/connectors/paused")
    assert (code, answer) == (404, {"error_code": 404, "message": "Connector paused not found"})


def test_a_truncated_file_fails_the_task_with_a_sentence(rest, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("a\nb\nc\n")
    rest.create("cut", connector_class="FileStreamSource", file=str(source), topic="cut")
    eventually(lambda: rest.call("GET", "/connectors/cut/offsets")[1]["offsets"])
    with source.open("r+") as file:
        file.truncate(2)
    rest.await_states("cut", "RUNNING", "FAILED")
    trace = rest.call("GET", "/connectors/cut/tasks/0/status")[1]["trace"]
    assert "has 2 bytes, fewer than the 6 that were read already" in trace.splitlines()[0]
    rest.call("DELETE", "/connectors/cut")


def test_a_second_worker_goes_on_where_the_first_one_stopped(broker, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("a\nb\n")
    for lines in ("", "c\n"):
        with source.open("a") as file:
            file.write(lines)
        with running_worker(broker.bootstrap, client_id="again") as rest:
            rest.create("again", connector_class="FileStreamSource", file=str(source), topic="again")
            size = source.stat().st_size
            eventually(
                lambda rest=rest, size=size: (
                    [
                        one["offset"]["position"]
                        for one in rest.call("GET", "/connectors/again/offsets")[1]["offsets"]
                    ]
                    == [size]
                )
            )
    assert values(broker, "again") == ["a", "b", "c"]


def test_offsets_in_kafka_s_file_are_read_and_written(broker, tmp_path):
    source, offsets = tmp_path / "in.txt", tmp_path / "connect.offsets"
    source.write_text("a\nb\n")
    for expected in (["a", "b"], ["a", "b", "c"]):
        with running_worker(broker.bootstrap, offset_storage_file_filename=str(offsets)) as rest:
            rest.create("filed", connector_class="FileStreamSource", file=str(source), topic="filed")
            eventually(lambda expected=expected: values(broker, "filed") == expected)
        with source.open("a") as file:
            file.write("c\n")
    assert b'["filed",{"filename":' in offsets.read_bytes()


@pytest.mark.parametrize(
    ("raw", "code", "words"),
    [
        (b"", 400, "no body"),
        (b"{", 400, "not JSON"),
        (b"[1]", 400, "JSON object"),
        (b'{"name":"x","config":{"a":[1]}}', 400, "value of a is not a text"),
        (b'{"name":"x","config":{}}', 400, "contains no connector type"),
        (
            b'{"name":"x","config":{"connector.class":"FileStreamSorce"}}',
            400,
            "nearest names are FileStreamSource",
        ),
        (b'{"name":"x","config":{"connector.class":"com.acme.Foo"}}', 400, "run in Apache Kafka Connect"),
        (
            b'{"name":"x","config":{"connector.class":"FileStreamSource"}}',
            400,
            'Missing required configuration "topic"',
        ),
        (b'{"name":"x","config":{"name":"y"}}', 400, "doesn't match connector name"),
        (
            b'{"name":"a\\nb","config":{"connector.class":"FileStreamSource","topic":"t"}}',
            400,
            "control sequences",
        ),
        (
            b'{"name":"' + b"n" * 1001 + b'","config":{"connector.class":"FileStreamSource","topic":"t"}}',
            400,
            "1000",
        ),
        (b"[" * 100 + b"]" * 100, 400, "levels deep"),
        (b" " * (4 << 20) + b"{}", 413, "Too Large"),
    ],
)
def test_bad_bodies_get_a_sentence(rest, raw, code, words):
    found, answer = rest.call("POST", "/connectors", raw=raw)
    assert found == code and answer["error_code"] == code and words in answer["message"]


def test_names_with_slashes_and_spaces_work_by_their_escapes(rest, tmp_path):
    answer = rest.create("a/b c", connector_class="FileStreamSource", file=str(tmp_path / "no"), topic="t")
    assert answer["name"] == "a/b c"
    assert rest.call("GET", "/connectors/a%2Fb%20c")[1]["name"] == "a/b c"
    assert rest.call("DELETE", "/connectors/a%2Fb%20c")[0] == 204


def test_a_worker_refuses_unknown_keys_taken_ports_and_missing_brokers(broker, rest, monkeypatch):
    with pytest.raises(ConfigInvalid, match=r"no key 'listenerz'; did you mean listeners"):
        worker_config({"listenerz": "x"})
    with pytest.raises(ConfigInvalid, match="Not a number of type LONG"):
        worker_config({"offset.flush.interval.ms": "soon"})
    port = rest.url.rpartition(":")[2]
    keys = {"bootstrap.servers": broker.bootstrap, "listeners": f"http://127.0.0.1:{port}"}
    with pytest.raises(ConnectError, match="cannot listen on"):
        Worker(worker_config(keys)).start()
    monkeypatch.setattr("ottla.connect.worker._BROKERS_WITHIN_S", 0.2)
    keys = {"bootstrap.servers": "127.0.0.1:1", "listeners": "http://127.0.0.1:0"}
    with pytest.raises(ConnectError, match=r"no broker answers at 127\.0\.0\.1:1"):
        Worker(worker_config(keys)).start()


def test_unknown_paths_are_kafka_s_404(rest: Rest):
    assert rest.call("GET", "/nothing") == (404, {"error_code": 404, "message": "HTTP 404 Not Found"})
    assert rest.call("GET", "/connectors/none/status")[0] == 404
    assert rest.call("PUT", "/connectors/none/fence")[0] == 403
