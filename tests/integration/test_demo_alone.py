"""`ottla demo` where something is missing: what is there goes on, and a sentence says what is not."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from ottla.client.admin import KafkaAdminClient


@pytest.fixture
def without_spark(tmp_path):
    """An environment in whose Pythons Spark is not installed."""
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "sitecustomize.py").write_text("import sys\nsys.modules['pyspark'] = None\n")
    return {**os.environ, "PYTHONPATH": str(hiding)}


def demo(*words):
    return [sys.executable, "-m", "ottla", "demo", "--data", "data", "--console", "", *words]


def test_without_spark_the_broker_goes_on_alone(tmp_path, without_spark):
    installer = "echo 'ERROR: No matching distribution found for pyspark'; exit 1"
    process = subprocess.Popen(
        demo("--listen", "127.0.0.1:0", "--prepare", f'sh -c "{installer}"'),
        cwd=tmp_path,
        env=without_spark,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        ready = process.stdout.readline()
        assert " is ready on 127.0.0.1:" in ready
        reported = [process.stdout.readline() for _ in range(4)]
        assert reported[0].startswith("Installing Spark")
        assert reported[1] == "  ERROR: No matching distribution found for pyspark\n"
        assert reported[2] == (
            "There are no pipelines: Spark is not installed (No matching distribution found for pyspark)."
            " With network, start this again, or `pip install 'ottla[spark]'` first\n"
        )
        assert "goes on alone" in reported[3]
        address = ready.split(" is ready on ")[1].split()[0]
        with KafkaAdminClient(bootstrap_servers=address) as admin:
            assert admin.list_topics() == []
        process.send_signal(signal.SIGINT)
        rest, complaints = process.communicate(timeout=60)
        # On a busy machine the broker may say that its loop was held up.
        said = [line for line in rest.splitlines() if "ottla.net.watchdog" not in line]
        assert (process.returncode, said, complaints) == (0, ["Stopping ...", "Stopped"], "")
    finally:
        process.kill()
        process.wait()


def test_the_demo_says_where_its_console_is(tmp_path, without_spark):
    process = subprocess.Popen(
        demo("--listen", "127.0.0.1:0", "--console", "127.0.0.1:0", "--prepare", "sh -c 'exec sleep 600'"),
        cwd=tmp_path,
        env=without_spark,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert " is ready on " in process.stdout.readline()
        look = process.stdout.readline()
        assert look.startswith("Look at it: http://127.0.0.1:")
        with urllib.request.urlopen(look.split()[-1] + "/health/live", timeout=30) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 0
        with pytest.raises(OSError):
            urllib.request.urlopen(look.split()[-1] + "/health/live", timeout=30)
    finally:
        process.kill()
        process.wait()


def test_an_installer_that_is_still_at_work_is_stopped_too(tmp_path, without_spark):
    process = subprocess.Popen(
        demo("--listen", "127.0.0.1:0", "--prepare", "sh -c 'echo $$ > pid; exec sleep 600'"),
        cwd=tmp_path,
        env=without_spark,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while "Installing Spark" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGTERM)
        rest, complaints = process.communicate(timeout=60)
        assert (process.returncode, rest, complaints) == (0, "Stopping ...\nStopped\n", "")
        if (tmp_path / "pid").exists():
            with pytest.raises(ProcessLookupError):
                os.kill(int((tmp_path / "pid").read_text()), 0)
    finally:
        process.kill()
        process.wait()


def test_a_taken_port_is_refused_in_one_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = subprocess.run(
            demo("--listen", f"127.0.0.1:{port}"), cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert str(port) in done.stderr
    assert list(tmp_path.iterdir()) == []
