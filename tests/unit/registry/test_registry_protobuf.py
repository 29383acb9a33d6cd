"""Protobuf schemas through the real protoc: one spelling, imports, compatibility, and hostile files.

Some tests carry the number of the issue of Karapace that they keep away from us.
"""

import base64
import time

import pytest

from ottla.registry.errors import InvalidSchema

pytest.importorskip("grpc_tools")

from google.protobuf import descriptor_pb2

from ottla.registry.compat.protobuf import compare
from ottla.registry.protobuf.compiler import Compiler


@pytest.fixture(scope="module")
def compiler():
    found = Compiler()
    yield found
    found.close()


def proto(body, package="shop"):
    return f'syntax = "proto3";\npackage {package};\n{body}\n'


def kinds(compiler, reader, writer):
    return [
        one.kind for one in compare(compiler.compile(reader, {}).model, compiler.compile(writer, {}).model)
    ]


FULL = """// A comment.
syntax = "proto2";
package shop.v1;
import "google/protobuf/timestamp.proto";
option java_package = "com.shop";
message Order {
  option deprecated = true;
  reserved 9, 20 to 22, 100 to max;
  reserved "gone";
  required int64 id = 1;
  optional string note = 2 [default = "none \\"x\\"", json_name = "theNote"];
  repeated int32 sizes = 3 [packed = true];
  map<string, Item> items = 4;
  oneof how { string card = 5; int32 voucher = 6; }
  optional google.protobuf.Timestamp at = 7;
  optional Colour colour = 8 [default = BLUE];
  message Item { optional double price = 1; optional Order parent = 2; }
  enum Colour { option allow_alias = true; RED = 0; BLUE = 1; AZURE = 1 [deprecated = true]; reserved 7 to 9; }
}
service Shop { rpc Buy (Order) returns (stream Order); }
"""


def test_text_means_what_it_says_and_has_one_spelling(compiler):
    first = compiler.compile(FULL, {})
    again = compiler.compile(first.canonical, {})
    assert again.canonical == first.canonical
    assert again.serialized == first.serialized
    assert first.text == FULL
    squeezed = compiler.compile(FULL.replace("  ", "\t").replace("// A comment.", "/* other */"), {})
    assert squeezed.canonical == first.canonical


def test_a_descriptor_in_base64_is_a_schema_too(compiler):
    """Karapace 1060, 1319: serialized schemas are accepted and given back, for ids and versions alike."""
    first = compiler.compile(FULL, {})
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(first.serialized))
    assert [one.name for one in file.message_type] == ["Order"]
    again = compiler.compile(first.serialized, {})
    assert again.canonical == first.canonical
    with pytest.raises(InvalidSchema, match="neither"):
        compiler.compile("bm90IGEgc2NoZW1h", {})


def test_proto3_optional_and_well_known_types_stay(compiler):
    """Karapace 742, 1263: optional fields and google's own types survive."""
    text = proto(
        'import "google/protobuf/any.proto";\nmessage A { optional int32 x = 1; google.protobuf.Any y = 2; }'
    )
    canonical = compiler.compile(text, {}).canonical
    assert "optional int32 x = 1;" in canonical and ".google.protobuf.Any y = 2;" in canonical
    assert compiler.compile(canonical, {}).canonical == canonical


def test_imports_come_from_references(compiler):
    item = proto("message Item { int32 n = 1; }")
    order = proto('import "things/item.proto";\nmessage Order { Item item = 1; }')
    found = compiler.compile(order, {"things/item.proto": item})
    assert ".shop.Item" in found.model["messages"] and found.model["own"] == [".shop.Order"]
    with pytest.raises(InvalidSchema, match=r"things/item\.proto"):
        compiler.compile(order, {})


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        ("message A { int32 x = 1; string y = 2; }", "message A { int32 x = 1; }", []),
        ("message A { int32 x = 1; }", "message A { int32 x = 1; string y = 2; }", []),
        ("message A { int64 renamed = 1; }", "message A { int32 x = 1; }", []),
        ("message A { bytes x = 1; }", "message A { string x = 1; }", []),
        ("message A { string x = 1; }", "message A { int32 x = 1; }", ["FIELD_SCALAR_KIND_CHANGED"]),
        ("message A { sint32 x = 1; }", "message A { int32 x = 1; }", ["FIELD_SCALAR_KIND_CHANGED"]),
        ("message A {}  message B {}", "message A {}", []),
        ("message A {}", "message A {}  message B {}", ["MESSAGE_REMOVED"]),
        (
            "message A { B b = 1; } message B {} message C {}",
            "message A { C b = 1; } message B {} message C {}",
            ["FIELD_NAMED_TYPE_CHANGED"],
        ),
        (
            "message A { string b = 1; } message B {}",
            "message A { B b = 1; } message B {}",
            ["FIELD_KIND_CHANGED"],
        ),
        (
            "message A { repeated int32 x = 1; }",
            "message A { int32 x = 1; }",
            ["FIELD_NUMERIC_LABEL_CHANGED"],
        ),
        ("message A { repeated string x = 1; }", "message A { string x = 1; }", []),
        ("message A { oneof o { int32 x = 1; } }", "message A { int32 x = 1; }", []),
        (
            "message A { oneof o { int32 x = 1; int32 y = 2; } }",
            "message A { int32 x = 1; int32 y = 2; }",
            ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"],
        ),
        (
            "message A { oneof o { int32 x = 1; } }",
            "message A { oneof o { int32 x = 1; int32 y = 2; } }",
            ["ONEOF_FIELD_REMOVED"],
        ),
        ("message A { map<string, int32> m = 1; }", "message A { map<string, int64> m = 1; }", []),
        (
            "message A { map<string, string> m = 1; }",
            "message A { map<string, int64> m = 1; }",
            ["FIELD_SCALAR_KIND_CHANGED"],
        ),
    ],
)
def test_compatibility(compiler, reader, writer, expected):
    assert kinds(compiler, proto(reader), proto(writer)) == expected


