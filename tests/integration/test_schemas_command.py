"""`ottla schemas` as a person uses it: register, evolve, be refused with a reason, delete."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from ottla.cli import profiles
from ottla.cli.main import main
from ottla.cli.profiles import Profile, Profiles
from ottla.registry.rest.auth import hash_password
from ottla.testing.registry import RegistryProcess

pytest.importorskip("uvicorn")

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture(scope="module")
def registry(shared_ottla_broker):
    with RegistryProcess(shared_ottla_broker.bootstrap, "--topic", "_cmd", "--group", "cmd") as process:
        yield process


@pytest.fixture
def run(registry, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("OTTLA_SCHEMA_REGISTRY", registry.url)
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        return CliRunner().invoke(main, ["schemas", *arguments])

    return run


def file_of(tmp_path, name, document):
    (tmp_path / name).write_text(document if isinstance(document, str) else json.dumps(document))
    return name


def fields(*more):
    return {**ORDER, "fields": [*ORDER["fields"], *more]}


def test_a_subject_from_its_first_schema_to_its_end(run, tmp_path):
    first = file_of(tmp_path, "order.avsc", ORDER)
    assert run("list").output == "SUBJECT  VERSION  ID  TYPE\n"
    assert run("register", "orders-value", first).output == "orders-value version 1, id 1\n"
    assert run("register", "orders-value", first).output == "orders-value version 1, id 1\n"
    bad = file_of(tmp_path, "bad.avsc", fields({"name": "price", "type": "double"}))
    checked = run("check", "orders-value", bad)
    assert checked.exit_code == 1 and "bad.avsc is not compatible with orders-value:" in checked.output
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in checked.output and "/fields/1" in checked.output
    refused = run("register", "orders-value", bad)
    assert refused.exit_code == 1 and refused.stderr.startswith(
        "ottla schemas: the registry refuses the schema"
    )
    good = file_of(tmp_path, "good.avsc", fields({"name": "note", "type": "string", "default": ""}))
    assert run("check", "orders-value", good).output == "good.avsc is compatible with orders-value\n"
    assert run("register", "orders-value", good).output == "orders-value version 2, id 2\n"
    assert run("list").output.splitlines()[1].split() == ["orders-value", "2", "2", "AVRO"]
    shown = run("show", "orders-value", "--version", "1")
    assert json.loads(shown.stdout) == ORDER and shown.stderr == "orders-value version 1, id 1, AVRO\n"
    assert json.loads(run("show", "--id", "2").stdout)["fields"][1]["name"] == "note"
    assert json.loads(run("--json", "show", "orders-value").stdout)["version"] == 2
    assert run("delete", "orders-value", "--version", "1").output == "orders-value: version 1 deleted\n"
    assert run("delete", "orders-value").output == "orders-value: version 2 deleted\n"
    assert run("list").output.count("\n") == 1
    assert "orders-value" in run("list", "--deleted").output
    gone = run("delete", "orders-value", "--permanent")
    assert gone.output == "orders-value: version 1, 2 deleted for good\n"
    assert "orders-value" in run("show", "orders-value").stderr


def test_levels_and_modes(run):
    assert run("level").output == "BACKWARD\n"
    assert run("level", "carts-value", "--set", "full").output == "FULL\n"
    assert run("level", "carts-value").output == "FULL\n"
    assert run("level", "carts-value", "--unset").output == "BACKWARD\n"
    assert "42203" in run("level", "--set", "nonsense").stderr
    assert run("mode", "carts-value", "--set", "readonly").output == "READONLY\n"
    assert run("mode", "carts-value", "--unset").output == "READWRITE\n"
    assert run("mode", "--set", "IMPORT", "--unset").exit_code == 2


def test_types_and_references(run, tmp_path):
    common = file_of(tmp_path, "common.proto", 'syntax = "proto3"; message Id { int64 n = 1; }')
    pytest.importorskip("grpc_tools")
    assert run("register", "common", common).output == "common version 1, id 3\n"
    uses = 'syntax = "proto3"; import "common.proto"; message Cart { Id id = 1; }'
    cart = file_of(tmp_path, "cart.proto", uses)
    assert "common.proto" in run("register", "carts", cart).stderr
    assert run("register", "carts", cart, "--reference", "common.proto=common:1").exit_code == 0
    shown = run("show", "carts")
    assert shown.stdout.strip() == uses and "with common.proto = common:1" in shown.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("show",), "give a subject, or --id"),
        (("register", "s", "missing.avsc"), "missing.avsc cannot be read: No such file or directory"),
        (("register", "s", "schema.txt"), "schema.txt ends with none of .avsc, .json, .proto"),
        (("register", "s", "a.avsc", "--reference", "x"), "--reference x is not NAME=SUBJECT:VERSION"),
        (("register", "s", "a.avsc"), "Invalid schema"),
        (("show", "no\nsuch"), "no"),
    ],
)
def test_what_is_wrong_is_one_sentence(run, tmp_path, arguments, sentence):
    file_of(tmp_path, "a.avsc", '{"type": "record"}')
    found = run(*arguments)
    assert found.exit_code != 0 and sentence in found.stderr
    assert found.stderr.count("\n") == 1 or found.exit_code == 2


PAYMENT = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
        {"name": "by", "type": ["string", "long", "bytes"], "default": ""},
    ],
}


def test_lines_become_records_by_the_topics_schemas(run, registry, shared_ottla_broker, tmp_path):
    def tool(name, *arguments, lines=()):
        more = ("--bootstrap-server", shared_ottla_broker.bootstrap, "--schema-registry", registry.url)
        return CliRunner().invoke(
            main, [name, "--topic", "payments", *more, *arguments], input="\n".join(lines)
        )

    line = '{"id":1,"sum":"12.50","at":"2026-11-19T04:00:00Z","day":"2026-11-19","by":7}'
    unknown = tool("produce", lines=[line])
    assert unknown.exit_code != 0 and "no version latest of the subject payments-value" in unknown.stderr
    schema = file_of(tmp_path, "payment.avsc", PAYMENT)
    assert tool("produce", "--schema", schema, lines=[line]).exit_code == 0
    key = file_of(tmp_path, "key.avsc", '"long"')
    keyed = ("--reader-property", "parse.key=true")
    tagged = line.replace('"by":7', '"by":{"bytes":"AAE="}')
    assert tool("produce", "--key-schema", key, *keyed, lines=[f"5\t{tagged}"]).exit_code == 0
    # From now on the topic's newest schemas are enough, those of keys too.
    assert tool("produce", *keyed, lines=[f"6\t{line}"]).exit_code == 0
    for bad, sentence in (
        (
            line.replace('"id"', '"number"'),
            "line 2 does not fit the schemas of payments: Payment has no field number",
        ),
        (line.replace("12.50", "12.505"), "sum: 12.505 has more than 2 digits after the point"),
        (line.replace("2026-11-19T", "yesterday"), "at: 'yesterday"),
        ("{", "it is not JSON"),
    ):
        refused = tool("produce", lines=[line, bad])
        assert refused.exit_code != 0 and sentence in refused.stderr
    needs = tool("produce", "--key-schema", key, lines=[line])
    assert "--key-schema needs lines with keys" in needs.stderr
    shown = tool(
        "consume", "--from-beginning", "--max-messages", "7", "--formatter-property", "print.key=true"
    )
    rows = [tuple(each.split("\t")) for each in shown.stdout.splitlines()]
    # What a person sees is what they wrote, and what came before a bad line was sent.
    assert rows[0] == ("null", line) and rows[1] == ("5", line.replace('"by":7', '"by":"AAE="'))
    assert rows[2] == ("6", line) and rows[3:] == [("null", line)] * 4


def test_lines_of_json_schema_and_protobuf(run, registry, shared_ottla_broker, tmp_path):
    pytest.importorskip("grpc_tools")

    def tool(name, topic, *arguments, lines=()):
        more = ("--bootstrap-server", shared_ottla_broker.bootstrap, "--schema-registry", registry.url)
        return CliRunner().invoke(main, [name, "--topic", topic, *more, *arguments], input="\n".join(lines))

    strict = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    schemas = {
        "json-lines": file_of(tmp_path, "n.json", strict),
        "proto-lines": file_of(tmp_path, "n.proto", 'syntax = "proto3"; message N { int32 n = 1; }'),
    }
    for topic, file in schemas.items():
        assert tool("produce", topic, "--schema", file, lines=['{"n":1}']).exit_code == 0
        refused = tool("produce", topic, lines=['{"m":1}'])
        assert refused.exit_code != 0 and "line 1 does not fit the schemas" in refused.stderr
        shown = tool("consume", topic, "--from-beginning", "--max-messages", "1")
        assert json.loads(shown.stdout) == {"n": 1}


def test_the_registry_and_its_login_come_from_the_profile(shared_ottla_broker, tmp_path, run, monkeypatch):
    users = tmp_path / "users.toml"
    users.write_text(
        f'[roles.all]\nverbs = ["read", "write", "admin"]\n[users.ann]\npassword = "{hash_password("secret")}"\n'
        'roles = ["all"]\n'
    )
    arguments = ("--topic", "_cmdp", "--group", "cmdp", "--users", str(users))
    with RegistryProcess(shared_ottla_broker.bootstrap, *arguments) as process:
        monkeypatch.delenv("OTTLA_SCHEMA_REGISTRY")
        properties = {"schema.registry.url": process.url, "basic.auth.user.info": "ann:secret"}
        profiles.save(Profiles("here", {"here": Profile("localhost:1", properties)}))
        assert run("list").exit_code == 0
        # An address that is given is not that of the profile: its password does not go there.
        denied = run("--schema-registry", process.url, "list")
        assert denied.exit_code == 1 and "needs a user and a password" in denied.stderr
        assert "secret" not in denied.output
        assert "there is no profile 'other'" in run("--profile", "other", "list").stderr
