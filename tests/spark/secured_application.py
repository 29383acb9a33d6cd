"""Runs an application and a sink with a login, with all of Spark's records of them on; then prints the UI's pages.

python secured_application.py PROPERTIES FOLDER
"""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path
from typing import Any

PAGES = (
    "/environment/",
    "/SQL/",
    "/SQL/execution/?id=0",
    "/StreamingQuery/",
    "/jobs/",
    "/stages/",
    "/executors/",
    "/api/v1/applications/{id}/sql?details=true&planDescription=true",
    "/api/v1/applications/{id}/environment",
    "/api/v1/applications/{id}/stages?details=true",
)


def main(properties: str, folder: Path) -> None:
    """Count words with Streams, write numbers with the sink."""
    from ottla.cli.properties_file import read_client_properties
    from ottla.pipeline import KafkaSink, spark_session
    from ottla.streams import StreamsApp, StreamsBuilder, StreamsSettings

    client = read_client_properties(properties)
    servers = client.pop("bootstrap.servers")
    (folder / "events").mkdir()
    spark = spark_session(
        "secured",
        master="local[2]",
        settings={
            "spark.ui.port": "0",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{folder}/events",
            "spark.local.dir": str(folder / "local"),
            "spark.driver.memory": "1g",
        },
    )
    spark.sparkContext.setLogLevel("INFO")
    builder: Any = StreamsBuilder()
    (
        builder.stream("words.in")
        .flat_map_values(lambda line: line.lower().split())
        .group_by(lambda _, word: word)
        .aggregate(lambda: 0, lambda _, __, seen: seen + 1, value_serde=int, store="counts")
        .to_stream()
        .to("words.out")
    )
    settings = StreamsSettings(servers, master="local[2]", state_dir=folder / "state", client=client)
    settings.marks_topic = "words.marks"
    app = StreamsApp(builder.build(), "words.count", settings)
    app.start(available_now=True)
    assert app.query is not None
    app.query.explain(extended=True)
    app.wait(timeout_s=120)
    print(app.query.recentProgress, settings)

    sink = KafkaSink(
        servers,
        topic="words.numbers",
        transactional_id="words.sink",
        options=client,
        marks_topic="words.marks",
    )
    frame = spark.range(50).selectExpr("cast(id as string) as value")
    frame.explain(extended=True)
    sink.write(frame, 0, lineage="query")
    sink.close()
    reader = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "words.numbers")
    )
    for key, value in client.items():
        reader = reader.option(f"kafka.{key}", value)
    records = reader.load()
    records.explain(mode="formatted")
    print("numbers:", records.count())
    own = (
        spark.read.format("ottla").option("kafka.bootstrap.servers", servers).option("subscribe", "words.out")
    )
    for key, value in client.items():
        own = own.option(f"kafka.{key}", value)
    counts = own.load()
    counts.explain(mode="formatted")
    print("words:", counts.selectExpr("cast(key as string) as word").distinct().count())
    address = spark.sparkContext.uiWebUrl or ""
    for page in PAGES:
        with urllib.request.urlopen(address + page.format(id=spark.sparkContext.applicationId)) as answer:
            print(f"== {page}", answer.read().decode())
    for path in (folder / "local").rglob("*"):
        if path.is_file():
            (folder / "spilled").mkdir(exist_ok=True)
            (folder / "spilled" / path.name).write_bytes(path.read_bytes())
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
