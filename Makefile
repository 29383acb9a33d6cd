# Everything a newcomer needs: `make run` and `make test` set themselves up.
PYTHON ?= $(shell sh scripts/python.sh)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
PYSPARK := $(VENV)/.ready-pyspark
SPARK  := $(VENV)/.ready-spark
DOCS   := $(VENV)/.ready-docs
KAFKA  := $(VENV)/.ready-kafka
KERBEROS := $(VENV)/.ready-kerberos
# pip with a progress bar for the 450 MB of Spark, and little else to read.
INSTALL := $(BIN)/python scripts/install.py
# Each test process would compile everything again where the environment forbids to keep what was compiled.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
# One more than the cores of a small machine: tests also wait, for servers that start, elections and timeouts.
WORKERS ?= 3
# Under another name, so that `make -n run` shows the demo and does not start it.
AGAIN  := $(MAKE)

.DEFAULT_GOAL := help
.PHONY: help setup setup-spark run run-broker run-cluster test test-fast test-faults spark-kills test-dstream-faults test-connect-faults test-mirror-faults test-mirror-clusters test-connect-suite test-kafka-suite test-avro-pairs test-confluent-suite test-dashboards pictures sim lint format docs docs-serve chaos exactly-once fuzz drips fault-report mutations upgrade soak bench lock clean

help:  ## what this Makefile can do
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP)  ## make .venv with the `ottla` command and the tools to develop it

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Ottla needs Python 3.11 or newer; set PYTHON=/path/to/it")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) --require-hashes -r requirements/dev.txt
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q src
	@touch $@

setup-spark: $(SPARK)  ## and with Spark, its Kafka connector, and Java where there is none

$(PYSPARK): requirements/spark.txt $(STAMP)
	@$(INSTALL) --require-hashes -r requirements/spark.txt
	@touch $@

$(SPARK): $(PYSPARK)
	$(BIN)/ottla spark doctor
	@echo "Making an archive of Spark's classes, about half a minute" && $(BIN)/ottla spark archive
	@touch $@

# Apache Kafka, which the tests compare Ottla with.
$(KAFKA): $(STAMP)
	@$(BIN)/python -m ottla.testing.maven
	@touch $@

run: setup  ## see all of it: a broker on localhost:9092, records, pipelines on Spark; data under ./ottla-data
	@exec $(BIN)/ottla demo --prepare "$(AGAIN) --silent $(PYSPARK)"

run-broker: setup  ## start a broker alone on localhost:9092, data under ./ottla-data
	@exec $(BIN)/ottla start

run-cluster: setup  ## start three brokers on localhost:9092 to 9094, data under ./ottla-cluster
	@exec $(BIN)/ottla start --brokers 3 --data ottla-cluster

# Kerberos, where the headers are that its library is built with: the tests then log in with real tickets.
$(KERBEROS): requirements/kerberos.txt $(STAMP)
	@if command -v krb5-config >/dev/null; then $(INSTALL) --require-hashes -r requirements/kerberos.txt || echo "The tests of Kerberos are skipped"; fi
	@touch $@

test: setup-spark $(KAFKA) $(KERBEROS)  ## all tests
	$(PYTEST) -n $(WORKERS) --dist loadfile --junitxml=build/tests.xml --durations=30 --durations-min=10

test-fast: setup-spark  ## the tests that take under two minutes together
	OTTLA_TEST_FAST=1 $(PYTEST) -n 2 --dist loadfile -m "not slow and not java"

test-faults: setup-spark  ## exactly once, the long form: 500,000 records, 20 processes killed, on Ottla and Apache Kafka
	OTTLA_FAULT_RECORDS=500000 OTTLA_FAULT_KILLS=20 $(BIN)/python -m pytest tests/spark/test_pipeline_faults.py

spark-kills: setup-spark  ## kills of Spark's processes with exact output, counted for this build until it has so many: make spark-kills [KILLS=100]
	PYTHONPATH=tests $(BIN)/python -m spark.counting $(if $(KILLS),--kills $(KILLS)) $(if $(ONLY),--only $(ONLY))

