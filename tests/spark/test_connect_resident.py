"""Small cycles in resident Spark tasks: the same records as in the worker's own process, whatever happens to a task."""

import os
import signal

from integration.connect_rest import eventually, running_worker


def _position(rest, name):
    found = rest.call("GET", f"/connectors/{name}/offsets")[1]["offsets"]
    return [one["offset"]["position"] for one in found]


def _grow(source, numbers):
    with source.open("ab") as file:
        file.writelines(f"line {number}\n".encode() for number in numbers)


def _python_workers():
    """The processes of Spark's Python workers that serve a task: children of its daemon."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                words = file.read()
            with open(f"/proc/{entry}/stat") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
            with open(f"/proc/{parent}/cmdline", "rb") as file:
                above = file.read()
        except OSError:
            continue
        if b"pyspark.worker" in words and b"pyspark.worker" in above and _ours(parent):
            found.append(int(entry))
    return found


def _ours(pid):
    """Whether a process descends from this one."""
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            with open(f"/proc/{pid}/stat") as file:
                pid = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            return False
    return False


def test_resident_tasks_write_what_the_worker_itself_writes_and_a_killed_one_loses_and_repeats_nothing(
    spark, ottla_kafka, name, tmp_path
):
    source, out = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_bytes(b"")
    expected = [f"line {number}".encode() for number in range(400)]
    written = {}
    for master, topic in (("none", name("own")), ("local[2]", name("resident"))):
        source.write_bytes(b"")
        out.unlink(missing_ok=True)
        (tmp_path / "out.txt.ottla").unlink(missing_ok=True)
        keys = {"ottla_spark_master": master, "client_id": topic, "ottla_restart_backoff_ms": "100"}
        keys["ottla_resident_tasks"] = "-1"
        with running_worker(ottla_kafka.bootstrap, **keys) as rest:
            rest.create(f"{topic}-in", connector_class="FileStreamSource", file=str(source), topic=topic)
            rest.create(f"{topic}-out", connector_class="FileStreamSink", file=str(out), topics=topic)
            _grow(source, range(200))
            eventually(lambda: out.exists() and len(out.read_bytes().splitlines()) == 200, 120)
            if master != "none":
                before = _python_workers()
                assert before
                for process in before:
                    os.kill(process, signal.SIGKILL)
            _grow(source, range(200, 400))
            eventually(lambda: len(out.read_bytes().splitlines()) >= 400, 120)
            eventually(
                lambda rest=rest, topic=topic: _position(rest, f"{topic}-in") == [source.stat().st_size], 60
            )
            for end in ("in", "out"):
                cycles = rest.call("GET", f"/ottla/connectors/{topic}-{end}")[1]["resident_cycles"]
                assert (cycles > 0) == (master != "none")
            rest.call("PUT", f"/connectors/{topic}-in/pause")
            rest.await_states(f"{topic}-in", "PAUSED", "PAUSED")
        written[master] = [one.value() for one in ottla_kafka.read(topic)]
        assert out.read_bytes().splitlines() == expected
    assert written["none"] == written["local[2]"] == expected
