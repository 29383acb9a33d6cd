"""JAAS text as Kafka's JaasConfig reads it."""

from __future__ import annotations

import pytest

from ottla.credentials.errors import CredentialsError
from ottla.credentials.jaas import parse_file, parse_modules

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_a_module_with_its_options():
    (module,) = parse_modules(f'{PLAIN} required username="admin" password=\'a "b" \\"c\\"\' user_x="1";')
    assert module.mechanism == "PLAIN"
    assert module.options == {"username": "admin", "password": 'a "b" "c"', "user_x": "1"}


def test_comments_and_several_modules():
    text = f'// first\n{PLAIN} required /* why */ a="1";\n{PLAIN} optional;'
    assert [module.flag for module in parse_modules(text)] == ["REQUIRED", "OPTIONAL"]


def test_escapes_are_those_of_java():
    (module,) = parse_modules(f'{PLAIN} required a="tab\\tend" b="\\101\\60x" c="back\\\\slash";')
    assert module.options == {"a": "tab\tend", "b": "A0x", "c": "back\\slash"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Login module not specified"),
        (PLAIN, "control flag not specified"),
        (f"{PLAIN} maybe;", "Invalid login module control flag 'MAYBE'"),
        (f"{PLAIN} required", "not terminated by semi-colon"),
        (f"{PLAIN} required user;", "Value not specified for key 'user'"),
        (f"{PLAIN} required user=1;", "Value not specified for key 'user'"),
        (f"{PLAIN} required user=", "Value not specified for key 'user'"),
    ],
)
def test_bad_text_is_refused_as_kafka_refuses_it(text, message):
    with pytest.raises(CredentialsError, match=message):
        parse_modules(text)


def test_no_other_module_is_taken():
    (module,) = parse_modules('com.sun.security.auth.module.JndiLoginModule required url="ldap://x";')
    with pytest.raises(CredentialsError, match="JndiLoginModule is not supported"):
        _ = module.mechanism


def test_secrets_of_a_module_are_not_shown():
    (module,) = parse_modules(f'{PLAIN} required password="sesame";')
    assert "sesame" not in repr(module)


def test_a_file_has_contexts_by_name():
    text = f'KafkaServer {{ {PLAIN} required user_a="1"; }};\ninternal.KafkaServer {{ {PLAIN} required; }};'
    contexts = parse_file(text)
    assert list(contexts) == ["KafkaServer", "internal.KafkaServer"]
    assert contexts["KafkaServer"][0].options == {"user_a": "1"}


@pytest.mark.parametrize(
    "text", ["KafkaServer", "KafkaServer {", "KafkaServer { };x", f"A {{ {PLAIN} required; }}"]
)
def test_a_file_that_ends_too_early_is_refused(text):
    with pytest.raises(CredentialsError):
        parse_file(text)
