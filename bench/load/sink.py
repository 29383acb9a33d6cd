"""The pipeline's sink alone: Arrow columns to a topic in one transaction per million records, from one process."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from bench.load import Load
from ottla.client.cluster_settings import writer_settings
from ottla.pipeline.tasks import write_rows
from ottla.pipeline.transaction import TransactionDriver
from ottla.pipeline.writer import BatchWriter

_ROWS = 50_000
_A_TRANSACTION = 1_000_000


def sink(load: Load) -> dict[str, float]:
    """Records a second of the wall, and of the processor time that this process took for them."""
    driver = TransactionDriver(writer_settings(load.bootstrap), f"bench-{load.topic}")
    driver.begin()
    batch = _rows(load)
    begin, spent = time.perf_counter(), time.process_time()
    written = 0
    while written < load.records:
        writer = BatchWriter(driver.brokers, driver.grant())
        for turn in range(min(_A_TRANSACTION, load.records - written) // _ROWS):
            write_rows(writer, driver.grant(), driver.brokers, batch, load.topic, turn)
        written += sum(one.records for one in writer.flush().values())
        driver.mark(written, "bench")
        driver.commit()
    return {
        "records/s": written / (time.perf_counter() - begin),
        "records per core second": written / (time.process_time() - spent),
    }


def _rows(load: Load) -> pa.RecordBatch:
    rng = np.random.default_rng(1)
    values = pa.array([rng.bytes(load.size) for _ in range(_ROWS)], pa.binary())
    keys = pa.array([b"key-%d" % (number % 5_000) for number in range(_ROWS)], pa.binary())
    return pa.RecordBatch.from_arrays([keys, values], names=["key", "value"])
