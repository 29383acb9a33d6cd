"""Dataclasses as Avro records: their schemas, and objects to bytes and back."""

import datetime as dt
import enum
import json
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated

import pytest

from ottla.registry import avro
from ottla.schemas.avro_decode import compile_decoder
from ottla.schemas.avro_encode import compile_encoder
from ottla.schemas.dataclass_schemas import schema_of
from ottla.schemas.errors import SchemaError


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


@dataclass
class Item:
    name: str
    count: int = 1


@dataclass
class Order:
    """An order of the shop."""

    id: int
    items: list[Item]
    price: Annotated[Decimal, {"precision": 9, "scale": 2}]
    at: dt.datetime
    colour: Colour = Colour.RED
    note: str | None = None
    limits: dict[str, float] = field(default_factory=dict)
    next: "Order | None" = None


def test_the_schema_of_a_dataclass():
    document, classes = schema_of(Order, "shop")
    assert json.loads(avro.parse(json.dumps(document)).text)["fields"][0] == {"name": "id", "type": "long"}
    by_name = {one["name"]: one for one in document["fields"]}
    assert document["doc"] == "An order of the shop."
    assert by_name["note"] == {"name": "note", "type": ["null", "string"], "default": None}
    assert by_name["limits"]["default"] == {}
    assert by_name["colour"]["default"] == "RED"
    assert by_name["next"]["type"] == ["null", "shop.Order"]
    assert set(classes) == {"shop.Order", "shop.Item", "shop.Colour"}


def test_objects_travel():
    document, classes = schema_of(Order, "shop")
    one = avro.parse(json.dumps(document)).root
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    inner = Order(1, [], Decimal("0.50"), moment)
    order = Order(
        2, [Item("apple", 3), Item("pear")], Decimal("3.25"), moment, Colour.BLUE, "hi", {"max": 2.0}, inner
    )
    encode, decode = compile_encoder(one, attributes=True), compile_decoder(one, None, classes)
    assert decode(encode(order)) == order


def test_a_type_without_an_avro_type_is_named():
    @dataclass
    class Odd:
        value: complex

    with pytest.raises(SchemaError, match=r"Odd\.value"):
        schema_of(Odd)
    with pytest.raises(SchemaError, match="is not a dataclass"):
        schema_of(int)
