"""Numbers of nodes from their metrics page."""

from ottla.admin.node_metrics import numbers, samples

PAGE = """# HELP x y
# TYPE x gauge
ottla_event_loop_busy_ratio 0.25
kafka_network_requestmetrics_requests_total{request="Produce",version="9"} 3
kafka_network_requestmetrics_requests_total{request="Fetch",version="9"} 4
kafka_network_requestmetrics_requests_total{request="FetchConsumer",version="9"} 4
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} 1.5
kafka_server_socket_server_metrics_connection_count{listener="a b",networkProcessor="0"} 7
kafka_server_socket_server_metrics_connections{clientSoftwareName="librdkafka",clientSoftwareVersion="2.1",l="a"} 2
kafka_server_socket_server_metrics_connections{clientSoftwareName="librdkafka",clientSoftwareVersion="2.1",l="b"} 3
kafka_server_socket_server_metrics_connections{clientSoftwareName="",clientSoftwareVersion="",l="b"} 1
kafka_server_socket_server_metrics_connections{clientSoftwareName="gone",clientSoftwareVersion="1",l="b"} 0
process_resident_memory_bytes 1e8
nonsense
broken{ nan-ish
"""


def test_samples_are_read_and_nonsense_is_left_out():
    found = samples(PAGE)
    assert len(found) == 11
    assert (
        found['kafka_server_socket_server_metrics_connection_count{listener="a b",networkProcessor="0"}'] == 7
    )


def test_the_numbers_that_a_person_looks_at_first():
    node = numbers(4, samples(PAGE))
    assert (node.node_id, node.busy, node.requests, node.produce_p99_ms) == (4, 0.25, 7, 1.5)
    assert node.clients == (("librdkafka 2.1", 5), ("unnamed", 1))
    assert (node.connections, node.memory_bytes, node.longest_stall_s) == (7, 1e8, 0.0)
