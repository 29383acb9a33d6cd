"""Start time from exec to the first response, and restart time until a write is acknowledged."""

from __future__ import annotations

import socket
import struct
import time

from bench import load
from bench.context import Bench
from bench.load import Load
from bench.load.sockets import connect, produce_error, produce_request
from bench.systems import System, fresh_pair, rss_mb

_DEADLINE_S = 300.0


def start(bench: Bench) -> None:
    """Measure the first response on an empty directory, and the memory at that time."""
    names = {system.name for system in bench.systems}
    for turn in range(bench.scale.few_rounds):
        with fresh_pair(bench.directory / f"start-{turn}", names) as systems:
            for system in systems:
                bench.sheet.add(system.name, "start", "exec to first answer", "s", system.start())
                time.sleep(1)
                bench.sheet.add(system.name, "start", "idle memory", "MB", rss_mb(system.pid))
                system.stop()


def restart(bench: Bench) -> None:
    """Measure restarts with many partitions that hold data, after a clean stop and after kill -9."""
    names = {system.name for system in bench.systems}
    for count in bench.scale.restart:
        row = f"restart with {count:,} partitions"
        with fresh_pair(bench.directory / f"restart-{count}", names) as systems:
            for system in systems:
                system.start()
                load.create_topic(system.bootstrap, "many", count)
                load.run("produce", Load(system.bootstrap, "many", count * 1000, partitions=count))
                system.stop()
            for _ in range(1 if count > 1000 else bench.scale.few_rounds):
                for system in systems:
                    _restart(bench, system, row, count)


def _restart(bench: Bench, system: System, row: str, count: int) -> None:
    """Measure start, kill and restart."""
    for how in ("a clean stop", "kill -9"):
        begin = time.monotonic()
        answered = system.start()
        _until_written(system.bootstrap, count)
        written = time.monotonic() - begin
        bench.sheet.add(system.name, row, f"first answer after {how}", "s", answered)
        bench.sheet.add(system.name, row, f"first write after {how}", "s", written)
        if how == "a clean stop":
            # Something to recover in every partition: what was written since the start.
            load.run("produce", Load(system.bootstrap, "many", count * 1000, partitions=count))
            system.kill()
    bench.sheet.add(system.name, row, "memory", "MB", rss_mb(system.pid))
    system.stop()


def _until_written(bootstrap: str, count: int) -> None:
    """Wait until every partition accepts a write; retry while its broker is not the leader yet."""
    request = produce_request("many", count - 1, 100)
    end = time.monotonic() + _DEADLINE_S
    while time.monotonic() < end:
        try:
            with connect(bootstrap) as broker:
                broker.sendall(request)
                if produce_error(_frame(broker)) == 0:
                    return
        except OSError:
            pass
        time.sleep(0.005)
    raise TimeoutError(f"no write was acknowledged in {_DEADLINE_S} s")


def _frame(broker: socket.socket) -> bytes:
    answer = broker.recv(4096)
    while len(answer) < 4 or len(answer) < 4 + struct.unpack_from(">i", answer)[0]:
        piece = broker.recv(4096)
        if not piece:
            raise ConnectionError("closed")
        answer += piece
    return answer[4:]