test-dstream-faults: setup-spark  ## DStreams whose executors and driver are killed, the long form: make test-dstream-faults [KILLS=10]
	OTTLA_DSTREAM_KILLS=$(or $(KILLS),10) $(BIN)/python -m pytest -s tests/spark/test_pipeline_dstream_recovery.py

test-kafka-suite: setup $(KAFKA)  ## Apache Kafka's own cluster tests on Ottla, about an hour: make test-kafka-suite [ONLY=OffsetFetch] [CONTINUE=1] [JOBS=2]
	PYTHONPATH=tests nice $(BIN)/python -m kafka_suite.run $(if $(CONTINUE),--continue) --jobs $(or $(JOBS),1) $(if $(ONLY),--only "$(ONLY)",--at-least 300)

test-connect-suite: setup $(KAFKA)  ## Apache Kafka's own tests of Connect on Ottla: make test-connect-suite [ONLY=Offsets]
	PYTHONPATH=tests nice $(BIN)/python -m kafka_suite.connect $(if $(ONLY),--only "$(ONLY)")

pictures: setup  ## every page of the console in both themes and two widths, as build/pictures/index.html
	$(BIN)/python scripts/pictures.py

test-dashboards: setup  ## every expression of other people's dashboards: make test-dashboards DASHBOARDS=DIR (folders strimzi, reporter, confluent, exporter)
	OTTLA_DASHBOARDS=$(abspath $(DASHBOARDS)) $(BIN)/python -m pytest -s tests/integration/test_metrics_dashboards.py

test-avro-pairs: setup  ## verdicts and texts of Apache Avro on random schemas, the long form: make test-avro-pairs [PAIRS=10000] [SEEDS=3]
	OTTLA_AVRO_PAIRS=$(or $(PAIRS),10000) OTTLA_AVRO_SEEDS=$(or $(SEEDS),3) $(BIN)/python -m pytest tests/oracle/test_registry_avro_java.py

test-confluent-suite: setup  ## confluent-kafka's own tests of registries and serializers: make test-confluent-suite CHECKOUT=DIR [ONLY=avro_serdes]
	PYTHONPATH=tests nice $(BIN)/python -m registry_suite.run $(CHECKOUT) $(if $(ONLY),--only "$(ONLY)")

test-connect-faults: setup-spark $(KAFKA)  ## Connect's kills, the long form, on Ottla and Apache Kafka: make test-connect-faults [KILLS=20]
	OTTLA_CONNECT_KILLS=$(or $(KILLS),20) $(BIN)/python -m pytest tests/chaos/test_connect_kills.py tests/chaos/test_connect_database_kills.py tests/spark/test_connect_resident_cluster.py tests/oracle/test_connect_rest_java.py tests/oracle/test_changes_debezium.py -k "killed or lost or moves"

test-mirror-faults: setup-spark  ## Mirror, the long form: 20 kills of driver, executors, workers and brokers in a copy of 5 GB
	OTTLA_MIRROR_GB=5 OTTLA_MIRROR_KILLS=20 $(BIN)/python -m pytest -s tests/spark/test_mirror_faults.py

test-mirror-clusters: setup $(KAFKA)  ## Mirror between clusters of three, Apache Kafka and Ottla, both ways, and from Apache Kafka 3.3 and 2.8
	OTTLA_MIRROR_CLUSTERS=1 $(BIN)/python -m pytest tests/oracle/test_mirror_clusters_java.py tests/oracle/test_mirror_old_java.py

sim: setup  ## whole clusters in one process under faults: make sim [SEEDS=500] [SEED=1] [CONTINUE=1]
	$(BIN)/python -m ottla.testing.sim --seed $(or $(SEED),1) --seeds $(or $(SEEDS),200) $(if $(CONTINUE),--continue) $(if $(JOBS),--jobs $(JOBS))

