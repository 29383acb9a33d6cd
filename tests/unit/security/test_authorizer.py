"""Access control against a model that looks at every ACL, and the rules of Kafka's StandardAuthorizer by name."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import ApiException
from ottla.metadata.image import AclEntry
from ottla.security.authorizer import Authorizer
from ottla.security.grants import EVERY_OPERATION, Action, Grants, printable
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, AclPermissionType, PatternType, ResourceType

ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE, ALL = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.ALL,
)


def acl(name, operation, permission=ALLOW, *, pattern=LITERAL, principal="User:alice", host="*", kind=TOPIC):
    return AclEntry(kind, name, pattern, principal, host, operation, permission)


def authorizer(*acls, super_users="User:admin", everyone=False):
    made = Authorizer(super_users, allow_everyone_if_no_acl_found=everyone)
    made.update({bytes([at]): each for at, each in enumerate(acls)})
    made.complete_loading()
    return made


def may(made, operation, name, principal="User:alice", host="10.0.0.1", kind=TOPIC):
    return made.authorize(Grants(principal, host), Action(operation, kind, name), ApiKey.PRODUCE)


def test_without_an_acl_nobody_may_but_super_users():
    made = authorizer()
    assert not may(made, READ, "t")
    assert may(made, READ, "t", "User:admin")


def test_literal_prefixed_and_wildcard_names():
    made = authorizer(acl("t", READ), acl("team.", WRITE, pattern=PREFIXED), acl("*", AclOperation.CREATE))
    assert may(made, READ, "t")
    assert not may(made, READ, "tt")
    assert may(made, WRITE, "team.orders")
    assert not may(made, WRITE, "team")
    assert may(made, AclOperation.CREATE, "anything")


def test_a_deny_wins_over_every_allow():
    made = authorizer(acl("t", ALL), acl("t", WRITE, DENY, principal="User:*"))
    assert may(made, READ, "t")
    assert not may(made, WRITE, "t")
    assert not may(authorizer(acl("t", ALL), acl("*", ALL, DENY)), READ, "t")


def test_allowed_operations_imply_others_and_denied_ones_do_not():
    for operation in (READ, WRITE, AclOperation.DELETE, AclOperation.ALTER):
        assert may(authorizer(acl("t", operation)), DESCRIBE, "t")
    assert may(authorizer(acl("t", AclOperation.ALTER_CONFIGS)), AclOperation.DESCRIBE_CONFIGS, "t")
    assert may(authorizer(acl("t", DESCRIBE), acl("t", READ, DENY)), DESCRIBE, "t")


def test_hosts_are_compared_as_addresses():
    made = authorizer(acl("t", READ, host="2001:db8:0:0:0:0:0:1"))
    assert may(made, READ, "t", host="2001:db8::1")
    assert not may(made, READ, "t", host="2001:db8::2")


def test_everyone_is_allowed_only_where_no_acl_is_about_the_resource():
    made = authorizer(acl("t", READ, principal="User:bob"), everyone=True)
    assert may(made, READ, "other")
    assert not may(made, READ, "t")


def test_decisions_follow_the_metadata():
    made = authorizer(acl("t", READ))
    grants = Grants("User:alice", "10.0.0.1")
    action = Action(READ, TOPIC, "t")
    assert made.authorize(grants, action, ApiKey.FETCH)
    made.update({})
    assert not made.authorize(grants, action, ApiKey.FETCH)


def test_removing_one_of_two_acls_keeps_the_other():
    made = Authorizer("", allow_everyone_if_no_acl_found=False)
    made.complete_loading()
    both = {b"1": acl("t", READ), b"2": acl("t", WRITE)}
    made.update(both)
    made.update({b"2": both[b"2"]})
    assert may(made, WRITE, "t")
    assert not may(made, READ, "t")


def test_until_the_acls_are_loaded_only_super_users_pass():
    made = Authorizer("User:admin", allow_everyone_if_no_acl_found=True)
    assert may(made, READ, "t", "User:admin")
    with pytest.raises(ApiException):
        may(made, READ, "t")


def test_some_resource_of_a_type():
    def some(*acls):
        return authorizer(*acls).authorize_by_type(Grants("User:alice", "10.0.0.1"), WRITE, TOPIC)

    assert not some()
    assert some(acl("t", WRITE))
    assert some(acl("x", WRITE, pattern=PREFIXED))
    assert not some(acl("t", WRITE), acl("*", WRITE, DENY))
    assert not some(acl("t", WRITE), acl("t", ALL, DENY))
    assert not some(acl("team.t", WRITE), acl("team.", WRITE, DENY, pattern=PREFIXED))
    assert some(acl("*", WRITE), acl("t", WRITE, DENY))


def test_the_audit_log_has_kafkas_sentence_on_one_line(caplog):
    made = authorizer(acl("t", READ))
    with caplog.at_level(logging.INFO, "kafka.authorizer.logger"):
        assert not may(made, WRITE, "t\r\nPrincipal = User:evil is Allowed")
    (record,) = caplog.records
    assert record.getMessage() == (
        "Principal = User:alice is Denied operation = WRITE from host = 10.0.0.1 on resource = "
        "Topic:LITERAL:t\\r\\nPrincipal = User:evil is Allowed for request = Produce with resourceRefCount = 1 "
        "based on rule DefaultDeny"
    )


def test_peers_names_are_cut_and_escaped():
    assert printable("a\x00b\u2028" + "x" * 1000) == ("a\\x00b\\u2028" + "x" * 252)


@pytest.mark.parametrize("text", ["admin", "User:a;admin"])
def test_super_users_need_their_type(text):
    with pytest.raises(ValueError, match="principalType:principalName"):
        Authorizer(text, allow_everyone_if_no_acl_found=False)


NAMES = st.sampled_from(["a", "ab", "abc", "b", "*"])
ACLS = st.builds(
    acl,
    NAMES,
    st.sampled_from([READ, WRITE, DESCRIBE, ALL, AclOperation.ALTER_CONFIGS]),
    st.sampled_from([ALLOW, DENY]),
    pattern=st.sampled_from([LITERAL, PREFIXED]),
    principal=st.sampled_from(["User:alice", "User:bob", "User:*"]),
    host=st.sampled_from(["*", "10.0.0.1", "10.0.0.2"]),
    kind=st.sampled_from([TOPIC, GROUP]),
)


def model(acls, operation, name, principal, host, kind):
    """Kafka's rules, read one ACL at a time."""
    found = [
        each
        for each in acls
        if each.resource_type == kind
        and (
            name.startswith(each.resource_name)
            if each.pattern_type == PREFIXED
            else each.resource_name in (name, "*")
        )
        and each.principal in (principal, "User:*")
        and each.host in (host, "*")
    ]
    implied = {
        DESCRIBE: {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER},
        AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
    }.get(operation, set())
    if any(each.permission_type == DENY and each.operation in (operation, ALL) for each in found):
        return False
    return any(
        each.permission_type == ALLOW and each.operation in {operation, ALL, *implied} for each in found
    )


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(ACLS, max_size=8), min_size=1, max_size=3))
def test_decisions_are_those_of_the_model_after_every_change(versions):
    made = Authorizer("", allow_everyone_if_no_acl_found=False)
    made.complete_loading()
    for acls in versions:
        made.update({repr(each).encode(): each for each in acls})
        for principal in ("User:alice", "User:bob"):
            for kind in (TOPIC, GROUP):
                for name in ("a", "ab", "abcd", "z"):
                    grants = Grants(principal, "10.0.0.1")
                    mask = made.operations(grants, kind, name)
                    assert mask & ~EVERY_OPERATION == 0
                    for operation in (READ, DESCRIBE, AclOperation.DESCRIBE_CONFIGS):
                        expected = model(acls, operation, name, principal, "10.0.0.1", kind)
                        assert bool(mask & 1 << operation) == expected
