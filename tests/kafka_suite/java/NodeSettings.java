package ottla.kafkasuite;

import java.nio.file.Path;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

import kafka.server.KafkaConfig;

import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.JaasUtils;
import org.apache.kafka.common.test.api.ClusterConfig;

/** The settings of a node: those of the test, and those that Kafka's own test kit adds to them. */
final class NodeSettings {
    private NodeSettings() {
    }

    static Map<String, String> of(
        ClusterConfig config,
        int id,
        Path directory,
        Map<Integer, Integer> clientPorts,
        Map<Integer, Integer> controllerPorts
    ) {
        boolean broker = clientPorts.containsKey(id);
        boolean controller = controllerPorts.containsKey(id);
        String client = config.brokerListenerName().value();
        String control = config.controllerListenerName().value();
        Map<String, String> settings = new HashMap<>(config.serverProperties());
        settings.put("node.id", String.valueOf(id));
        settings.put("process.roles", broker && controller ? "broker,controller" : broker ? "broker" : "controller");
        settings.put("metadata.log.dir", directory.resolve("metadata-" + id).toString());
        settings.put("log.dirs", broker ? dataDirectories(config, id, directory) : settings.get("metadata.log.dir"));
        if (broker) {
            // A broker keeps its copy of the metadata in its first directory, as Kafka's test kit does.
            settings.put("metadata.log.dir", settings.get("log.dirs").split(",")[0]);
        }
        settings.putIfAbsent("listener.security.protocol.map",
            client + ":" + config.brokerSecurityProtocol().name + ","
                + control + ":" + config.controllerSecurityProtocol().name);
        String clientListener = client + "://localhost:" + clientPorts.get(id);
        String controlListener = control + "://localhost:" + controllerPorts.get(id);
        String all = broker && controller ? clientListener + "," + controlListener : broker ? clientListener : controlListener;
        settings.putIfAbsent("listeners", all);
        // Without it Ottla answers with the address that the client used; Kafka's tests compare host names.
        settings.putIfAbsent("advertised.listeners", all);
        settings.putIfAbsent("inter.broker.listener.name", client);
        settings.putIfAbsent("controller.listener.names", control);
        settings.put("controller.quorum.voters", controllerPorts.entrySet().stream()
            .map(voter -> voter.getKey() + "@localhost:" + voter.getValue()).collect(Collectors.joining(",")));
        settings.putIfAbsent("log.cleaner.dedupe.buffer.size", "2097152");
        // Ottla's default adapts to the group; Kafka's tests compare Kafka's.
        for (String kind : new String[] {"consumer", "share", "streams"}) {
            settings.putIfAbsent("group." + kind + ".heartbeat.interval.ms", "5000");
        }
        // Many tests choose a persister of share groups that keeps nothing; Ottla has one, which needs its topic.
        settings.putIfAbsent("share.coordinator.state.topic.replication.factor", "1");
        settings.putIfAbsent("share.coordinator.state.topic.min.isr", "1");
        settings.putIfAbsent("share.coordinator.state.topic.num.partitions", "1");
        addLogin(settings, config, client, control);
        if (broker) {
            settings.remove("controller.quorum.auto.join.enable");
        }
        settings.putAll(config.perServerOverrideProperties().getOrDefault(id, Map.of()));
        settings.putIfAbsent("unstable.feature.versions.enable", "true");
        settings.putIfAbsent("unstable.api.versions.enable", "true");
        // Kafka ignores keys that it does not know; Ottla refuses them.
        settings.keySet().removeIf(key -> !known(key));
        return settings;
    }

    private static boolean known(String key) {
        return KafkaConfig.configNames().contains(key) || key.startsWith("listener.name.")
            || key.equals("super.users") || key.equals("allow.everyone.if.no.acl.found");
    }

    private static String dataDirectories(ClusterConfig config, int id, Path directory) {
        return IntStream.range(0, config.numDisksPerBroker())
            .mapToObj(disk -> directory.resolve("broker-" + id + "-data" + disk).toString())
            .collect(Collectors.joining(","));
    }

    private static void addLogin(Map<String, String> settings, ClusterConfig config, String client, String control) {
        boolean clients = config.brokerSecurityProtocol() == SecurityProtocol.SASL_PLAINTEXT;
        boolean controllers = config.controllerSecurityProtocol() == SecurityProtocol.SASL_PLAINTEXT;
        if (!clients && !controllers) {
            return;
        }
        settings.putIfAbsent("sasl.enabled.mechanisms", "PLAIN");
        settings.putIfAbsent("sasl.mechanism.inter.broker.protocol", "PLAIN");
        settings.putIfAbsent("sasl.mechanism.controller.protocol", "PLAIN");
        settings.putIfAbsent("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer");
        settings.putIfAbsent("allow.everyone.if.no.acl.found", "false");
        // Nodes that connect to each other without a login have to be super users, too.
        String nodes = clients && controllers ? "" : ";User:ANONYMOUS";
        settings.putIfAbsent("super.users", "User:" + JaasUtils.KAFKA_PLAIN_ADMIN + nodes);
        for (String listener : new String[] {client, control}) {
            settings.putIfAbsent(
                "listener.name." + listener.toLowerCase(Locale.ROOT) + ".plain.sasl.jaas.config",
                OttlaCluster.plainLogin());
        }
    }
}
