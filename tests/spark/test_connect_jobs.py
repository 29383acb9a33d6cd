"""Large cycles of a source run as Spark jobs, and write what small ones write."""

from integration.connect_rest import eventually, running_worker


def test_a_large_file_goes_through_spark_and_equals_the_resident_run(spark, ottla_kafka, name, tmp_path):
    source = tmp_path / "in.txt"
    lines = [f"line {number} ".encode() + b"x" * 80 for number in range(30_000)]
    source.write_bytes(b"\n".join(lines) + b"\n")
    bootstrap = ottla_kafka.bootstrap
    for master, topic in (("none", name("resident")), ("local[2]", name("job"))):
        keys = {"ottla_spark_master": master, "client_id": topic, "ottla_inline_max_bytes": "100000"}
        with running_worker(bootstrap, **keys) as rest:
            rest.create(topic, connector_class="FileStreamSource", file=str(source), topic=topic)
            size = source.stat().st_size
            eventually(
                lambda rest=rest, topic=topic, size=size: (
                    [
                        one["offset"]["position"]
                        for one in rest.call("GET", f"/connectors/{topic}/offsets")[1]["offsets"]
                    ]
                    == [size]
                ),
                120,
            )
            jobs = rest.call("GET", f"/ottla/connectors/{topic}")[1]["spark_jobs"]
            assert (jobs > 0) == (master != "none")
        assert [one.value() for one in ottla_kafka.read(topic)] == lines
