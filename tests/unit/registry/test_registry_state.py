"""The fold over `_schemas`: what Confluent's registry wrote is understood, and written back as it was."""

from ottla.registry import records
from ottla.registry.state import State

KEY = b'{"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}'
VALUE = b'{"subject":"orders-value","version":1,"id":7,"schema":"\\"string\\"","deleted":false}'
PROTO_KEY = b'{"keytype":"SCHEMA","subject":"p","version":1,"magic":1}'
PROTO = (
    b'{"subject":"p","version":1,"id":8,"schemaType":"PROTOBUF","references":[{"name":"o.proto","subject":'
    b'"orders-value","version":1}],"schema":"syntax = \\"proto3\\";\\nmessage M {}\\n","deleted":false}'
)


def folded(*pairs):
    state = State()
    for offset, (key, value) in enumerate(pairs):
        state.apply(offset, key, value)
    return state


def test_records_of_a_topic_are_given_back_byte_for_byte():
    state = folded((KEY, VALUE), (PROTO_KEY, PROTO))
    for key, value in ((KEY, VALUE), (PROTO_KEY, PROTO)):
        subject = records.read(key, None)[0]["subject"]
        one = state.subjects[subject][1]
        assert (records.schema_key(subject, 1), one.value()) == (key, value)
    assert state.contexts["."].max_id == 8
    assert [one.subject for one in state.references_to("orders-value", 1)] == ["p"]


def test_keys_of_karapace_are_read_in_their_order():
    state = folded(
        (b'{"subject":"s","version":2,"magic":1,"keytype":"SCHEMA"}', VALUE.replace(b"orders-value", b"s"))
    )
    assert list(state.subjects) == ["s"]


def test_other_spellings_of_a_key_are_known_until_they_end():
    legacy = b'{"magic":0,"keytype":"SCHEMA","subject":"orders-value","version":1}'
    karapace = b'{"subject":"orders-value","version":1,"magic":1,"keytype":"SCHEMA"}'
    state = folded((legacy, VALUE), (karapace, VALUE), (KEY, VALUE), (legacy, VALUE))
    assert state.other_spellings(KEY) == [karapace, legacy]
    state.apply(4, legacy, None)
    assert state.other_spellings(KEY) == [karapace]
    state.apply(5, karapace, None)
    assert state.other_spellings(KEY) == []
    config = b'{"subject":null,"magic":0,"keytype":"CONFIG"}'
    state.apply(6, config, b'{"compatibilityLevel":"NONE"}')
    assert state.other_spellings(records.scoped_key("CONFIG", None)) == [config]


def test_unknown_kinds_and_fields_are_kept_and_given_back():
    value = (
        b'{"subject":"orders-value","version":1,"id":7,"guid":"2fcb0a5e-0b2a-4b6f-8f35-0c1fa7b6d3aa",'
        b'"schemaTags":[{"x":1}],"schema":"\\"string\\"","deleted":false}'
    )
    state = folded((b'{"keytype":"ASSOC","magic":0}', b"{}"), (KEY, value), (b"no json", b"x"), (None, None))
    one = state.subjects["orders-value"][1]
    assert one.value() == value
    assert one.value(deleted=True) == value.replace(b"false", b"true")
    assert state.contexts["."].guids == {"2fcb0a5e-0b2a-4b6f-8f35-0c1fa7b6d3aa": 7}


def test_soft_and_hard_deletes():
    deleted = records.scoped_key("DELETE_SUBJECT", "orders-value")
    state = folded((KEY, VALUE), (deleted, b'{"subject":"orders-value","version":1}'))
    assert state.versions("orders-value") == []
    assert [one.version for one in state.versions("orders-value", deleted=True)] == [1]
    state.apply(2, KEY, None)
    assert state.subjects == {} and state.contexts["."].by_id == {}
    # An id is not given again, even when its schema is gone.
    assert state.contexts["."].max_id == 7


def test_settings_fall_back_from_subject_to_context_to_global():
    state = folded(
        (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"NONE"}'),
        (b'{"keytype":"CONFIG","subject":":.ctx:","magic":0}', b'{"compatibilityLevel":"FULL"}'),
        (b'{"keytype":"CONFIG","subject":"s","magic":0}', b'{"compatibilityLevel":"FORWARD"}'),
    )
    levels = [
        state.setting(state.configs, name, "compatibilityLevel") for name in (None, "s", ":.ctx:s", "t")
    ]
    assert levels == ["NONE", "FORWARD", "FULL", "NONE"]
    state.apply(3, b'{"keytype":"CONFIG","subject":"s","magic":0}', None)
    assert state.setting(state.configs, "s", "compatibilityLevel") == "NONE"


def test_a_record_is_folded_once():
    state = folded((KEY, VALUE))
    changes = state.changes
    state.apply(0, KEY, None)
    assert state.changes == changes and "orders-value" in state.subjects
