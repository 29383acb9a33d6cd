"""All logs of a broker: directories, locks, loading, deleting, checkpoints, failing disks, moving, shutting down."""

from __future__ import annotations

import asyncio
import errno
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ottla.clock import SystemClock
from ottla.config.broker import BrokerConfig
from ottla.errors import ApiException, ErrorCode
from ottla.log.checkpoints import read_meta_properties, read_offsets
from ottla.log.fs import Fs, OsFs
from ottla.log.log_dir import LogDir, LogDirError
from ottla.log.manager import LogManager
from ottla.log.types import TopicPartition
from ottla.testing.memfs import MemFs
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire.uuid import uuid_from_str
from unit.log.log_rig import NOW, batch, records_of, topic_config

TOPIC_ID = bytes(range(16))
TP = TopicPartition("orders", 0)
EPOCH = 0


class Inline(Executor):
    """Runs everything at once, on the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as e:  # noqa: BLE001 - as an executor does
            future.set_exception(e)
        return future


class Node:
    """A broker's logs, on a file system in memory and a clock that tests turn."""

    def __init__(self, fs: Fs | None = None, dirs: str = "/data", **config: str) -> None:
        self.clock = VirtualClock()
        self.fs = MemFs(self.clock.now_ms) if fs is None else fs
        self.config = BrokerConfig.single_node({"log.dirs": dirs, **config})
        self.failed: list[LogDir] = []
        self.manager = self.start()

    def start(self) -> LogManager:
        manager = LogManager(self.fs, self.config, self.clock, Inline(), on_dir_failure=self.failed.append)
        manager.open_dirs(None, self.config.node_id)
        manager.load(lambda topic: topic_config())
        manager.start()
        self.manager = manager
        return manager

    def append(self, tp: TopicPartition, *values: str, **config: Any) -> None:
        log = self.manager.get_or_create(tp, TOPIC_ID, topic_config(**config))
        log.append_as_leader(batch(*values, timestamp=self.clock.now_ms()), EPOCH, now_ms=self.clock.now_ms())
        log.high_watermark = log.log_end_offset


def refusal(node: Node, cluster_id: str | None = None, node_id: int | None = None) -> str:
    manager = LogManager(node.fs, node.config, node.clock, Inline())
    with pytest.raises(LogDirError) as caught:
        manager.open_dirs(cluster_id, node.config.node_id if node_id is None else node_id)
    return caught.value.message


def test_a_new_directory_is_formatted() -> None:
    node = Node(dirs="/one,/two")
    first = read_meta_properties(node.fs, "/one")
    second = read_meta_properties(node.fs, "/two")
    assert first is not None
    assert second is not None
    assert (first["version"], first["node.id"]) == ("1", str(node.config.node_id))
    assert first["cluster.id"] == second["cluster.id"]
    assert first["directory.id"] != second["directory.id"]
    assert node.manager.dirs[0].directory_id == uuid_from_str(first["directory.id"])
    node.manager.shutdown()
    manager = LogManager(node.fs, node.config, node.clock, Inline())
    assert manager.open_dirs(None, node.config.node_id) == first["cluster.id"]


def test_directories_of_others_are_refused_and_left_alone() -> None:
    node = Node()
    assert "in use by another process" in refusal(node)
    node.manager.shutdown()
    assert "node.id" in refusal(node, node_id=99)
    assert "belongs to cluster" in refusal(node, cluster_id="another")
    fs = MemFs()
    fs.mkdir("/home")
    fs.write_bytes("/home/thesis.tex", b"")
    node.config = BrokerConfig.single_node({"log.dirs": "/home"})
    node.fs = fs
    assert "thesis.tex" in refusal(node)
    assert fs.listdir("/home") == ["thesis.tex"]


def test_one_bad_directory_leaves_the_others_unlocked() -> None:
    node = Node()
    node.manager.shutdown()
    node.fs.mkdir("/bad")
    node.fs.write_bytes("/bad/file", b"")
    node.config = BrokerConfig.single_node({"log.dirs": "/data,/bad"})
    assert "/bad" in refusal(node)
    lock = node.fs.lock("/data/.lock")
    assert lock is not None


