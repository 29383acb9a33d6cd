package ottla.kafkasuite;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;

import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaConfig;
import kafka.server.SharedServer;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;

/** What Kafka's tests ask of a broker or controller object and that can be found out from outside the process. */
final class BrokerFacade {
    private BrokerFacade() {
    }

    static BrokerServer broker(OttlaCluster cluster, OttlaNode node) {
        KafkaConfig config = config(node);
        MetadataLoader loader = new Facade()
            .answer("lastAppliedOffset", arguments -> endOffset(cluster, node.id) - 1)
            .of(MetadataLoader.class);
        SharedServer shared = new Facade().value("loader", loader).of(SharedServer.class);
        KRaftMetadataCache metadata = metadataCache(cluster, node);
        LogFacade logs = new LogFacade(cluster, node);
        return new Facade()
            .value("config", config)
            .value("clusterId", cluster.clusterId())
            .value("sharedServer", shared)
            .value("groupCoordinator", new Facade()
                .answer("groupMetadataTopicConfigs", arguments -> offsetsTopicConfigs(config))
                .of(GroupCoordinator.class))
            .value("metadataCache", metadata)
            .value("logManager", logs.logs())
            .value("replicaManager", logs.replicas(metadata))
            .value("socketServer", sockets(config, cluster.clientPort(node.id)))
            .answer("boundPort", arguments -> cluster.clientPort(node.id))
            .answer("brokerState", arguments -> node.running() ? BrokerState.RUNNING
                : node.stopped() ? BrokerState.SHUTTING_DOWN : BrokerState.NOT_RUNNING)
            .answer("isShutdown", arguments -> node.stopped())
            .answer("shutdown", arguments -> {
                cluster.shutdownBroker(node.id);
                return null;
            })
            .answer("startup", arguments -> {
                cluster.startBroker(node.id);
                return null;
            })
            .answer("awaitShutdown", arguments -> {
                Waiting.until("node " + node.id + " has ended", 60_000, () -> !node.running());
                return null;
            })
            .of(BrokerServer.class);
    }

    static ControllerServer controller(OttlaCluster cluster, OttlaNode node) {
        Controller decisions = new Facade()
            .answer("findAllTopicIds", arguments -> CompletableFuture.completedFuture(topicIds(cluster)))
            .answer("isActive", arguments -> quorum(cluster).leaderId() == node.id)
            .of(Controller.class);
        RaftLog log = new Facade()
            .answer("endOffset", arguments -> new LogOffsetMetadata(endOffset(cluster, node.id)))
            .of(RaftLog.class);
        KafkaRaftManager<?> raft = new Facade()
            .value("raftLog", log)
            .value("replicatedLog", log)
            .of(KafkaRaftManager.class);
        return new Facade()
            .value("config", config(node))
            .value("clusterId", cluster.clusterId())
            .value("controller", decisions)
            .value("raftManager", raft)
            .value("socketServer", sockets(config(node), cluster.controllerPort(node.id)))
            .of(ControllerServer.class);
    }

    /** The configs with which a broker creates the offsets topic: tests create it with them. */
    private static Properties offsetsTopicConfigs(KafkaConfig config) {
        Properties configs = new Properties();
        configs.put("cleanup.policy", "compact");
        configs.put("compression.type", "producer");
        configs.put("segment.bytes", String.valueOf(config.getInt("offsets.topic.segment.bytes")));
        return configs;
    }

    private static KafkaConfig config(OttlaNode node) {
        Properties properties = new Properties();
        properties.putAll(node.settings);
        return new KafkaConfig(properties, false);
    }

    private static SocketServer sockets(KafkaConfig config, int port) {
        return new Facade().value("boundPort", port).value("config", config).of(SocketServer.class);
    }

    private static KRaftMetadataCache metadataCache(OttlaCluster cluster, OttlaNode node) {
        return new Facade()
            .answer("numPartitions", arguments ->
                partitions(cluster, node, (String) arguments[0]).map(List::size))
            .answer("contains", arguments ->
                arguments[0] instanceof String name && partitions(cluster, node, name).isPresent())
            .answer("getLeaderAndIsr", arguments -> partitions(cluster, node, (String) arguments[0])
                .flatMap(all -> all.stream().filter(one -> one.partition() == (int) arguments[1]).findFirst())
                .map(one -> new LeaderAndIsr(
                    one.leader() == null ? LeaderAndIsr.NO_LEADER : one.leader().id(),
                    one.isr().stream().map(Node::id).toList())))
            .answer("getTopicId", arguments -> topicIds(cluster).getOrDefault((String) arguments[0], Uuid.ZERO_UUID))
            .answer("hasAliveBroker", arguments -> ask(cluster, node, admin ->
                admin.describeCluster().nodes().get().stream().anyMatch(other -> other.id() == (int) arguments[0])))
            .answer("getAliveBrokerNodes", arguments -> ask(cluster, node, admin ->
                List.copyOf(admin.describeCluster().nodes().get())))
            .of(KRaftMetadataCache.class);
    }

    static Optional<List<TopicPartitionInfo>> partitions(OttlaCluster cluster, OttlaNode node, String topic) {
        return ask(cluster, node, admin -> {
            if (!admin.listTopics(new org.apache.kafka.clients.admin.ListTopicsOptions().listInternal(true))
                .names().get().contains(topic)) {
                return Optional.empty();
            }
            return Optional.of(
                admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions());
        });
    }

    private static Map<String, Uuid> topicIds(OttlaCluster cluster) throws Exception {
        try (Admin admin = cluster.admin()) {
            Map<String, Uuid> ids = new HashMap<>();
            admin.listTopics(new org.apache.kafka.clients.admin.ListTopicsOptions().listInternal(true)).listings().get()
                .forEach(topic -> ids.put(topic.name(), topic.topicId()));
            return ids;
        }
    }

    private static QuorumInfo quorum(OttlaCluster cluster) throws Exception {
        try (Admin admin = cluster.admin()) {
            return admin.describeMetadataQuorum().quorumInfo().get();
        }
    }

    private static long endOffset(OttlaCluster cluster, int id) throws Exception {
        QuorumInfo quorum = quorum(cluster);
        for (List<QuorumInfo.ReplicaState> replicas : List.of(quorum.voters(), quorum.observers())) {
            for (QuorumInfo.ReplicaState replica : replicas) {
                if (replica.replicaId() == id) {
                    return replica.logEndOffset();
                }
            }
        }
        return 0;
    }

    interface Asked<T> {
        T of(Admin admin) throws Exception;
    }

    static <T> T ask(OttlaCluster cluster, OttlaNode node, Asked<T> question) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", "localhost:" + cluster.clientPort(node.id));
        try (Admin admin = cluster.admin(settings)) {
            return question.of(admin);
        } catch (Exception error) {
            throw new IllegalStateException("Node " + node.id + " does not answer", error);
        }
    }
}
