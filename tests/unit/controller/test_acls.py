"""ACLs and SCRAM credentials as the controller decides about them."""

from __future__ import annotations

import hashlib
import hmac
import itertools

import pytest

from ottla.controller.acls import create_acls, delete_acls
from ottla.controller.scram import alter_user_scram_credentials
from ottla.errors import ErrorCode
from ottla.metadata.acl_filter import AclFilter
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, AclEntry
from ottla.wire.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.wire.messages import AlterUserScramCredentialsRequest, CreateAclsRequest, DeleteAclsRequest

Creation = CreateAclsRequest.AclCreation
Filter = DeleteAclsRequest.DeleteAclsFilter
Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion


def creation(**changes):
    fields = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": "t",
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": AclOperation.READ,
        "permission_type": AclPermissionType.ALLOW,
    }
    return Creation(**fields | changes)


def everything(**changes):
    fields = {
        "resource_type_filter": ResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": AclPermissionType.ANY,
    }
    return Filter(**fields | changes)


def applied(image, result):
    delta = MetadataDelta(image)
    for record in result.records:
        delta.replay(record)
    return delta.apply(image.offset + 1, 1)


def create(image, *creations):
    ids = (number.to_bytes(16, "big") for number in itertools.count(len(image.acls) + 1))
    return create_acls(image, CreateAclsRequest(creations=list(creations)), lambda: next(ids))


def test_an_acl_is_written_once():
    result = create(EMPTY_IMAGE, creation(), creation(), creation(host="10.0.0.1"))
    assert [each.error_code for each in result.response.results] == [0, 0, 0]
    assert len(result.records) == 2
    image = applied(EMPTY_IMAGE, result)
    assert not create(image, creation()).records


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resource_type": ResourceType.ANY}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"operation": AclOperation.ANY}, "Invalid operation ANY"),
        ({"permission_type": AclPermissionType.ANY}, "Invalid permissionType ANY"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        (
            {"resource_type": ResourceType.CLUSTER},
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        ({"principal": "alice"}, "The principal of an ACL has the form principalType:principalName"),
    ],
)
def test_an_acl_that_means_nothing_is_refused_and_others_are_not(changes, message):
    result = create(EMPTY_IMAGE, creation(**changes), creation())
    first, second = result.response.results
    assert (first.error_code, first.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert second.error_code == ErrorCode.NONE
    assert len(result.records) == 1


def test_filters_remove_what_they_match():
    image = applied(
        EMPTY_IMAGE,
        create(EMPTY_IMAGE, creation(), creation(resource_name="u"), creation(principal="User:bob")),
    )
    request = DeleteAclsRequest(
        filters=[everything(principal_filter="User:bob"), everything(resource_name_filter="u")]
    )
    result = delete_acls(image, request)
    assert [len(each.matching_acls) for each in result.response.filter_results] == [1, 1]
    assert [acl.principal for acl in applied(image, result).acls.values()] == ["User:alice"]


def test_a_filter_with_an_unknown_value_is_refused():
    result = delete_acls(EMPTY_IMAGE, DeleteAclsRequest(filters=[everything(operation=99)]))
    assert result.response.filter_results[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        (PatternType.MATCH, "team.a", {"team.a", "*", "team."}),
        (PatternType.ANY, "team.", {"team."}),
        (PatternType.LITERAL, "team.a", {"team.a"}),
        (PatternType.LITERAL, "*", {"*"}),
        (PatternType.PREFIXED, "team.", {"team."}),
        (PatternType.PREFIXED, "team.a", set()),
        (PatternType.ANY, None, {"team.a", "*", "team.", "other"}),
    ],
)
def test_names_are_matched_as_kafka_matches_them(pattern, name, found):
    def acl(resource, kind=PatternType.LITERAL):
        return AclEntry(ResourceType.TOPIC, resource, kind, "User:a", "*", AclOperation.READ, 3)

    acls = [acl("team.a"), acl("*"), acl("other"), acl("team.", PatternType.PREFIXED)]
    wanted = AclFilter(ResourceType.ANY, name, pattern, None, None, AclOperation.ANY, 1)
    assert {each.resource_name for each in acls if wanted.matches(each)} == found


def upsertion(name="alice", iterations=4096, mechanism=1):
    return Upsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"salted"
    )


def alter(image, deletions=(), upsertions=()):
    request = AlterUserScramCredentialsRequest(deletions=list(deletions), upsertions=list(upsertions))
    result = alter_user_scram_credentials(image, request)
    return result, {each.user: ErrorCode(each.error_code).name for each in result.response.results}


def test_scram_keys_are_derived_from_the_salted_password():
    result, errors = alter(EMPTY_IMAGE, upsertions=[upsertion()])
    assert errors == {"alice": "NONE"}
    credential = applied(EMPTY_IMAGE, result).scram[1, "alice"]
    client_key = hmac.digest(b"salted", b"Client Key", "sha256")
    assert credential.stored_key == hashlib.sha256(client_key).digest()
    assert credential.server_key == hmac.digest(b"salted", b"Server Key", "sha256")


def test_scram_changes_that_cannot_be_made():
    _, errors = alter(
        EMPTY_IMAGE,
        deletions=[Deletion(name="nobody", mechanism=1), Deletion(name="both", mechanism=1)],
        upsertions=[
            upsertion("few", 4095),
            upsertion("many", 16385),
            upsertion("", 4096),
            upsertion("odd", mechanism=9),
            upsertion("twice"),
            upsertion("twice"),
        ],
    )
    assert errors == {
        "nobody": "RESOURCE_NOT_FOUND",
        "both": "RESOURCE_NOT_FOUND",
        "few": "UNACCEPTABLE_CREDENTIAL",
        "many": "UNACCEPTABLE_CREDENTIAL",
        "": "UNACCEPTABLE_CREDENTIAL",
        "odd": "UNSUPPORTED_SASL_MECHANISM",
        "twice": "DUPLICATE_RESOURCE",
    }


def test_a_user_is_removed():
    image = applied(EMPTY_IMAGE, alter(EMPTY_IMAGE, upsertions=[upsertion()])[0])
    result, errors = alter(image, deletions=[Deletion(name="alice", mechanism=1)])
    assert errors == {"alice": "NONE"}
    assert not applied(image, result).scram


def test_strict_refuses_an_acl_that_opens_the_cluster_to_everybody():
    everybody = creation(
        resource_type=ResourceType.CLUSTER,
        resource_name="kafka-cluster",
        principal="User:*",
        operation=AclOperation.ALL,
    )
    request = CreateAclsRequest(creations=[everybody, creation()])
    ids = (number.to_bytes(16, "big") for number in itertools.count(1))
    strict = create_acls(EMPTY_IMAGE, request, lambda: next(ids), strict=True)
    assert [each.error_code for each in strict.response.results] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert len(strict.records) == 1
    standard = create_acls(EMPTY_IMAGE, request, lambda: next(ids))
    assert len(standard.records) == 2
