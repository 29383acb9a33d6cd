"""Every flag of Kafka's tools in at least one line that both run, on Apache Kafka and on Ottla."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from oracle import tools_lines
from oracle.kafka_tools import needs_java
from oracle.streams_member import StreamsMember
from oracle.tools_oracle import JAVA_CLASSES, PATIENCE_S, JavaTools, Said, only_shows, run_ottla
from oracle.tools_systems import ApachePair
from ottla.testing.apache import java_command
from ottla.testing.cluster import Cluster

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

_LATE_ADDRESS = ("cluster",)
"""Tools that take the address after the subcommand."""
_WITHOUT_BROKER = ("storage", "dump-log")
_RUNS = ("java", "self")


class Place:
    """A cluster, and the files and names that the lines speak of."""

    def __init__(self, system: ApachePair | Cluster, java: JavaTools, directory: Path) -> None:
        self.at = ["--bootstrap-server", system.bootstrap]
        self.is_apache = isinstance(system, ApachePair)
        self._java = java
        self.writers: list[Producer] = []
        self.words: dict[str, object] = {"controller": _controller(system)}
        for name, text in _FILES.items():
            self.words[name] = directory / name
            (directory / name).write_text(text)
        for by in _RUNS:
            for name in ("node", "other", "third"):
                folder = directory / f"{name}-{by}"
                folder.mkdir()
                (folder / "server.properties").write_text(_NODE.format(data=folder / "data"))
        self.words |= {name: f"{directory}/{name}-{{by}}/server.properties" for name in _NODES}
        self.words["node_metadata"] = f"{directory}/node-java/data/bootstrap.checkpoint"

    def run(self, line: str, by: str, stdin: str = "") -> Said:
        words = {name: str(word).format(by=by) for name, word in self.words.items()}
        words |= {"producer": words.get(f"producer_{by}", ""), "epoch": words.get(f"epoch_{by}", "")}
        tool, *arguments = shlex.split(line.lstrip("!? ").format(by=by, **words))
        at = [] if "--bootstrap-controller" in line or tool in _WITHOUT_BROKER else self.at
        full = [*arguments, *at] if tool in _LATE_ADDRESS else [*at, *arguments]
        if by == "java" and tool.startswith("verifiable"):
            return _alone(tool, full)
        run: Callable[..., Said] = self._java.run if by == "java" else run_ottla
        return run(tool, *full, stdin=stdin)

    def read_from_beginning(self, *groups: str) -> None:
        """Share groups begin at the end by default."""
        for name in (f"{group}-{by}" for group in groups for by in _RUNS):
            reset = ("--add-config", "share.auto.offset.reset=earliest")
            assert run_ottla("configs", *self.at, "--alter", "--group", name, *reset).code == 0

    def alike(self, line: str, shape: Callable[[str], object], stdin: str = "") -> None:
        """Both end as they shall, and print the same."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            theirs, ours = (self.run(line, by, stdin) for by in _RUNS)
            if agree(theirs, ours, shape) or not only_shows(line) or time.monotonic() > deadline:
                break
        check(line, theirs, ours, shape)


def agree(theirs: Said, ours: Said, shape: Callable[[str], object]) -> bool:
    return theirs.code == ours.code and shape(_DEPRECATED.sub("", ours.out)) == shape(
        _DEPRECATED.sub("", theirs.out)
    )


def check(line: str, theirs: Said, ours: Said, shape: Callable[[str], object]) -> None:
    expected = {"!": 1, "?": theirs.code}.get(line[0], 0)
    assert (theirs.code, ours.code) == (expected, expected), (line, theirs, ours)
    if expected:
        assert len(ours.err.splitlines()) == 1, ours.err
    else:
        assert shape(_DEPRECATED.sub("", ours.out)) == shape(_DEPRECATED.sub("", theirs.out)), line


_DEPRECATED = re.compile(r"[^\n]*\bdeprecated\b[^\n]*\n|Bootstrap metadata: [^\n]*\n")
"""Kafka's tools print such lines into their output, and most of ours do not."""
_ALONE = {
    "group.streams.initial.rebalance.delay.ms": 0,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
}
_NODES = ("node", "other", "third")
_NODE = (
    "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
    "listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
    "controller.quorum.bootstrap.servers=localhost:9093\nlog.dirs={data}\n"
)
_FILES = {
    "client": "client.id=flags\n",
    "reader": "parse.key=true\n",
    "formatter": "print.key=true\nprint.partition=true\n",
    "payload": "one,two,three",
    "plan": "flags,0,2\n",
    "moves": json.dumps({"version": 1, "partitions": [{"topic": "flags", "partition": 0, "replicas": [1]}]}),
    "deletions": json.dumps({"version": 1, "partitions": [{"topic": "flags", "partition": 0, "offset": 1}]}),
}


def _controller(system: ApachePair | Cluster) -> str:
    if isinstance(system, ApachePair):
        return str(system.first.settings["controller.quorum.voters"]).partition("@")[2]
    return str(system.plans[1].controller)


