"""The file of an application: another process without the file can use its functions and classes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.streams import StreamsBuilder, StreamsError
from ottla.streams.loading import MODULE, load_topology, own_classes
from ottla.streams.runner import MOST_STARTS, StreamsApp
from ottla.streams.settings import StreamsSettings

pytest.importorskip("pyspark", reason="the pipeline needs Spark: make setup-spark")

APPLICATION = """
from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from decimal import Decimal

from ottla.streams import StreamsBuilder
from neighbouring_module import Price

LIMIT = int(os.environ["LIMIT"])


@dataclass
class Offer:
    price: Price
    rebate: Decimal


class Locked:
    lock = threading.Lock()


def is_cheap(_, offer):
    return offer.price.cents < LIMIT


b = StreamsBuilder()
b.stream("offers", value_serde=Offer).filter(is_cheap).to("cheap", value_serde=Offer)
"""
NEIGHBOUR = """
from dataclasses import dataclass


@dataclass
class Price:
    cents: int
"""

WORKER = """
import pickle, sys
own, serde, is_cheap = pickle.load(sys.stdin.buffer)
offer = serde.decode(b'{"price": {"cents": 7}, "rebate": "1.5"}')
held = pickle.dumps(offer)
sys.stdout.buffer.write(pickle.dumps((held, pickle.loads(held) == offer, is_cheap(None, offer))))
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("LIMIT", "10")
    (tmp_path / "app.py").write_text(APPLICATION)
    (tmp_path / "neighbouring_module.py").write_text(NEIGHBOUR)
    yield tmp_path / "app.py"
    from pyspark.cloudpickle import list_registry_pickle_by_value, unregister_pickle_by_value

    for name in (MODULE, "neighbouring_module"):
        if name in list_registry_pickle_by_value():
            unregister_pickle_by_value(sys.modules[name])
        sys.modules.pop(name, None)


def test_functions_and_classes_travel_without_their_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.cloudpickle import dumps

    topology = load_topology(file)
    source: Any = topology.sources[0].operator
    sent = dumps((own_classes(), source.value_serde, sys.modules[MODULE].is_cheap))
    monkeypatch.delenv("LIMIT")
    output = subprocess.run(
        [sys.executable, "-c", WORKER], input=sent, stdout=subprocess.PIPE, check=True, timeout=60
    ).stdout
    held, same, cheap = pickle.loads(output)
    assert (same, cheap) == (True, True)
    offer = pickle.loads(held)
    assert type(offer) is sys.modules[MODULE].Offer
    assert offer.price.cents == 7


def test_a_file_is_one_application(tmp_path: Path) -> None:
    with pytest.raises(StreamsError, match="there is no file"):
        load_topology(tmp_path / "missing.py")
    (tmp_path / "none.py").write_text("answer = 42")
    with pytest.raises(StreamsError, match="defines 0 StreamsBuilders; an application has one"):
        load_topology(tmp_path / "none.py")
    sys.path.remove(str(tmp_path))
    del sys.modules[MODULE]


class Query:
    """A query that has ended, with or without a failure."""

    isActive = False
    lastProgress = None

    def __init__(self, failure: str | None = None) -> None:
        self._failure = failure

    def awaitTermination(self, _: float) -> None:
        if self._failure is not None:
            raise RuntimeError(self._failure)


def test_a_worker_that_was_too_slow_to_start_gets_another_chance(tmp_path: Path) -> None:
    slow = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back."
    b = StreamsBuilder()
    b.stream("a").to("b")

    def run(*queries: Query) -> bool:
        app = StreamsApp(b, "slow", StreamsSettings(state_dir=tmp_path))
        waiting: Any = iter(queries)
        app.query, app._start, app._starts = next(waiting), lambda: next(waiting), 1
        return app.wait()

    assert run(Query(slow), Query(slow), Query())
    with pytest.raises(StreamsError, match="failed to connect back"):
        run(*(Query(slow) for _ in range(MOST_STARTS)))
    with pytest.raises(StreamsError, match="something else"):
        run(Query("something else"), Query())
