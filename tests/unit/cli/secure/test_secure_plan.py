"""Hosts and ports of a cluster to be, rates of tenants, and ACLs that shadow each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.admin.acls import Entry, Pattern
from ottla.cli.secure.check import acl_problems
from ottla.cli.secure.folder import SecureFolder, SecureProblem, check_user_name, write_new
from ottla.cli.secure.init import init_cluster
from ottla.cli.secure.plan import NodePlan, plan_nodes
from ottla.cli.secure.users import parse_bytes
from ottla.wire.enums import AclOperation, AclPermissionType, PatternType, ResourceType


def test_nodes_on_one_host_get_ports_apart() -> None:
    assert plan_nodes(3, []) == [NodePlan(n, "localhost", 9082 + 10 * n) for n in (1, 2, 3)]
    assert plan_nodes(2, ["kafka:7000"]) == [NodePlan(1, "kafka", 7000), NodePlan(2, "kafka", 7010)]


def test_nodes_on_their_own_hosts() -> None:
    planned = plan_nodes(3, ["a", "b:9000", "::1"])
    assert planned == [NodePlan(1, "a", 9092), NodePlan(2, "b", 9000), NodePlan(3, "::1", 9092)]
    assert planned[2].controller_address == "[::1]:9094"


@pytest.mark.parametrize(
    ("count", "hosts"), [(0, []), (3, ["a", "b"]), (1, ["a b"]), (2, ["a:9000", "a:9001"]), (1, ["a:65534"])]
)
def test_hosts_that_cannot_be(count: int, hosts: list[str]) -> None:
    with pytest.raises(SecureProblem):
        plan_nodes(count, hosts)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(SecureProblem, match="not empty"):
        init_cluster(tmp_path, nodes=1, hosts=[], target=None, days=1, echo=print)
    with pytest.raises(SecureProblem, match="exists already"):
        write_new(tmp_path / "mine.txt", "yours")
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_files_that_will_lie_elsewhere(tmp_path: Path) -> None:
    lines: list[str] = []
    init_cluster(
        tmp_path / "c", nodes=1, hosts=["kafka1"], target=Path("/etc/ottla"), days=1, echo=lines.append
    )
    text = (tmp_path / "c" / "node-1.properties").read_text()
    assert "ssl.keystore.location=/etc/ottla/node-1.pem" in text
    assert "listeners=CLIENTS://:9092,BROKERS://:9093,CONTROLLERS://:9094" in text
    assert any("--config /etc/ottla/node-1.properties" in line for line in lines)
    assert SecureFolder(tmp_path / "c").node_ids() == [1]


@pytest.mark.parametrize("name", ["", "a b", "../x", ".x", "ca", "node-1", "controllers", 'x"y'])
def test_names_that_no_user_has(name: str) -> None:
    with pytest.raises(SecureProblem):
        check_user_name(name)


def test_rates() -> None:
    assert [parse_bytes(text) for text in ("10MB", "1MiB", "500kB/s", "7")] == [10e6, 1 << 20, 5e5, 7]
    for wrong in ("", "0", "-1MB", "fast", "10TB"):
        with pytest.raises(SecureProblem):
            parse_bytes(wrong)


def acl(
    permission: AclPermissionType, name: str, pattern: PatternType, principal: str, operation: AclOperation
) -> tuple[Pattern, Entry]:
    return Pattern(ResourceType.TOPIC, name, pattern), Entry(principal, "*", operation, permission)


def test_an_acl_that_opens_the_cluster() -> None:
    pattern = Pattern(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL)
    everybody = Entry("User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW)
    found = list(acl_problems([(pattern, everybody)]))
    assert [problem.risk for problem in found] == [True]
    assert "lets every client do everything" in found[0].text


def test_acls_that_shadow_each_other() -> None:
    allow, deny = AclPermissionType.ALLOW, AclPermissionType.DENY
    literal, prefixed = PatternType.LITERAL, PatternType.PREFIXED
    read, everything = AclOperation.READ, AclOperation.ALL
    narrow = acl(allow, "team.a", literal, "User:a", read)
    cases = {
        "denies all of it": acl(deny, "team.", prefixed, "User:*", everything),
        "adds nothing": acl(allow, "*", literal, "User:a", read),
    }
    for expected, other in cases.items():
        found = [str(problem) for problem in acl_problems([narrow, other])]
        assert len(found) == 1
        assert expected in found[0]
    apart = [
        narrow,
        acl(deny, "team.b", literal, "User:a", read),
        acl(allow, "team.a", literal, "User:b", read),
    ]
    assert not list(acl_problems(apart))