def _alone(tool: str, arguments: list[str]) -> Said:
    """With a JVM of its own: some say their last words when it ends."""
    done = subprocess.run(
        java_command(JAVA_CLASSES[tool], *arguments), capture_output=True, text=True, timeout=180
    )
    return Said(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module", params=["ottla", "apache"])
def place(
    request: pytest.FixtureRequest, java_tools: JavaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """Each system with a topic, groups of three kinds that nobody is in, and transactions left open."""
    directory = tmp_path_factory.mktemp("flags")
    if request.param == "apache":
        yield _furnished(request.getfixturevalue("apache_pair"), java_tools, directory)
        return
    with Cluster(directory / "nodes", 1, settings=_ALONE) as system:
        yield _furnished(system, java_tools, directory)


def _furnished(system: ApachePair | Cluster, java: JavaTools, directory: Path) -> Place:
    place = Place(system, java, directory)
    run_ottla("topics", *place.at, "--create", "--topic", "flags", "--replica-assignment", 1)
    settings = {"bootstrap.servers": system.bootstrap}
    producer = Producer(settings)
    for number in range(5):
        producer.produce("flags", f"value {number}")
    producer.flush()
    assert (
        run_ottla(
            *("consumer-groups", *place.at, "--reset-offsets", "--group", "readers", "--topic", "flags"),
            *("--to-earliest", "--execute"),
        ).code
        == 0
    )
    for name in ("idle", "idle-java", "idle-self", "gone-java", "gone-self"):
        StreamsMember(system.bootstrap, name, "flags").join().leave()
        run_ottla(
            *("streams-groups", *place.at, "--reset-offsets", "--group", name, "--all-input-topics"),
            *("--to-latest", "--execute"),
        )
    for by in _RUNS:
        for name, topic in (("till", "flags"), ("held", f"held-{by}")):
            writer = Producer(
                {
                    **settings,
                    "transactional.id": f"{name}-{by}",
                    "log_level": 0,
                    "transaction.timeout.ms": 900_000,
                }
            )
            writer.init_transactions()
            writer.begin_transaction()
            writer.produce(topic, "open", partition=0)
            writer.flush()
            place.writers.append(writer)
    (described,) = json.loads(run_ottla("topics", *place.at, "--describe", "--topic", "flags", "--json").out)
    place.words["topic_id"] = described["topicId"]
    for by in _RUNS:
        # A marker ends a transaction under an epoch above that of its records.
        (held,) = json.loads(
            run_ottla("transactions", *place.at, "describe", "--transactional-id", f"held-{by}", "--json").out
        )
        place.words |= {f"producer_{by}": held["producerId"], f"epoch_{by}": held["producerEpoch"] + 1}
    return place


_CHANCE = re.compile(r"\b1\d{12}\b|\b\d+ ms ago *|[A-Za-z0-9_-]{22}\b|-self\b|-java\b")


def sorted_lines(text: str) -> list[str]:
    """Lines, and what is in one of JSON, in an order of their own; without moments, ids, and who asked."""
    return sorted(_CHANCE.sub("<chance>", _ordered(line)) for line in text.splitlines())


def _ordered(line: str) -> str:
    return "".join(sorted(line)) if line.startswith("{") else line


def who_asked_left_out(text: str) -> str:
    return text.replace("-self", "-java")


def columns(text: str) -> list[str]:
    """Lines without their figures, up to the metrics, which are each client's own."""
    lines = who_asked_left_out(text).partition("\n\nMetric Name")[0].splitlines()
    return [re.sub(r"-?\d+(\.\d+)?(E-?\d+)?|NaN", "#", line) for line in lines]


@pytest.mark.parametrize("line", tools_lines.lines("showing"))
def test_what_is_shown_by_flag_is_the_same(place: Place, line: str) -> None:
    place.alike(line, sorted_lines)


def test_limits_are_set_alike(place: Place) -> None:
    served = place.run("configs --describe --ip-defaults", "self").code == 0
    assert served or not place.is_apache
    lines = tools_lines.lines("quotas")
    if not served:
        lines = [f"! {line}" for line in lines[:2]]
    said = [[place.run(line, by) for line in lines] for by in _RUNS]
    for line, theirs, ours in zip(lines, *said, strict=True):
        check(line, theirs, ours, sorted_lines)


def test_what_is_changed_by_flag_is_confirmed_alike(place: Place) -> None:
    for line in tools_lines.lines("changing"):
        place.alike(line, sorted_lines)


def test_records_are_written_and_read_with_every_flag(place: Place) -> None:
    for line in tools_lines.lines("writing records"):
        place.alike(line, sorted_lines, stdin="a:1\nb:2\n")
    place.read_from_beginning("takers", "systest")
    for line in tools_lines.lines("reading records"):
        place.alike(line, who_asked_left_out)


def test_measures_have_the_same_columns(place: Place) -> None:
    place.read_from_beginning("shared", "shared2")
    for line in tools_lines.lines("measuring"):
        place.alike(line, columns)


def test_verifiers_tell_the_same_events(place: Place) -> None:
    def events(text: str) -> list[tuple[str, list[str]]]:
        reported = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        # Java's consumer is asked to shut down by the end of its JVM, after it has done so.
        return sorted(
            (each["name"], sorted(each)) for each in reported if each["name"] != "shutdown_requested"
        )

    for line in tools_lines.lines("verifying"):
        place.alike(line, events)


def test_directories_are_formatted_alike(place: Place) -> None:
    for line in tools_lines.lines("formatting") if place.is_apache else ():
        place.alike(line, sorted_lines)


def test_access_is_listed_alike(place: Place) -> None:
    for line in tools_lines.lines("access"):
        place.alike(line if place.is_apache else f"! {line}", sorted_lines)