lint: setup-spark  ## style, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup  ## put the code into the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(DOCS)  ## build the documentation site into build/site; a warning fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

docs-serve: $(DOCS)  ## serve the documentation on localhost:8000 and rebuild it on each change
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --strict

$(DOCS): requirements/docs.txt $(STAMP)
	@$(INSTALL) --require-hashes -r requirements/docs.txt
	@touch $@

chaos: setup  ## faults on three real nodes, with a checker: make chaos [MINUTES=60] [FAULTS=kill,pause] [CONTINUE=1]
	$(BIN)/python -m ottla.testing.chaos $(if $(MINUTES),--minutes $(MINUTES)) $(if $(FAULTS),--faults $(FAULTS)) $(if $(CONTINUE),--continue --kills $(or $(KILLS),1000) --pauses $(or $(PAUSES),500) --partitions $(or $(PARTITIONS),500))

upgrade: setup  ## rolling restarts to an earlier commit and back under load: make upgrade [FROM=870c4b5] [CYCLES=2]
	@rm -rf build/earlier && mkdir -p build/earlier && git archive $(or $(FROM),870c4b5) src | tar -x -C build/earlier
	$(BIN)/python -m ottla.testing.chaos --minutes 30 --cycles $(or $(CYCLES),2) --mixed 0 --faults upgrade --old-source build/earlier/src

soak: setup-spark  ## the chaos mix for hours with every part of the product, and a report with charts: make soak [HOURS=2]
	$(BIN)/python -m ottla.testing.soak --hours $(or $(HOURS),2) $(if $(FAULTS),--faults $(FAULTS))

exactly-once: setup  ## a million records copied in transactions on three brokers, 50 kills of them and 50 of the job
	PYTHONPATH=tests $(BIN)/python -m chaos.exactly_once

fuzz: setup  ## hostile input to everything that reads bytes, and to a running broker: make fuzz [COUNT=2000000] [CONTINUE=1]
	PYTHONPATH=tests $(BIN)/python -m fuzz.run $(if $(COUNT),--count $(COUNT)) $(if $(CONTINUE),--continue) $(if $(JOBS),--jobs $(JOBS))

drips: setup  ## p99 of good clients beside slow connections, counted for this build: make drips [CONNECTIONS=5000]
	PYTHONPATH=tests $(BIN)/python -m fuzz.drips $(if $(CONNECTIONS),--connections $(CONNECTIONS))

fault-report: setup  ## what the long runs with CONTINUE=1 have counted for this build: make fault-report [ALL=1]
	@$(BIN)/python -m ottla.testing.tally $(if $(ALL),--all)

mutations: setup-spark  ## break one promise after the other in a copy of the source; the tests must notice: make mutations [ONLY=vote] [CONTINUE=1]
	PYTHONPATH=tests $(BIN)/python -m mutations.run $(if $(ONLY),--only "$(ONLY)") $(if $(CONTINUE),--continue) $(if $(JOBS),--jobs $(JOBS))

bench: setup-spark  ## measure beside Apache Kafka: make bench [ROWS=throughput,latency] [QUICK=1]
	$(BIN)/python -m bench $(if $(ROWS),--rows $(ROWS)) $(if $(QUICK),--quick) $(if $(ROWS)$(QUICK),,--charts docs/images)

lock: setup  ## pin the dependencies again, with hashes
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url pyproject.toml -o requirements/runtime.txt
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --extra dev pyproject.toml -o requirements/dev.txt
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --extra spark --constraint requirements/dev.txt pyproject.toml -o requirements/spark.txt
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --extra docs --constraint requirements/dev.txt pyproject.toml -o requirements/docs.txt
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --extra kerberos --constraint requirements/dev.txt pyproject.toml -o requirements/kerberos.txt

clean:  ## remove what was built, keep the data
	rm -rf $(VENV) build dist .ruff_cache .mypy_cache .hypothesis
