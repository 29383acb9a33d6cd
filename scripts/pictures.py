"""Pictures of every page and dialog of the console, in both themes at 1280 and 390 pixels, on a broker with some data.

Writes PNG files and a page that shows them side by side into build/pictures. A person looks at them before a release.
Arguments are the pages to take pictures of, instead of all.
"""

from __future__ import annotations

import html
import json
import math
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from playwright.sync_api import Page, sync_playwright

from ottla.connect.config.worker import worker_config
from ottla.connect.worker import Worker
from ottla.streams import StreamsApp, StreamsBuilder, StreamsSettings
from ottla.streams.status import write_status
from ottla.testing.ports import free_ports
from ottla.testing.process import BrokerProcess
from ottla.testing.registry import RegistryProcess

OUT = Path("build/pictures")
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-sync",
    "--no-first-run",
]
WATCHED_S = 25
WEEK_S = 7 * 86_400
SCRAPED_EACH_S = 300
PAGES = (
    "/", "/topics", "/topics/new", "/t/orders", "/t/orders/live", "/t/orders/partitions", "/t/orders/groups",
    "/t/orders/settings", "/t/orders/log", "/t/orders?q=A-17&at=oldest", "/t/orders/change", "/t/orders/produce",
    "/t/orders/0/3", "/groups", "/group?id=nightly-report", "/group/reset?id=nightly-report", "/nodes", "/nodes/1",
    "/nodes/1/settings", "/nodes/1/load", "/quorum", "/transactions", "/moves", "/access", "/t/orders/numbers",
    "/t/users/time?moment=5s&table=yes", "/compare", "/replay?id=nightly-report", "/pipelines",
    "/pipeline?id=word-count", "/quarantine", "/quarantine/orders-dlq", "/schemas", "/schema?id=orders-value",
    "/connect", "/connector?id=lines", "/nothing-is-here", "/settings", "/design", "/t/orders/schema",
    "/t/orders/access?who=alice&may=write",
)  # fmt: skip
PLANS = (
    ("/t/orders/change", "form[action$='topic.purge'] button"),
    ("/group/reset?id=nightly-report", "form[action$='group.reset'] button"),
)
"""Pages with a form, and the button that shows its plan."""
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
RULES = (
    ("alice", AclOperation.READ, AclPermissionType.ALLOW, ResourcePatternType.LITERAL, "orders"),
    ("alice", AclOperation.WRITE, AclPermissionType.ALLOW, ResourcePatternType.PREFIXED, "ord"),
    ("mallory", AclOperation.ALL, AclPermissionType.DENY, ResourcePatternType.LITERAL, "*"),
)
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


def telling() -> dict[str, str]:
    """Settings with which a broker shows its metrics, its stalls and its segments."""
    (port,) = free_ports(1)
    return {"ottla.http.listen": f"127.0.0.1:{port}", "ottla.http.debug": "true"}


