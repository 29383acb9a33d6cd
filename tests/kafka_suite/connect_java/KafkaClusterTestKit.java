package org.apache.kafka.common.test;

import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;

import kafka.server.BrokerServer;
import kafka.server.ControllerServer;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.test.api.ClusterConfig;

import ottla.kafkasuite.OttlaCluster;

/**
 * Stands before Kafka's class of the same name on the class path, so that Kafka's EmbeddedKafkaCluster gets a cluster of
 * Ottla processes instead of brokers inside this JVM.
 */
public class KafkaClusterTestKit implements AutoCloseable {
    private final OttlaCluster cluster;
    private final TestKitNodes nodes;
    private final MockFaultHandler faults = new MockFaultHandler("faults");

    /** The settings of a cluster, as EmbeddedKafkaCluster gives them. */
    public static class Builder {
        private final TestKitNodes nodes;
        private final Map<String, String> settings = new HashMap<>();

        public Builder(TestKitNodes nodes) {
            this.nodes = nodes;
        }

        public Builder setConfigProp(String key, Object value) {
            settings.put(key, String.valueOf(value));
            return this;
        }

        public KafkaClusterTestKit build() {
            // Ottla's sources write in transactions by default, Kafka's do not.
            settings.putIfAbsent("transaction.state.log.replication.factor", "1");
            settings.putIfAbsent("transaction.state.log.min.isr", "1");
            settings.putIfAbsent("offsets.topic.num.partitions", "5");
            settings.putIfAbsent("transaction.state.log.num.partitions", "5");
            return new KafkaClusterTestKit(nodes, settings);
        }
    }

    private KafkaClusterTestKit(TestKitNodes nodes, Map<String, String> settings) {
        this.nodes = nodes;
        ClusterConfig config = ClusterConfig.defaultBuilder()
            .setBrokers(nodes.brokerNodes().size())
            .setControllers(nodes.controllerNodes().size())
            .setServerProperties(settings)
            .build();
        cluster = new OttlaCluster(config, true);
    }

    public void format() {
        cluster.prepare();
    }

    public void startup() {
        cluster.start();
    }

    public void waitForReadyBrokers() {
        cluster.waitForReadyBrokers();
    }

    public String bootstrapServers() {
        return cluster.bootstrapServers();
    }

    public String bootstrapControllers() {
        return cluster.bootstrapControllers();
    }

    public Map<Integer, BrokerServer> brokers() {
        Map<Integer, BrokerServer> found = new TreeMap<>();
        cluster.brokers().forEach((id, broker) -> found.put(id, (BrokerServer) broker));
        return found;
    }

    public Map<Integer, ControllerServer> controllers() {
        return cluster.controllers();
    }

    public TestKitNodes nodes() {
        return nodes;
    }

    public Admin admin() {
        return cluster.admin();
    }

    public MockFaultHandler fatalFaultHandler() {
        return faults;
    }

    public MockFaultHandler nonFatalFaultHandler() {
        return faults;
    }

    @Override
    public void close() {
        cluster.stop();
    }
}