def test_required_fields_and_packages(compiler):
    plain = 'syntax = "proto2"; message A { optional int32 x = 1; }'
    strict = 'syntax = "proto2"; message A { optional int32 x = 1; required int32 y = 2; }'
    assert kinds(compiler, strict, plain) == ["REQUIRED_FIELD_ADDED"]
    assert kinds(compiler, plain, strict) == ["REQUIRED_FIELD_REMOVED"]
    assert (
        kinds(compiler, proto("message A { A a = 1; }", "new"), proto("message A { A a = 1; }", "old")) == []
    )


@pytest.mark.parametrize(
    "text",
    [
        "message",
        proto("message A { int32 x = 1; int32 y = 1; }"),
        proto("message A { Missing x = 1; }"),
        proto("message A {" * 200 + "}" * 200),
        proto("message A {" * 90 + "}" * 90),
        'syntax = "proto3"; import "main.proto";',
        'syntax = "proto3"; import "../../../../etc/passwd";',
        'syntax = "proto3"; message A { ' + "x" * 1_100_000 + " }",
    ],
)
def test_what_is_no_schema_is_refused(compiler, text):
    began = time.process_time()
    with pytest.raises(InvalidSchema):
        compiler.compile(text, {})
    assert time.process_time() - began < 20


def test_import_loops_are_refused(compiler):
    files = {
        "a.proto": proto('import "b.proto"; message A {}'),
        "b.proto": proto('import "a.proto"; message B {}'),
    }
    with pytest.raises(InvalidSchema):
        compiler.compile(proto('import "a.proto"; message C {}'), files)
    with pytest.raises(InvalidSchema, match="relative"):
        compiler.compile(proto("message C {}"), {"../../evil.proto": proto("message E {}")})


def test_a_worker_that_dies_is_replaced(compiler):
    compiler.compile(proto("message A {}"), {})
    compiler._process.kill()
    compiler._process.wait()
    assert compiler.compile(proto("message A {}"), {}).model["own"] == [".shop.A"]


TAGGED = """import "confluent/meta.proto";
import "confluent/type/decimal.proto";
message Person {
  string name = 1 [(confluent.field_meta).tags = "PII", (confluent.field_meta).doc = "whole"];
  confluent.type.Decimal owes = 2;
}"""


def test_the_imports_of_confluent_need_no_reference_and_their_tags_count(compiler):
    found = compiler.compile(proto(TAGGED), {})
    assert 'name = 1 [(confluent.field_meta) = { doc: "whole" tags: "PII" }]' in found.canonical
    # Confluent's serializer sends the descriptor: its tags come back in the text.
    again = compiler.compile(found.serialized, {})
    assert again.text == again.canonical == found.canonical
    assert compiler.compile(proto(TAGGED.replace("PII", "PHI")), {}).canonical != found.canonical


def test_options_of_a_schema_that_is_imported_come_back_in_the_text(compiler):
    options = proto(
        'import "google/protobuf/descriptor.proto";\nextend google.protobuf.FieldOptions { string unit = 50001; }'
    )
    files = {"options.proto": options}
    text = proto('import "options.proto";\nmessage M { int32 n = 1 [(unit) = "cm"]; }')
    found = compiler.compile(text, files)
    assert '[(shop.unit) = "cm"]' in found.canonical
    as_descriptors = {"options.proto": compiler.compile(options, {}).serialized}
    assert compiler.compile(found.serialized, as_descriptors).text == found.canonical


def test_a_descriptor_that_contradicts_itself_is_refused(compiler):
    file = descriptor_pb2.FileDescriptorProto(
        name="x", package="shop", syntax="proto3", dependency=["confluent/meta.proto"]
    )
    message = file.message_type.add(name="M")
    message.field.add(name="a", number=1, type=11, label=1, type_name=".shop.Missing")
    message.field.add(name="a", number=1, type=5, label=1)
    hostile = base64.b64encode(file.SerializeToString()).decode()
    with pytest.raises(InvalidSchema):
        compiler.compile(hostile, {})
    file.dependency.append("nowhere.proto")
    with pytest.raises(InvalidSchema, match=r"nowhere\.proto"):
        compiler.compile(base64.b64encode(file.SerializeToString()).decode(), {})
    # Two descriptors that import each other.
    loop = {}
    for own, other in (("a.proto", "b.proto"), ("b.proto", "a.proto")):
        one = descriptor_pb2.FileDescriptorProto(name=own, syntax="proto3", dependency=[other])
        loop[own] = base64.b64encode(one.SerializeToString()).decode()
    with pytest.raises(InvalidSchema):
        compiler.compile(proto('import "a.proto";\nmessage M {}'), loop)
