package org.apache.kafka.connect.util.clusters;

import java.net.URI;
import java.util.Map;
import java.util.Objects;

import ottla.kafkasuite.OttlaWorker;

/**
 * Stands before Kafka's class of the same name on the class path, so that Kafka's EmbeddedConnectCluster runs
 * `ottla connect` processes instead of workers inside this JVM.
 */
public class WorkerHandle {
    private final String name;
    private final OttlaWorker worker;

    protected WorkerHandle(String name, OttlaWorker worker) {
        this.name = name;
        this.worker = worker;
    }

    public static WorkerHandle start(String name, Map<String, String> settings) {
        return new WorkerHandle(name, OttlaWorker.start(name, settings));
    }

    public void stop() {
        worker.stop();
    }

    public URI url() {
        return worker.url();
    }

    public URI adminUrl() {
        return worker.url();
    }

    /** Kafka shortens the time of requests that are meant to block. A process keeps its own. */
    public void requestTimeout(long timeoutMs) {
    }

    public void resetRequestTimeout() {
    }

    @Override
    public String toString() {
        return name + "@" + worker.url();
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof WorkerHandle handle && handle.name.equals(name) && handle.worker == worker;
    }

    @Override
    public int hashCode() {
        return Objects.hash(name, worker);
    }
}
