"""`sasl.kerberos.principal.to.local.rules`: Kafka's grammar and its answers."""

from __future__ import annotations

import pytest

from ottla.security.kerberos_names import KerberosShortNamer
from ottla.security.mapping import NoMatchingRule

RULES = ",".join(
    [
        r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g",
        r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g",
        r"RULE:[2:$1@$0](dn@OTHER\.ORG)s/@.*//U",
        "RULE:[1:$1-old]s/-old$//L",
        "DEFAULT",
    ]
)


@pytest.mark.parametrize(
    ("principal", "name"),
    [
        ("App.service-name/example.com@REALM.COM", "service-name"),
        ("App.service-name@REALM.COM", "service-name"),
        ("dn/host@OTHER.ORG", "DN"),
        ("Alice@REALM.COM", "alice"),
        ("kafka/broker1@REALM.COM", "kafka"),
        ("simple", "simple"),
    ],
)
def test_the_first_rule_that_fits_decides(principal: str, name: str) -> None:
    assert KerberosShortNamer(RULES, "REALM.COM").name(principal) == name


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("DEFAULT", "alice@ELSEWHERE.COM"),
        ("RULE:[1:$1@$0]", "alice@REALM.COM"),
        ("RULE:[2:$1]", "alice@REALM.COM"),
        ("RULE:[1:$2]", "alice@REALM.COM"),
        ("DEFAULT", "a/b/c@REALM.COM"),
    ],
)
def test_without_a_simple_name_nobody_is_let_in(rules: str, principal: str) -> None:
    with pytest.raises(NoMatchingRule):
        KerberosShortNamer(rules, "REALM.COM").name(principal)


@pytest.mark.parametrize(
    "rules", ["ROLE:[1:$1]", "RULE:[1:$1](a", "RULE:[:$1]", "RULE:[1:$1]s/a/b", r"RULE:[1:$1](\1)"]
)
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r"principal\.to\.local\.rules"):
        KerberosShortNamer(rules, "REALM.COM")
