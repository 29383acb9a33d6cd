"""Names of principals from certificates, by the examples of Kafka's documentation."""

from __future__ import annotations

import pytest

from ottla.security.mapping import NoMatchingRule, SslPrincipalMapper

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=kafka-server1,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "kafka-server1"),
        ("CN=Duke,OU=JavaSoft,O=Sun Microsystems,L=a,ST=b,C=US", "duke@javasoft"),
        ("OU=JavaSoft,CN=duke,O=Sun", "DUKE"),
        ("OU=JavaSoft,O=Sun", "OU=JavaSoft,O=Sun"),
    ],
)
def test_the_first_rule_that_matches_decides(subject, name):
    assert SslPrincipalMapper(RULES).name(subject) == name


def test_no_rule_is_a_failure():
    with pytest.raises(NoMatchingRule):
        SslPrincipalMapper("RULE:^CN=(.*)$/$1/").name("O=x")


def test_references_beyond_the_groups_are_text():
    assert SslPrincipalMapper("RULE:^CN=(.*)$/$1@$4/").name("CN=a") == "a@$4"
    assert SslPrincipalMapper("RULE:^CN=(.*)$/$12/").name("CN=a") == "a2"


def test_escapes_in_a_rule():
    assert SslPrincipalMapper(r"RULE:^CN=(.*)\/x$/\$$1/").name("CN=a/x") == "$a"


@pytest.mark.parametrize("rules", ["RULE:(?=x)y/$1/", "SOMETHING", "RULE:a/b"])
def test_rules_that_cannot_be_read_are_refused(rules):
    with pytest.raises(ValueError, match=r"ssl\.principal\.mapping\.rules"):
        SslPrincipalMapper(rules)
