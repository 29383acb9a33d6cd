"""The tools that move, elect, allow and subscribe, beside Kafka's own: on two Apache Kafka brokers and on ours."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from oracle.kafka_tools import needs_java
from oracle.tools_oracle import PATIENCE_S, JavaTools, Said, only_shows, run_ottla
from oracle.tools_systems import ApachePair
from ottla.testing.cluster import Cluster

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]


def lines(text: str) -> list[str]:
    """Lines in an order of their own, without moments and directories, which are chance.

    Kafka prints much as it comes out of a hash table.
    """
    return sorted(_CHANCE.sub("<chance>", line) for line in text.splitlines())


_CHANCE = re.compile(r'\b1\d{12}\b|"log_dirs":\[[^]]*\]')


class Both:
    """Runs a line with Kafka's tool and with ours; {by} in it is `java` or `self`."""

    def __init__(self, java: JavaTools, at: list[str]) -> None:
        self.at = at
        self._runs = {"java": java.run, "self": run_ottla}

    def run(self, line: str, then: Callable[[str], None] | None = None, **words: object) -> dict[str, Said]:
        """One after the other, each followed by what shall have happened before the next."""
        said: dict[str, Said] = {}
        for by, run in self._runs.items():
            tool, *arguments = shlex.split(line.format(by=by, **words))
            said[by] = run(tool, *self.at, *arguments)
            if then is not None:
                then(by)
        return said

    def alike(self, line: str, then: Callable[[str], None] | None = None, **words: object) -> Said:
        """Both end well and print the same."""
        said = self.run(line, then, **words)
        assert said["java"].code == 0, said["java"]
        assert said["self"].code == 0, said["self"]
        ours, theirs = (lines(said[by].out.replace("-self", "-java")) for by in ("self", "java"))
        assert ours == theirs
        return said["self"]

    def come_to_show(
        self,
        line: str,
        wanted: Callable[[str], bool] = lambda out: True,
        shape: Callable[[str], list[str]] = lines,
    ) -> None:
        """The same for a line that only shows, or that says the same however often it is run.

        It is run again while the two differ, or show something else than what is wanted: they need not ask the same
        broker, and one hears of a change a moment after others.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            said = self.run(line)
            ours, theirs = (shape(said[by].out.replace("-self", "-java")) for by in ("self", "java"))
            ended_well = {each.code for each in said.values()} == {0}
            if ended_well and ours == theirs and all(wanted(each.out) for each in said.values()):
                return
            assert time.monotonic() < deadline, said

    def refused(self, line: str, **words: object) -> None:
        """Both end with 1, ours with one line."""
        said = self.run(line, **words)
        assert said["java"].code == 1, said["java"]
        assert said["self"].code == 1, said["self"]
        assert len(said["self"].err.splitlines()) == 1, said["self"].err
        assert said["self"].err.startswith("ottla: ")


@pytest.fixture(scope="module")
def on_apache(apache_pair: ApachePair, java_tools: JavaTools) -> Both:
    return Both(java_tools, ["--bootstrap-server", apache_pair.bootstrap])


@pytest.fixture(scope="module", params=["apache", "ottla"])
def both(request: pytest.FixtureRequest, java_tools: JavaTools) -> Both:
    """One after the other: two brokers of Apache Kafka, and three of ours."""
    name = "apache_pair" if request.param == "apache" else "cluster"
    system: ApachePair | Cluster = request.getfixturevalue(name)
    return Both(java_tools, ["--bootstrap-server", system.bootstrap])


def plan_file(path: Path, by: str, replicas: list[list[int]], **more: object) -> Path:
    file = path / f"plan-{by}.json"
    partitions = [
        {"topic": f"move-{by}", "partition": number, "replicas": brokers, **more}
        for number, brokers in enumerate(replicas)
    ]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return file


def wait_until_moved(both: Both, file: Path) -> None:
    """Asks without lifting throttles until the plan is carried out."""
    question = ["--verify", "--preserve-throttles", "--reassignment-json-file", file]
    while "progress" in run_ottla("reassign-partitions", *both.at, *question).out:
        pass


def test_partitions_move_alike(both: Both, tmp_path: Path) -> None:
    for by in ("java", "self"):
        run_ottla("topics", *both.at, "--create", "--topic", f"move-{by}", "--replica-assignment", "1,1")
        plan_file(tmp_path, by, [[2], [1, 2]])
    both.alike("reassign-partitions --list")
    plan = f"{tmp_path}/plan-{{by}}.json"
    both.alike(
        f"reassign-partitions --execute --reassignment-json-file {plan} --throttle 5000000",
        then=lambda by: wait_until_moved(both, tmp_path / f"plan-{by}.json"),
    )
    throttled = "follower.replication.throttled.replicas=0:2,1:2"
    both.come_to_show("configs --describe --topic move-{by}", lambda out: throttled in out)
    done = both.alike(f"reassign-partitions --verify --reassignment-json-file {plan}").out
    assert "Reassignment of partition move-self-1 is completed." in done
    both.come_to_show("configs --describe --topic move-{by}", lambda out: "throttled" not in out)
    for by in ("java", "self"):
        plan_file(tmp_path, by, [[1], [2, 1]])
    both.come_to_show(
        f"reassign-partitions --verify --reassignment-json-file {plan} --preserve-throttles",
        lambda out: "replica set is 2 rather than 1" in out,
    )
    both.alike(f"reassign-partitions --cancel --reassignment-json-file {plan}")
    both.alike(f"reassign-partitions --cancel --preserve-throttles --reassignment-json-file {plan}")


def test_moves_that_go_on_are_listed_and_cancelled_alike(on_apache: Both, tmp_path: Path) -> None:
    """A rate of a byte a second keeps a move going for as long as it takes to look at it."""
    producer = Producer({"bootstrap.servers": on_apache.at[1]})
    for by in ("java", "self"):
        run_ottla("topics", *on_apache.at, "--create", "--topic", f"slow-{by}", "--replica-assignment", "1")
        # A throttled fetch takes a megabyte all the same, and then none for some seconds: this is for minutes.
        for _ in range(300):
            producer.produce(f"slow-{by}", b"x" * 100_000)
        assert producer.flush(120) == 0
        file = tmp_path / f"slow-{by}.json"
        partition = {"topic": f"slow-{by}", "partition": 0, "replicas": [2]}
        file.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    plan = f"{tmp_path}/slow-{{by}}.json"
    start = f"reassign-partitions --execute --additional --throttle 1 --reassignment-json-file {plan}"
    on_apache.alike(start)
    listed = on_apache.alike("reassign-partitions --list").out
    assert "slow-self-0: replicas: 2,1. adding: 2. removing: 1." in listed
    on_apache.refused(f"reassign-partitions --execute --reassignment-json-file {plan}")
    reported = on_apache.alike(f"reassign-partitions --verify --reassignment-json-file {plan}").out
    assert "still in progress" in reported
    assert (
        "Successfully cancelled"
        in on_apache.alike(
            f"reassign-partitions --cancel --preserve-throttles --reassignment-json-file {plan}"
        ).out
    )
    run_ottla(
        *("reassign-partitions", *on_apache.at, "--verify", "--reassignment-json-file"),
        tmp_path / "slow-self.json",
    )


def test_replicas_move_between_directories_alike(on_apache: Both, tmp_path: Path) -> None:
    shown = run_ottla("log-dirs", *on_apache.at, "--describe", "--json").out.splitlines()[-1]
    directories = [each["logDir"] for each in json.loads(shown)["brokers"][0]["logDirs"]]
    for by in ("java", "self"):
        run_ottla("topics", *on_apache.at, "--create", "--topic", f"move-{by}", "--replica-assignment", "1")
        run_ottla("topics", *on_apache.at, "--create", "--topic", f"dirs-{by}", "--replica-assignment", "1")
    for directory in directories:
        for by in ("java", "self"):
            entry = {"topic": f"dirs-{by}", "partition": 0, "replicas": [1], "log_dirs": [directory]}
            (tmp_path / f"dirs-{by}.json").write_text(json.dumps({"version": 1, "partitions": [entry]}))
        plan = f"--reassignment-json-file {tmp_path}/dirs-{{by}}.json"
        said = on_apache.run(
            f"reassign-partitions --execute --replica-alter-log-dirs-throttle 9000000 {plan}",
            then=lambda by: wait_until_moved(on_apache, tmp_path / f"dirs-{by}.json"),
        )
        assert (said["java"].code, said["self"].code) == (0, 0), said
        assert f"Successfully started moving log directory to {directory}" in said["self"].out
        assert "completed successfully" in on_apache.alike(f"reassign-partitions --verify {plan}").out


def test_a_proposal_keeps_the_replicas_apart(both: Both, tmp_path: Path) -> None:
    run_ottla(
        "topics", *both.at, "--create", "--topic", "spread", "--partitions", 4, "--replication-factor", 2
    )
    file = tmp_path / "topics.json"
    file.write_text(json.dumps({"topics": [{"topic": "spread"}], "version": 1}))
    topics = ["--topics-to-move-json-file", file, "--broker-list", "1,2"]
    # Brokers hear of the topic, and have logs for it, a moment after it was made.
    while not (said := run_ottla("reassign-partitions", *both.at, "--generate", *topics)).out or (
        '"any"' in said.out.splitlines()[1]
    ):
        pass
    answers = both.run(
        f"reassign-partitions --generate --topics-to-move-json-file {file} --broker-list 1,2 --disable-rack-aware"
    )
    ours, theirs = answers["self"].out.splitlines(), answers["java"].out.splitlines()
    assert ours[:4] == theirs[:4]
    proposed = [json.loads(each[4])["partitions"] for each in (ours, theirs)]
    for plan in proposed:
        assert [sorted(entry["replicas"]) for entry in plan] == [[1, 2]] * 4
        assert sorted(entry["replicas"][0] for entry in plan) == [1, 1, 2, 2]


REFUSED_MOVES = """
reassign-partitions
reassign-partitions --list --verify
reassign-partitions --execute
reassign-partitions --generate --topics-to-move-json-file {file}
reassign-partitions --verify --reassignment-json-file {file} --throttle 5
reassign-partitions --list --timeout 5
reassign-partitions --execute --reassignment-json-file {missing}
reassign-partitions --execute --reassignment-json-file {bad}
reassign-partitions --execute --reassignment-json-file {strange}
reassign-partitions --execute --reassignment-json-file {twice}
leader-election --election-type preferred
leader-election --all-topic-partitions
leader-election --election-type bogus --all-topic-partitions
leader-election --election-type preferred --topic spread
leader-election --election-type preferred --partition 1 --all-topic-partitions
leader-election --election-type preferred --topic nothing --partition 0
leader-election --election-type preferred --path-to-json-file {bad}
"""


@pytest.mark.parametrize("line", REFUSED_MOVES.strip().splitlines())
def test_moves_that_make_no_sense_are_refused(both: Both, tmp_path: Path, line: str) -> None:
    entry = {"topic": "spread", "partition": 0, "replicas": [1]}
    documents = {
        "file": [entry],
        "strange": [{**entry, "replicas": [9]}],
        "twice": [entry, entry],
    }
    files = {name: tmp_path / f"{name}.json" for name in (*documents, "bad", "missing")}
    for name, partitions in documents.items():
        files[name].write_text(json.dumps({"version": 1, "partitions": partitions}))
    files["bad"].write_text("{")
    both.refused(line, **files)


def test_leaders_are_elected_alike(both: Both, tmp_path: Path) -> None:
    for by in ("java", "self"):
        run_ottla("topics", *both.at, "--create", "--topic", f"lead-{by}", "--replica-assignment", "1:2,2:1")
        plan = {"topic": f"lead-{by}", "partition": 0, "replicas": [2, 1]}
        (tmp_path / f"lead-{by}.json").write_text(json.dumps({"version": 1, "partitions": [plan]}))
    both.alike("leader-election --election-type preferred --topic lead-{by} --partition 0")
    both.alike(f"reassign-partitions --execute --reassignment-json-file {tmp_path}/lead-{{by}}.json")
    named = f"leader-election --election-type PREFERRED --path-to-json-file {tmp_path}/lead-{{by}}.json"
    assert "Successfully completed" in both.alike(named).out
    assert "already elected" in both.alike(named).out
    both.alike("leader-election --election-type unclean --topic lead-{by} --partition 1")
    assert (
        run_ottla("leader-election", *both.at, "--election-type", "preferred", "--all-topic-partitions").code
        == 0
    )


ACLS = """
acls --add --allow-principal User:alice --operation Read --operation describe --topic notes-{by}
acls --add --allow-principal User:alice --operation Read --topic notes-{by}
acls --add --deny-principal User:bob --deny-host 10.0.0.1 --topic notes-{by} --group team-{by}
acls --add --allow-principal User:carl --allow-host 10.0.0.2 --allow-host 10.0.0.3 --producer --topic notes-{by}
acls --add --allow-principal User:carl-{by} --producer --idempotent --topic notes-{by} --transactional-id till-{by}
acls --add --allow-principal User:dora --consumer --topic notes-{by} --group team-{by}
acls --add --allow-principal User:eve --topic pre-{by} --resource-pattern-type prefixed --operation All
acls --add --allow-principal User:eve --delegation-token tok-{by} --operation Describe
acls --add --allow-principal User:eve --user-principal User:zed-{by} --operation CreateTokens
acls --list --topic notes-{by}
acls --list --topic pre-{by}-more --resource-pattern-type match
acls --list --topic notes-{by} --group team-{by} --principal User:dora --principal User:bob
acls --list --transactional-id till-{by}
acls --remove --allow-principal User:alice --operation Read --topic notes-{by} --force
acls --list --topic notes-{by}
acls --remove --topic notes-{by} --force
acls --list --topic notes-{by}
acls --remove --topic pre-{by} --resource-pattern-type prefixed --force
"""


def not_indented(text: str) -> list[str]:
    """The first entry that is added stands apart from the others, and which one that is, is chance."""
    return sorted(line.strip() for line in text.splitlines())


def test_access_is_given_and_taken_alike(on_apache: Both) -> None:
    for line in ACLS.strip().splitlines():
        # The tools say what the controller was asked for and then what a broker knows, which may be a moment behind.
        on_apache.come_to_show(line, shape=not_indented)
    for by in ("java", "self"):
        run_ottla("acls", *on_apache.at, "--remove", "--cluster", "--group", f"team-{by}", "--force")


REFUSED_ACLS = """
acls
acls --list --add
acls --add --topic notes
acls --add --allow-principal User:alice
acls --add --allow-principal alice --topic notes
acls --add --allow-principal User:alice --topic notes --operation bogus
acls --add --allow-principal User:alice --topic notes --operation IdempotentWrite
acls --add --allow-principal User:alice --topic notes --resource-pattern-type match
acls --add --allow-principal User:alice --topic notes --resource-pattern-type bogus
acls --list --allow-principal User:alice
acls --add --principal User:alice --topic notes
acls --add --producer --allow-principal User:alice
acls --add --consumer --allow-principal User:alice --topic notes
acls --add --idempotent --allow-principal User:alice --topic notes
acls --add --producer --allow-principal User:alice --topic notes --operation Read
"""


@pytest.mark.parametrize("line", REFUSED_ACLS.strip().splitlines())
def test_access_that_makes_no_sense_is_refused(on_apache: Both, line: str) -> None:
    on_apache.refused(line)


METRICS = """
client-metrics --alter --name sub-{by} --interval 5000 --metrics org.apache.,x.y --match client_id=c.*
client-metrics --describe --name sub-{by}
client-metrics --alter --name sub-{by} --interval=
client-metrics --describe --name sub-{by}
client-metrics --describe --name nothing
client-metrics --delete --name sub-{by}
client-metrics --list
"""


def test_metrics_are_subscribed_alike(both: Both) -> None:
    for line in METRICS.strip().splitlines():
        both.come_to_show(line) if only_shows(line) else both.alike(line)
    made = run_ottla("client-metrics", *both.at, "--alter", "--generate-name", "--interval", 900)
    name = made.out.split()[-1].rstrip(".")
    both.come_to_show("client-metrics --list", lambda out: name in out)
    both.come_to_show("client-metrics --describe", lambda out: f"Client metrics configs for {name}" in out)
    for line in ("client-metrics", "client-metrics --list --name x", "client-metrics --alter --interval 5"):
        both.refused(line)
    both.refused("client-metrics --alter --name x --interval soon")


def test_tokens_are_made_and_ended_alike(
    apache_pair: ApachePair, java_tools: JavaTools, on_apache: Both
) -> None:
    config = ["--command-config", str(apache_pair.admin_config())]
    secure = Both(java_tools, ["--bootstrap-server", apache_pair.secure, *config])
    without = re.compile(r"\S{20,}|(?<= : )\S+|\d{4}-\d\d-\d\dT\d\d:\d\d")

    def shown(said: dict[str, Said]) -> list[list[str]]:
        assert (said["java"].code, said["self"].code) == (0, 0), said
        return [[without.sub("<it>", line) for line in said[by].out.splitlines()] for by in ("self", "java")]

    made = secure.run(
        "delegation-tokens --create --max-life-time-period -1 --renewer-principal User:bob --owner-principal User:amy"
    )
    ours, theirs = shown(made)
    assert ours == theirs
    # A broker hears of a new token a moment after it was made.
    while "tokens : 2" not in run_ottla("delegation-tokens", *secure.at, "--describe").out:
        pass
    tokens = {by: said.out.splitlines()[-1].split()[1] for by, said in made.items()}
    for line in (
        "delegation-tokens --describe --owner-principal User:amy",
        "delegation-tokens --describe --owner-principal User:nobody",
    ):
        ours, theirs = shown(secure.run(line))
        assert sorted(ours) == sorted(theirs)
    # Kafka's tool says that it shows the user's own tokens then, and shows none.
    assert "User:amy" in run_ottla("delegation-tokens", *secure.at, "--describe").out
    for line in (
        "delegation-tokens --renew --renew-time-period -1 --hmac ",
        "delegation-tokens --expire --expiry-time-period -1 --hmac ",
    ):
        # Only the owner and the renewers may renew: the administrator may not, and both tools say so.
        secure.refused(line + tokens["self"])
    for line in ("", " --create", " --renew --hmac YQ==", " --describe --hmac YQ==", " --create --renew"):
        secure.refused("delegation-tokens" + line)
    on_apache.refused(
        f"delegation-tokens --create --max-life-time-period -1 --command-config {_empty(apache_pair)}"
    )


def _empty(pair: ApachePair) -> Path:
    file = pair.directory / "plain.properties"
    file.write_text("client.id=someone\n")
    return file