def test_an_unwritable_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = BrokerConfig.single_node({"log.dirs": f"{tmp_path}/file"})
    with pytest.raises(LogDirError, match="is not a directory"):
        LogManager(OsFs(), config, VirtualClock(), Inline()).open_dirs(None, config.node_id)
    config = BrokerConfig.single_node({"log.dirs": f"{tmp_path}/file/below"})
    with pytest.raises(LogDirError, match="cannot be"):
        LogManager(OsFs(), config, VirtualClock(), Inline()).open_dirs(None, config.node_id)


@pytest.mark.parametrize("end", ["clean", "killed"])
def test_logs_are_there_after_a_restart(end: str) -> None:
    node = Node()
    node.append(TP, "a", "b")
    node.append(TopicPartition("with-dash", 12), "c")
    if end == "clean":
        node.manager.shutdown(broker_epoch=17)
        marker = json.loads(node.fs.read_bytes("/data/.kafka_cleanshutdown"))
        assert marker == {"version": 0, "brokerEpoch": 17}
    else:
        assert isinstance(node.fs, MemFs)
        node.fs = node.fs.kill()
    manager = node.start()
    assert manager.dirs[0].was_clean == (end == "clean")
    assert manager.dirs[0].previous_broker_epoch == (17 if end == "clean" else -1)
    assert not node.fs.exists("/data/.kafka_cleanshutdown")
    assert set(manager.logs) == {TP, TopicPartition("with-dash", 12)}
    log = manager.logs[TP]
    assert records_of(log) == [(0, "a"), (1, "b")]
    assert log.topic_id == TOPIC_ID
    assert log.high_watermark == (2 if end == "clean" else 0)
    assert node.fs.read_bytes("/data/orders-0/partition.metadata") == (
        b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    )


def test_the_metadata_log_and_strange_names_are_left_alone() -> None:
    node = Node()
    node.manager.shutdown()
    node.fs.mkdir("/data/__cluster_metadata-0")
    node.fs.mkdir("/data/backup")
    node.fs.mkdir("/data/x-0.abc-stray")
    assert dict(node.start().logs) == {}
    assert node.fs.exists("/data/x-0.abc-stray")


def test_a_topic_id_that_contradicts_is_refused() -> None:
    node = Node()
    node.append(TP, "a")
    with pytest.raises(ApiException) as caught:
        node.manager.get_or_create(TP, b"another topic id", topic_config())
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_new_logs_go_where_the_fewest_are() -> None:
    node = Node(dirs="/one,/two,/three")
    manager = node.manager
    for n in range(9):
        manager.get_or_create(TopicPartition("t", n), TOPIC_ID, topic_config())
    assert [len(list(manager.logs_in(directory))) for directory in manager.dirs] == [3, 3, 3]
    wanted = manager.dirs[2]
    tp = TopicPartition("t", 99)
    manager.get_or_create(tp, TOPIC_ID, topic_config(), directory_id=wanted.directory_id)
    assert manager.dir_of(tp) is wanted


def test_new_logs_go_to_no_cordoned_directory_while_there_is_another() -> None:
    node = Node(dirs="/one/,/two,/three")
    manager = node.manager

    def make(count: int) -> list[int]:
        """How many logs each directory has after so many more."""
        for _ in range(count):
            manager.get_or_create(TopicPartition("t", len(manager.logs)), TOPIC_ID, topic_config())
        return [len(list(manager.logs_in(directory))) for directory in manager.dirs]

    manager.update_config(BrokerConfig({**node.config.static, "cordoned.log.dirs": "/one/"}))
    assert make(4) == [0, 2, 2]
    with pytest.raises(ApiException) as caught:
        manager.move(TopicPartition("t", 0), "/one")
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    manager.update_config(BrokerConfig({**node.config.static, "cordoned.log.dirs": "/one/,/three"}))
    assert make(2) == [0, 4, 2]
    # The controller sends none there any more, but may have done so just before.
    manager.update_config(BrokerConfig({**node.config.static, "cordoned.log.dirs": "*"}))
    assert make(1) == [1, 4, 2]


def test_a_deleted_log_is_renamed_and_removed_later() -> None:
    node = Node()
    node.append(TP, "a")
    log = node.manager.logs[TP]
    node.manager.delete(TP, node.manager.logs[TP].topic_id)
    assert node.manager.get(TP) is None
    (name,) = [name for name in node.fs.listdir("/data") if name.startswith("orders")]
    assert name.startswith("orders-0.")
    assert name.endswith("-delete")
    assert len(log.read(0, 100).records)  # who had it may go on reading
    node.append(TP, "new")
    assert records_of(node.manager.logs[TP]) == [(0, "new")]
    node.clock.advance(61)
    assert not node.fs.exists(f"/data/{name}")
    assert node.fs.exists("/data/orders-0")


