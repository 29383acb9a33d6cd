"""What kafka-python's clients have, ours have: each public method with its parameters, each setting."""

from __future__ import annotations

import inspect
from typing import Any

import kafka
import kafka.admin
import pytest

import ottla

CLIENTS = ("KafkaProducer", "KafkaConsumer", "KafkaAdminClient")

NOT_OURS = {
    "KafkaProducer.DEPRECATED_CONFIGS": "a list for its own warnings",
    "KafkaProducer.max_usable_produce_magic": "chooses a record format for brokers before 0.11, which nobody can use",
    "KafkaProducer.close(null_logger)": "silences its own logger when the interpreter ends",
    "KafkaConsumer.DEFAULT_SESSION_TIMEOUT_MS_PRE_KIP_735": "a default for brokers before 3.0",
}
"""What stands in its classes but is no part of its interface, and why."""

NAMES_NOT_OURS = {
    "ConfigFilterType": "names of filters, which describe_configs takes as words",
    "ConfigSourceType": "describe_configs tells of sources by name",
    "ConfigType": "describe_configs tells of types by name",
    "GroupState": "states are given by name",
    "GroupType": "types are given by name",
}


def members(client: str) -> list[tuple[str, Any]]:
    return [each for each in inspect.getmembers(getattr(kafka, client)) if not each[0].startswith("_")]


@pytest.mark.parametrize("client", CLIENTS)
def test_every_method_is_there_with_its_parameters(client: str) -> None:
    ours = getattr(ottla, client)
    missing: list[str] = []
    for name, theirs in members(client):
        if not hasattr(ours, name):
            missing.append(f"{client}.{name}")
        elif callable(theirs):
            known = inspect.signature(getattr(ours, name)).parameters
            if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in known.values()):
                continue
            wanted = inspect.signature(theirs).parameters
            missing += [f"{client}.{name}({each})" for each in wanted if each not in known]
    assert sorted(missing) == sorted(each for each in NOT_OURS if each.startswith(f"{client}."))


@pytest.mark.parametrize("client", CLIENTS)
def test_parameters_stand_in_the_same_places_with_the_same_defaults(client: str) -> None:
    ours = getattr(ottla, client)
    for name, theirs in members(client):
        if not callable(theirs) or not hasattr(ours, name):
            continue
        own = inspect.signature(getattr(ours, name)).parameters
        shared = [each for each in inspect.signature(theirs).parameters if each in own]
        assert list(own)[: len(shared)] == shared, f"{client}.{name}"
        for each in shared:
            default = inspect.signature(theirs).parameters[each].default
            if default is None or isinstance(default, bool | int | str):
                assert own[each].default == default, f"{client}.{name}({each})"


@pytest.mark.parametrize("client", CLIENTS)
def test_every_setting_is_known(client: str) -> None:
    theirs, ours = getattr(kafka, client).DEFAULT_CONFIG, getattr(ottla, client).DEFAULT_CONFIG
    assert sorted(set(theirs) - set(ours)) == []


def test_what_goes_into_the_admin_client_is_there() -> None:
    names = [*kafka.admin.__all__, "NewTopic", "NewPartitions", "ConfigFilterType"]
    missing = [name for name in names if not hasattr(ottla, name)]
    assert sorted(missing) == sorted(NAMES_NOT_OURS)
