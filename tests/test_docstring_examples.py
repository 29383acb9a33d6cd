"""Every public name has a docstring with an example, and the examples run as they stand.

The public names of a package are its `__all__`; of a class, also its public methods and properties. An example begins
with `>>>`, or is a literal block after `::` where it needs a broker or Spark.
"""

from __future__ import annotations

import asyncio
import doctest
import inspect
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cached_property
from importlib import import_module

import pytest

import ottla
from ottla.testing import running_broker, running_cluster

PACKAGES = ["ottla", "ottla.streams", "ottla.pipeline", "ottla.testing"]
"""Packages whose public names all have examples; add yours."""

MODULES = [
    "ottla.client.admin_base",
    "ottla.client.admin_acls",
    "ottla.client.admin_cluster",
    "ottla.client.admin_configs",
    "ottla.client.admin_groups",
    "ottla.client.consumer_lookups",
    "ottla.streams.serdes",
    "ottla.streams.expressions",
    "ottla.streams.interpreter.context",
    "ottla.streams.interpreter.stores",
]
"""Further modules whose examples run."""

NEEDS_SPARK = {"ottla.pipeline": "pyspark", "ottla.streams": "numpy"}
"""Packages of which some names can only be imported with an extra."""

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
LITERAL_BLOCK = re.compile(r"::\n\n    +\S")


def public_objects(package: str) -> Iterator[tuple[str, object]]:
    """All public names of a package, and the public members that their classes define."""
    module = import_module(package)
    for name in module.__all__:
        value = getattr(module, name)
        yield f"{package}.{name}", value
        if not inspect.isclass(value):
            continue
        for base in value.__mro__:
            if not base.__module__.startswith("ottla."):
                continue
            for member, found in vars(base).items():
                if member.startswith("_") or getattr(value, member, None) is None:
                    continue
                function = found.__func__ if isinstance(found, (classmethod, staticmethod)) else found
                if inspect.isfunction(function) or isinstance(function, (property, cached_property)):
                    yield f"{package}.{name}.{member}", function


@contextmanager
def running_nodes() -> Iterator[dict[str, object]]:
    """A broker, a cluster with a topic, and a directory, for the examples of `ottla.testing`."""
    with (
        tempfile.TemporaryDirectory() as tmp,
        running_broker() as broker,
        running_cluster() as cluster,
        running_cluster(1, secure=True) as secure_cluster,
    ):
        cluster.create_topic("orders")
        yield {"broker": broker, "cluster": cluster, "secure_cluster": secure_cluster, "tmp": tmp}


@contextmanager
def running_clients() -> Iterator[dict[str, object]]:
    """A broker with a topic, a group and a transaction, and clients for the examples of `ottla`.

    `first` is the partition that the consumers have. The clients of `ottla.client.aio` are those for asyncio.
    """
    loop = asyncio.new_event_loop()
    with ExitStack() as stack:
        stack.callback(loop.close)
        broker = stack.enter_context(running_broker())
        servers = {"bootstrap_servers": broker.bootstrap}
        admin = stack.enter_context(ottla.KafkaAdminClient(**servers))
        admin.create_topics(["orders", "ledger", "visits"], wait_for_metadata=True)
        producer = stack.enter_context(ottla.KafkaProducer(**servers))
        producer.send("orders", b"three apples").get(timeout=30)
        with ottla.KafkaProducer(**servers, transactional_id="payments") as payments:
            payments.init_transactions()
            payments.begin_transaction()
            payments.send("ledger", b"alice pays bob 5").get(timeout=30)
            payments.commit_transaction()
        first = ottla.TopicPartition("orders", 0)
        reading = {
            **servers,
            "group_id": "readers",
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
        }
        consumer = stack.enter_context(ottla.KafkaConsumer(**reading))
        consumer.assign([first])
        consumer.commit({first: ottla.OffsetAndMetadata(1)})
        async_producer = ottla.AsyncKafkaProducer(**servers)
        async_consumer = ottla.AsyncKafkaConsumer(**reading)
        for client in (async_producer, async_consumer):
            loop.run_until_complete(client.start())
            stack.callback(lambda client=client: loop.run_until_complete(client.stop()))
        loop.run_until_complete(async_consumer.assign([first]))
        given = {"bootstrap_servers": broker.bootstrap, "admin": admin, "first": first}
        yield {
            **given,
            "producer": producer,
            "consumer": consumer,
            "_await": loop.run_until_complete,
            "ottla.client.aio": {"producer": async_producer, "consumer": async_consumer},
        }


def awaited(example: doctest.Example) -> None:
    """Let a line of an example await: doctest runs no coroutines."""
    first_line, _, rest = example.source.partition("\n")
    if not rest.strip():
        example.source = (
            re.sub(r"await (\w+(?:\.\w+)*\(.*?\)|future)(?=[\[.)\n]|$)", r"_await(\1)", first_line) + "\n"
        )


GIVEN: dict[str, Callable[[], AbstractContextManager[dict[str, object] | None]]] = {
    "ottla": running_clients,
    "ottla.testing": running_nodes,
}
"""Names that the examples of a package can use besides those that it exports."""


def has_example(documented: object) -> bool:
    text = inspect.getdoc(documented) or ""
    return ">>> " in text or LITERAL_BLOCK.search(text) is not None


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_has_an_example(package: str) -> None:
    if package in NEEDS_SPARK:
        pytest.importorskip(NEEDS_SPARK[package])
    missing = [name for name, documented in public_objects(package) if not has_example(documented)]
    assert missing == []


def modules_of(package: str) -> list[str]:
    """The modules that define the public names of a package, and those listed above."""
    module = import_module(package)
    homes = {getattr(getattr(module, name), "__module__", package) for name in module.__all__}
    prefix = "ottla.client." if package == "ottla" else f"{package}."
    return sorted({package, *homes, *(one for one in MODULES if one.startswith(prefix))})


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_the_examples_run(package: str) -> None:
    """The names that a package exports need no import in an example."""
    if package in NEEDS_SPARK:
        pytest.importorskip(NEEDS_SPARK[package])
    exported = {name: getattr(import_module(package), name) for name in import_module(package).__all__}
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    finder = doctest.DocTestFinder(exclude_empty=True)
    report: list[str] = []
    with GIVEN.get(package, nullcontext)() as given:
        for name in modules_of(package):
            module = import_module(name)
            own = (given or {}).get(name, {})
            assert isinstance(own, dict)
            names = {**vars(module), **exported, **(given or {}), **own, "__name__": name}
            for test in finder.find(module, name, globs=names):
                for example in test.examples if own else ():
                    awaited(example)
                runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)
