"""Contracts of several layers, merged as Confluent's clients merge them."""

from __future__ import annotations

from ottla.registry.contracts import merged_metadata, merged_rule_set


def test_metadata_merges_by_path_and_property_and_sensitive_names_add_up():
    default = {
        "tags": {"Order.card": ["PII"], "Order.id": ["KEY"]},
        "properties": {"owner": "a", "team": "x"},
        "sensitive": ["owner"],
    }
    own = {"tags": {"Order.card": ["SECRET"]}, "properties": {"owner": "b"}, "sensitive": ["owner", "team"]}
    assert merged_metadata([default, own, None]) == {
        "tags": {"Order.card": ["SECRET"], "Order.id": ["KEY"]},
        "properties": {"owner": "b", "team": "x"},
        "sensitive": ["owner", "team"],
    }
    assert merged_metadata([None, None, own]) == own
    assert merged_metadata([None, None, None]) is None
    # What no layer has does not appear.
    assert merged_metadata([{"properties": {"a": "1"}}, {"properties": {"b": "2"}}]) == {
        "properties": {"a": "1", "b": "2"}
    }


def test_a_rule_of_a_later_layer_stands_behind_and_removes_the_one_of_its_name():
    default = {"domainRules": [{"name": "mine", "doc": "default"}, {"name": "common"}]}
    own = {"domainRules": [{"name": "mine", "doc": "own"}], "migrationRules": [{"name": "mine"}]}
    override = {"domainRules": [{"name": "common", "doc": "override"}], "enableAt": "CLIENT"}
    assert merged_rule_set([default, own, override]) == {
        "domainRules": [{"name": "mine", "doc": "own"}, {"name": "common", "doc": "override"}],
        "migrationRules": [{"name": "mine"}],
        "enableAt": "CLIENT",
    }
    assert merged_rule_set([default, {"domainRules": [{"name": "mine", "doc": "own"}]}]) == {
        "domainRules": [{"name": "common"}, {"name": "mine", "doc": "own"}]
    }