def test_deletions_go_on_after_a_restart() -> None:
    node = Node()
    node.append(TP, "a")
    node.manager.delete(TP, node.manager.logs[TP].topic_id)
    node.manager.shutdown()
    node.start()
    assert any(name.endswith("-delete") for name in node.fs.listdir("/data"))
    node.clock.advance(61)
    assert not any(name.endswith("-delete") for name in node.fs.listdir("/data"))


def test_strays_are_set_aside() -> None:
    node = Node()
    node.append(TP, "a")
    node.append(TopicPartition("known", 0), "b")
    strays = node.manager.delete_strays(lambda tp, topic_id: tp.topic == "known")
    assert strays == [TP]
    assert set(node.manager.logs) == {TopicPartition("known", 0)}
    assert any(name.endswith("-stray") for name in node.fs.listdir("/data"))


def test_checkpoints_are_kafkas_files_and_written_regularly() -> None:
    node = Node()
    node.append(TP, "a", "b", "c")
    log = node.manager.logs[TP]
    log.advance_log_start(1)
    log.flush()
    node.append(TP, "d")
    node.clock.advance(61)
    assert node.fs.read_bytes("/data/recovery-point-offset-checkpoint") == b"0\n1\norders 0 3\n"
    assert node.fs.read_bytes("/data/log-start-offset-checkpoint") == b"0\n1\norders 0 1\n"
    assert node.fs.read_bytes("/data/replication-offset-checkpoint") == b"0\n1\norders 0 4\n"
    assert isinstance(node.fs, MemFs)
    node.fs = node.fs.kill()
    log = node.start().logs[TP]
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.recovery_point) == (1, 4, 4, 3)
    directory = node.manager.dir_of(TP)
    assert directory is not None
    assert directory.high_watermarks[TP] == 4


def test_a_recreated_topic_does_not_inherit_the_offsets_of_the_old_one() -> None:
    node = Node()
    node.append(TP, *"abcdefgh")
    node.manager.logs[TP].advance_log_start(8)
    node.clock.advance(61)
    node.manager.delete(TP, node.manager.logs[TP].topic_id)
    node.append(TP, "new")
    assert isinstance(node.fs, MemFs)
    node.fs = node.fs.kill()
    assert records_of(node.start().logs[TP]) == [(0, "new")]


def test_damaged_checkpoints_are_only_hints() -> None:
    node = Node()
    node.append(TP, "a")
    node.manager.shutdown()
    for name in ("recovery-point", "log-start", "replication"):
        node.fs.write_bytes(f"/data/{name}-offset-checkpoint", b"\0\0\0")
    assert records_of(node.start().logs[TP]) == [(0, "a")]


def test_retention_flush_and_expiry_run_by_the_clock() -> None:
    node = Node()
    for n in range(20):
        node.append(TP, f"{n}", segment_bytes=200, retention_ms=60_000, flush_ms=5_000)
    log = node.manager.logs[TP]
    assert log.recovery_point == log.segments[-1].base_offset  # rolled segments are flushed at once
    node.clock.advance(6)
    assert log.recovery_point == 20
    node.clock.advance(600)
    assert log.log_start_offset == 20


def test_a_failing_directory_goes_offline_and_the_others_go_on() -> None:
    node = Node(dirs="/one,/two")
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    node.append(first, "a")
    node.append(second, "b")
    broken = node.manager.dir_of(first)
    assert broken is not None

    def fault(operation: str, path: str) -> None:
        if operation == "write" and path.startswith(broken.path):
            raise OSError(errno.EIO, "Input/output error", path)

    assert isinstance(node.fs, MemFs)
    node.fs.fault = fault
    with pytest.raises(ApiException) as caught:
        node.append(first, "c")
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert node.failed == [broken]
    assert broken.offline
    node.append(second, "d")
    assert records_of(node.manager.logs[second]) == [(0, "b"), (1, "d")]
    with pytest.raises(ApiException) as caught:
        node.manager.logs[first].read(0, 100)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    node.append(TopicPartition("t", 2), "new logs go to the other one")
    assert node.manager.dir_of(TopicPartition("t", 2)) is not broken
    node.manager.shutdown()
    assert not node.fs.exists(f"{broken.path}/.kafka_cleanshutdown")


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