def seed(bootstrap: str) -> Producer:
    """Topics, records, a transaction that is open, and a group that lags."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic("orders", 6, 1),
        NewTopic("clicks", 12, 1),
        NewTopic("users", 3, 1, config={"cleanup.policy": "compact"}),
        NewTopic("payments", 3, 1),
        NewTopic("orders-dlq", 1, 1),
    ]
    for made in admin.create_topics(topics).values():
        made.result()
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "zstd"})
    write(producer, 500)
    open_ = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "billing-7", "transaction.timeout.ms": 600_000}
    )
    open_.init_transactions()
    open_.begin_transaction()
    open_.produce("payments", json.dumps({"id": 1}))
    open_.flush()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nightly-report"})
    consumer.commit(offsets=[TopicPartition("orders", number, 0) for number in range(6)], asynchronous=False)
    consumer.close()
    return producer


def write_rules(bootstrap: str) -> None:
    bindings = [
        AclBinding(ResourceType.TOPIC, name, pattern, f"User:{user}", "*", operation, permission)
        for user, operation, permission, pattern, name in RULES
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_acls(bindings).values():
        made.result()


def write_dead_letters(producer: Producer) -> None:
    for number in range(5):
        error = (
            "java.lang.NumberFormatException"
            if number % 2
            else "org.apache.kafka.connect.errors.DataException"
        )
        headers = {
            "topic": b"orders",
            "partition": b"2",
            "offset": str(40 + number).encode(),
            "stage": b"VALUE_CONVERTER",
            "exception.class.name": error.encode(),
            "exception.message": f"the field total of record {number} is not a number".encode(),
        }
        producer.produce(
            "orders-dlq",
            json.dumps({"id": number, "total": "?"}),
            f"orders-{number}",
            headers={f"__connect.errors.{name}": value for name, value in headers.items()},
        )
    producer.flush()


def register_schemas(url: str) -> None:
    total = {"name": "total", "type": "double", "default": 0.0}
    for schema in (ORDER, {**ORDER, "fields": [*ORDER["fields"], total]}):
        body = json.dumps({"schema": json.dumps(schema)}).encode()
        request = urllib.request.Request(
            f"{url}/subjects/orders-value/versions", body, {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request).close()


def start_connector(worker: Worker, folder: Path) -> None:
    lines = folder / "lines.txt"
    lines.write_text("one line\nanother line\n")
    config = {"connector.class": "FileStreamSource", "file": str(lines), "topic": "lines", "tasks.max": "1"}
    body = json.dumps({"name": "lines", "config": config}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{worker.port}/connectors", body, {"Content-Type": "application/json"}
    )
    urllib.request.urlopen(request).close()


def write_application(folder: Path) -> None:
    """The directory of an application as `ottla streams run` leaves it; no Spark runs here."""
    builder = StreamsBuilder()
    builder.stream("orders").map_values(len).group_by_key().count(store="counts").to_stream().to("lengths")
    app = StreamsApp(builder, "word-count", StreamsSettings(state_dir=folder))
    status = {
        "application_id": "word-count",
        "pid": 1,
        "running": True,
        "batch": 7,
        "batch_ms": 210,
        "rows_per_second": 1200.5,
        "state_rows": 42,
        "lag": 17,
        "topics": {"orders": {"rows": 250, "lag": 17}},
    }
    write_status(status, app.directory)
    (app.directory / "topology.json").write_text(json.dumps(app.picture()))
    (app.directory / "plan.json").write_text(json.dumps({"format": 2, "stages": [{"counts": "key-value"}]}))


def write(producer: Producer, count: int) -> None:
    for number in range(count):
        value = json.dumps({"id": number, "total": number * 1.25, "items": [{"sku": "A-17", "quantity": 2}]})
        for topic in ("orders", "clicks", "users", "payments"):
            producer.produce(topic, value, f"{topic}-{number % 37}", headers={"trace": b"4bf92f"})
    producer.flush()


@contextmanager
def writing(producer: Producer) -> Iterator[None]:
    """Write all the time, some seconds more than others, so that charts have a shape."""
    done = threading.Event()

    def work() -> None:
        turn = 0
        while not done.wait(0.5):
            turn += 1
            write(producer, 10 + 25 * (turn % 7 in (2, 3, 5)) + turn % 5)

    writer = threading.Thread(target=work)
    writer.start()
    try:
        yield
    finally:
        done.set()
        writer.join()


@contextmanager
def prometheus(folder: Path) -> Iterator[list[str]]:
    """The option of a Prometheus that has seen a week, so that its charts are drawn; nothing without Prometheus."""
    server, tool = shutil.which("prometheus"), shutil.which("promtool")
    if server is None or tool is None:
        yield []
        return
    folder.mkdir()
    text, count = ["# TYPE kafka_server_brokertopicmetrics_messagesin counter"], 0.0
    now_s = int(time.time())
    moments = range(now_s - WEEK_S, now_s, SCRAPED_EACH_S)
    for moment_s in moments:
        by_day = 1 + math.sin((moment_s % 86400) / 86400 * 2 * math.pi)
        count += SCRAPED_EACH_S * (40 + 160 * by_day * (0.4 if moment_s // 86400 % 7 in (2, 3) else 1))
        text.append(f'kafka_server_brokertopicmetrics_messagesin_total{{topic="orders"}} {count} {moment_s}')
    text.append("# TYPE kafka_consumergroup_lag gauge")
    for number, moment_s in enumerate(moments):
        behind = 2_000 + 1_800 * math.sin(number / 90) + 900 * (number % 96 > 80)
        text.append(f'kafka_consumergroup_lag{{consumergroup="nightly-report"}} {behind:.0f} {moment_s}')
    (folder / "week.txt").write_text("\n".join([*text, "# EOF", ""]))
    words = [
        tool,
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        str(folder / "week.txt"),
        str(folder / "tsdb"),
    ]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    (folder / "prometheus.yml").write_text("{}")
    (port,) = free_ports(1)
    words = [server, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    words += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    process = subprocess.Popen(words)
    try:
        yield ["--prometheus", f"http://127.0.0.1:{port}"]
    finally:
        process.terminate()
        process.wait()


def open_dialogs(page: Page, width: int) -> Iterator[str]:
    """Open one dialog after the other; the name of each."""
    page.keyboard.press("?")
    yield "help"
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.keyboard.type("ord")
    page.wait_for_selector("#palette li")
    yield "palette"
    page.keyboard.press("Escape")
    if width >= 720:
        page.get_by_role("button", name="Mine: orders", exact=True).click()
        page.get_by_role("checkbox", name="Pick orders", exact=True).check()
        page.get_by_role("checkbox", name="Pick clicks", exact=True).check()
        yield "picked"
        page.get_by_role("button", name="Change settings").click()
        yield "several"
        page.keyboard.press("Escape")
    if width < 720:
        page.locator(".bar").get_by_role("button", name="More").click()
        yield "more"


def shoot(url: str, browser_path: str, pages: Sequence[str]) -> list[tuple[str, str]]:
    """One picture per page, theme and width; (caption, file) of each."""
    taken = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        for theme in ("light", "dark"):
            for width, height in ((1280, 800), (390, 844)):
                context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
                page = context.new_page()
                for number, path in enumerate(pages):
                    page.goto(url + path)
                    if path.endswith("/live"):
                        page.wait_for_selector("tbody tr td")
                    name = f"{number:02}-{theme}-{width}.png"
                    page.screenshot(path=OUT / name, full_page=True)
                    taken.append((f"{path} {theme} {width}", name))
                for number, (path, button) in enumerate(PLANS, len(pages)):
                    page.goto(url + path)
                    page.locator(button).first.click()
                    page.wait_for_selector("#plan")
                    name = f"{number:02}-{theme}-{width}.png"
                    page.screenshot(path=OUT / name, full_page=True)
                    taken.append((f"the plan of {path} {theme} {width}", name))
                page.goto(f"{url}/topics")
                for number, dialog in enumerate(open_dialogs(page, width), len(pages) + len(PLANS)):
                    name = f"{number:02}-{theme}-{width}.png"
                    page.screenshot(path=OUT / name)
                    taken.append((f"{dialog} {theme} {width}", name))
                context.close()
        browser.close()
    return taken


@contextmanager
def connect_worker(bootstrap: str) -> Iterator[Worker]:
    keys = {"bootstrap.servers": bootstrap, "listeners": "http://127.0.0.1:0", "client.id": "pictures"}
    strings = "org.apache.kafka.connect.storage.StringConverter"
    worker = Worker(worker_config({**keys, "key.converter": strings, "value.converter": strings}))
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()


def main() -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit("pictures need a browser: install chromium-headless-shell or chromium")
    OUT.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as name,
        BrokerProcess(Path(name) / "data", settings=AUTHORIZER | telling()) as broker,
        RegistryProcess(broker.bootstrap) as registry,
        connect_worker(broker.bootstrap) as worker,
        prometheus(Path(name) / "prometheus") as of_prometheus,
    ):
        folder = Path(name)
        producer = seed(broker.bootstrap)
        write_dead_letters(producer)
        write_rules(broker.bootstrap)
        register_schemas(registry.url)
        start_connector(worker, folder)
        write_application(folder / "applications")
        words = [sys.executable, "-m", "ottla", "console", "--bootstrap-server", broker.bootstrap]
        words += ["--registry", registry.url, "--connect", f"http://127.0.0.1:{worker.port}"]
        words += ["--applications", str(folder / "applications"), "--data", str(broker.data)]
        words += ["--audit", str(folder / "audit.jsonl"), *of_prometheus]
        console = subprocess.Popen([*words, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
        try:
            assert console.stdout is not None
            url = console.stdout.readline().split()[-1] + "/c/local"
            with writing(producer):
                time.sleep(WATCHED_S)
                taken = shoot(url, browser, sys.argv[1:] or PAGES)
        finally:
            console.terminate()
            console.wait()
    figures = "".join(
        f'<figure><figcaption>{html.escape(text)}</figcaption><img src="{name}" loading="lazy"></figure>'
        for text, name in sorted(taken, key=lambda each: each[1][:2])
    )
    style = "body{font:14px system-ui;display:flex;flex-wrap:wrap;gap:16px}figure{margin:0}img{width:420px}"
    (OUT / "index.html").write_text(f"<!doctype html><meta charset=utf-8><style>{style}</style>{figures}")
    sys.stdout.write(f"{len(taken)} pictures: {OUT / 'index.html'}\n")


if __name__ == "__main__":
    main()
