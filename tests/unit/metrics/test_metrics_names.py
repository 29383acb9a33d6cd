"""The three spellings of names, as the rules of their authors give them."""

import importlib.util
from pathlib import Path

import pytest

from ottla.metrics import names
from ottla.metrics.families import Family, Spelling, shown

KAFKA, REPORTER, CONFLUENT = Spelling
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("family", "spelling", "name", "kind"),
    [
        (names.TOPIC_FAMILIES["bytes_in"], KAFKA, "kafka_server_brokertopicmetrics_bytesin_total", "counter"),
        (
            names.TOPIC_FAMILIES["bytes_in"],
            REPORTER,
            "kafka_server_brokertopicmetrics_bytesinpersec_total",
            "counter",
        ),
        (
            names.TOPIC_FAMILIES["bytes_in"],
            CONFLUENT,
            "kafka_server_brokertopicmetrics_bytesinpersec",
            "untyped",
        ),
        (names.NETWORK_IDLE, KAFKA, "kafka_network_socketserver_networkprocessoravgidle_percent", "gauge"),
        (names.NETWORK_IDLE, REPORTER, "kafka_network_socketserver_networkprocessoravgidlepercent", "gauge"),
        (
            names.HANDLER_IDLE,
            KAFKA,
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
            "gauge",
        ),
        (
            names.HANDLER_IDLE,
            REPORTER,
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total",
            "counter",
        ),
        (
            names.HANDLER_IDLE,
            CONFLUENT,
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate",
            "gauge",
        ),
        (names.RAFT_EPOCH, KAFKA, "kafka_server_raftmetrics_current_epoch", "gauge"),
        (names.RAFT_EPOCH, REPORTER, "kafka_server_raft_metrics_current_epoch", "gauge"),
        (names.RAFT_EPOCH, CONFLUENT, "kafka_server_raft_metrics_current_epoch", "gauge"),
        (names.RAFT_BYTES_IN, KAFKA, "kafka_server_raftchannelmetrics_incoming_byte_total", "counter"),
        (names.RAFT_BYTES_IN, REPORTER, "kafka_server_raft_channel_metrics_incoming_byte", "gauge"),
        (names.RAFT_STATE, REPORTER, "kafka_server_raft_metrics_current_state_info", "gauge"),
        (names.CONNECTIONS, KAFKA, "kafka_server_socket_server_metrics_connection_count", "gauge"),
        (names.CONNECTIONS, CONFLUENT, "kafka_server_socketservermetrics_connection_count", "gauge"),
        (names.TOTAL_TIME, KAFKA, "kafka_network_requestmetrics_totaltimems", "gauge"),
        (names.TOTAL_TIME, REPORTER, "kafka_network_requestmetrics_totaltimems", "summary"),
        (names.DISK_READ, KAFKA, "kafka_server_kafkaserver_linux_disk_read_bytes", "gauge"),
        (names.GROUPS, CONFLUENT, "kafka_coordinator_group_groupmetadatamanager_numgroups", "untyped"),
        (names.STALLS, REPORTER, "ottla_event_loop_stall_seconds", "histogram"),
    ],
)
def test_a_name_is_spelled_as_its_rules_say(family, spelling, name, kind):
    assert shown(family, spelling) == (name, kind)


@pytest.mark.parametrize("spelling", Spelling)
def test_no_two_families_share_a_name(spelling):
    families = [each for each in vars(names).values() if isinstance(each, Family)]
    for group in vars(names).values():
        if isinstance(group, dict):
            families += [each for each in group.values() if isinstance(each, Family)]
    spelled = [shown(family, spelling).name for family in families]
    assert len(spelled) > 100
    assert len(set(spelled)) == len(spelled)


def test_the_reference_shows_the_table_as_it_is():
    spec = importlib.util.spec_from_file_location("metrics_table", ROOT / "scripts" / "metrics_table.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    text = script.PAGE.read_text()
    assert text == script.page(text), "run: python scripts/metrics_table.py"