async def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


def test_a_log_moves_to_another_directory_under_load(tmp_path: Path, executor: ThreadPoolExecutor) -> None:
    async def scenario() -> None:
        config = BrokerConfig.single_node({"log.dirs": f"{tmp_path}/one,{tmp_path}/two"})
        manager = LogManager(OsFs(), config, SystemClock(), executor)
        manager.open_dirs(None, config.node_id)
        manager.load(lambda topic: topic_config())
        manager.start()
        log = manager.get_or_create(TP, TOPIC_ID, topic_config(segment_bytes=100_000))

        def append(n: int) -> None:
            log.append_as_leader(batch(f"{n}" + "x" * 1000), 0, now_ms=NOW)
            log.high_watermark = log.log_end_offset

        for n in range(2000):
            append(n)
        log.advance_log_start(5)
        source = manager.dir_of(TP)
        (target,) = [directory for directory in manager.dirs if directory is not source]
        manager.move(TP, target.path)
        assert TP in manager.future_logs
        n = 2000
        while manager.dir_of(TP) is source:
            append(n)
            n += 1
            await asyncio.sleep(0.0005)  # no faster than it can be copied
        append(n)
        assert manager.logs[TP] is log
        assert log.path == f"{target.path}/orders-0"
        assert [offset for offset, _ in records_of(log)] == list(range(5, n + 1))
        assert not manager.future_logs
        assert source is not None
        assert not OsFs().exists(f"{source.path}/orders-0")
        manager.shutdown()
        assert read_offsets(OsFs(), f"{target.path}/recovery-point-offset-checkpoint") == {TP: n + 1}

    asyncio.run(scenario())


def test_moves_that_cannot_be_are_refused_and_may_be_called_off(
    tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    node = Node(dirs="/one,/two")
    node.append(TP, "a")
    with pytest.raises(ApiException) as caught:
        node.manager.move(TP, "/nowhere")
    assert caught.value.code is ErrorCode.LOG_DIR_NOT_FOUND
    later = TopicPartition("later", 0)
    with pytest.raises(ApiException) as caught:
        node.manager.move(later, "/two")
    assert caught.value.code is ErrorCode.REPLICA_NOT_AVAILABLE
    node.append(later, "b")
    directory = node.manager.dir_of(later)
    assert directory is not None
    assert directory.path == "/two"
    own = node.manager.dir_of(TP)
    assert own is not None
    other = "/two" if own.path == "/one" else "/one"
    node.manager.move(TP, other)
    assert TP in node.manager.future_logs
    node.manager.move(TP, own.path)
    assert TP not in node.manager.future_logs
    assert any(name.endswith("-delete") for name in node.fs.listdir(other))


@pytest.mark.parametrize("full", ["/one", "/two"])
def test_a_partition_that_could_not_be_created_on_a_full_disk_does_not_keep_the_node_from_starting(
    full: str,
) -> None:
    node = Node(dirs="/one,/two")
    directories = {directory.path: directory.directory_id for directory in node.manager.dirs}
    whole = next(path for path in directories if path != full)
    assert isinstance(node.fs, MemFs)
    node.fs.directory_space[full] = 0
    with pytest.raises(ApiException, match="cannot be created"):
        node.manager.get_or_create(TP, TOPIC_ID, topic_config(), directory_id=directories[full])
    # The partition is made in the other directory instead.
    node.append(TP, "a", "b")
    node.fs = node.fs.kill()
    log = node.start().get(TP)
    assert log is not None and log.path == f"{whole}/orders-0"
    assert records_of(log) == [(0, "a"), (1, "b")]
    assert "orders-0" not in node.fs.listdir(full)
    assert [name for name in node.fs.listdir(full) if name.endswith("-stray")]


def test_two_logs_of_a_partition_with_records_are_for_an_administrator() -> None:
    node = Node(dirs="/one,/two")
    node.append(TP, "a")
    assert isinstance(node.fs, MemFs)
    one, other = "/one/orders-0", "/two/orders-0"
    first, second = (one, other) if node.fs.exists(one) else (other, one)
    node.fs.mkdir(second)
    for name in node.fs.listdir(first):
        node.fs.write_bytes(f"{second}/{name}", node.fs.read_bytes(f"{first}/{name}"))
    node.fs = node.fs.kill()
    with pytest.raises(LogDirError, match=r"is both in .* remove one of them"):
        node.start()
