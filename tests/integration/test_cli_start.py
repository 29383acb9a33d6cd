"""`ottla start` as a user meets it: one line when it is ready, one line when it cannot, and a clean end."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ottla import __version__
from ottla.testing.apache import free_port
from ottla.testing.process import BrokerProcess

BIN = Path(__file__).parents[2] / "bin"


def refused(*words, cwd):
    """Run `ottla start`, which must refuse; gives its one line."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "start", *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--set", "num.partition=2"],
            "Unknown configuration key num.partition: did you mean num.partitions?",
        ),
        (["--set", "num.partitions=none"], "Invalid value 'none' for configuration num.partitions"),
        (["--set", "listeners=SSL://:9092"], "listeners"),
        (["--set", "nonsense"], "expected key=value"),
        (["--listen", "9092"], "Invalid value '9092' for --listen: expected HOST:PORT"),
        (["--config", "missing.properties"], "Cannot read the configuration file missing.properties"),
        (["--set", "process.roles=controller"], "Missing configuration node.id"),
        (["--listen", "256.1.1.1:0"], "256.1.1.1"),
    ],
)
def test_a_bad_configuration_is_refused_in_one_line(tmp_path, words, message):
    assert message in refused(*words, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_taken_port_is_refused_and_nothing_is_written(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = refused("--data", "data", "--listen", f"127.0.0.1:{port}", cwd=tmp_path)
    assert str(port) in line
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_directory_is_refused(tmp_path):
    (tmp_path / "data").write_text("mine")
    assert "data" in refused("--data", "data", "--listen", "127.0.0.1:0", cwd=tmp_path)
    assert (tmp_path / "data").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_directory_is_refused(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    assert "closed" in refused("--data", closed / "data", "--listen", "127.0.0.1:0", cwd=tmp_path)


def test_somebody_elses_directory_is_refused_and_left_as_it_is(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "thesis.txt").write_text("years of work")
    assert str(data) in refused("--data", data, "--listen", "127.0.0.1:0", cwd=tmp_path)
    assert [path.name for path in data.iterdir()] == ["thesis.txt"]


def test_a_directory_of_another_node_is_refused(tmp_path, start_broker):
    broker = start_broker()
    assert broker.stop() == 0
    words = ("--data", broker.data, "--listen", "127.0.0.1:0", "--set", "node.id=7")
    assert "node.id" in refused(*words, cwd=tmp_path)


def test_a_directory_in_use_is_refused(tmp_path, start_broker):
    broker = start_broker()
    line = refused("--data", broker.data, "--listen", "127.0.0.1:0", cwd=tmp_path)
    assert str(broker.data) in line
    assert broker.running


def test_the_ready_line_says_where_and_what(start_broker):
    broker = start_broker()
    assert re.fullmatch(
        rf"Ottla {re.escape(__version__)} is ready on 127\.0\.0\.1:\d+ "
        rf"\(data in {re.escape(str(broker.data))}, cluster [\w-]{{22}}\)",
        broker.ready_line,
    )
    with socket.create_connection((broker.host, broker.port)):
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(start_broker, number):
    broker = start_broker()
    os.kill(broker.pid, number)
    assert broker.stop() == 0
    assert broker.log == ""
    assert (broker.data / ".kafka_cleanshutdown").exists()


def test_the_next_start_finds_the_same_cluster(start_broker):
    broker = start_broker()
    first = broker.ready_line
    assert broker.stop() == 0
    assert broker.start().ready_line == first


def test_the_properties_that_kafka_comes_with_work_as_they_stand(tmp_path):
    port, controller = free_port(), free_port()
    file = tmp_path / "server.properties"
    file.write_text(
        "# The keys of Apache Kafka 4.3's config/server.properties, on ports of the test's own\n"
        "process.roles=broker,controller\nnode.id=1\n"
        f"controller.quorum.bootstrap.servers=localhost:{controller}\n"
        f"listeners=PLAINTEXT://:{port},CONTROLLER://:{controller}\n"
        "inter.broker.listener.name=PLAINTEXT\n"
        f"advertised.listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller}\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL\n"
        "num.network.threads=3\nnum.io.threads=8\nsocket.send.buffer.bytes=102400\n"
        "socket.receive.buffer.bytes=102400\nsocket.request.max.bytes=104857600\n"
        f"log.dirs={tmp_path}/a,{tmp_path}/b\nnum.partitions=1\nnum.recovery.threads.per.data.dir=1\n"
        "offsets.topic.replication.factor=1\nshare.coordinator.state.topic.replication.factor=1\n"
        "share.coordinator.state.topic.min.isr=1\ntransaction.state.log.replication.factor=1\n"
        "transaction.state.log.min.isr=1\nlog.retention.hours=168\nlog.segment.bytes=1073741824\n"
        "log.retention.check.interval.ms=300000\n"
    )
    broker = BrokerProcess(tmp_path / "unused")
    broker.command = lambda: [sys.executable, "-m", "ottla", "start", "--config", str(file)]
    with broker:
        assert f"is ready on localhost:{port} (data in {tmp_path}/a, {tmp_path}/b" in broker.ready_line
        for opened in (port, controller):
            socket.create_connection(("localhost", opened)).close()
        named = re.findall(r"WARNING ottla: Configuration (\S+) is not acted on", broker.log)
        assert "num.io.threads" in named
        plain = re.findall(r"listener (\w+) \(PLAINTEXT on .* has no TLS", broker.log)
        assert plain == ["PLAINTEXT", "CONTROLLER"]
        assert len(named) == len(set(named)) == len(broker.log.splitlines()) - len(plain)
        assert not {"node.id", "listeners", "log.dirs", "log.retention.hours"} & set(named)
    for name in ("a", "b"):
        assert (tmp_path / name / "meta.properties").exists()


def test_kafkas_scripts_start_and_stop_a_daemon(tmp_path):
    file = tmp_path / "server.properties"
    node_id = 100_000 + os.getpid()
    file.write_text(
        f"process.roles=broker,controller\nnode.id={node_id}\n"
        f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/other\n"
    )
    script = [BIN / "kafka-server-start.sh", "-daemon", file, "--override", f"log.dirs={tmp_path}/data"]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    output = tmp_path / "logs" / "kafkaServer.out"
    output.parent.mkdir()
    os.mkfifo(output)
    reader = os.open(output, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    with os.fdopen(reader) as lines:
        subprocess.run(script, check=True, timeout=60, cwd=tmp_path, env=environment)
        assert f"(data in {tmp_path}/data" in lines.readline()
        stop = [BIN / "kafka-server-stop.sh", f"--node-id={node_id}"]
        subprocess.run(stop, check=True, timeout=60, env=environment)
        # The pipe ends when the daemon, its last writer, has ended.
        assert lines.read() == ""
    again = subprocess.run(stop, capture_output=True, text=True, timeout=60, env=environment)
    assert (again.returncode, again.stdout) == (1, "No kafka server to stop\n")


def test_version():
    done = subprocess.run([sys.executable, "-m", "ottla", "--version"], capture_output=True, text=True)
    assert done.stdout == f"ottla {__version__}\n"
