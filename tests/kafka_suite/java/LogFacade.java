package ottla.kafkasuite;

import java.io.File;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;

import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.server.ReplicaManager;

import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;

import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** What Kafka's tests ask of a broker's replicas, found in its directories and from what it answers. */
final class LogFacade {
    private final OttlaCluster cluster;
    private final OttlaNode node;

    LogFacade(OttlaCluster cluster, OttlaNode node) {
        this.cluster = cluster;
        this.node = node;
    }

    LogManager logs() {
        return new Facade()
            .value("liveLogDirs", CollectionConverters.asScala(directories()).toSeq())
            .answer("getLog", arguments -> log((TopicPartition) arguments[0]))
            .answer("getLog$default$2", arguments -> false)
            .answer("initialDefaultConfig", arguments -> new LogConfig(Map.of(
                "min.insync.replicas", brokerConfig("min.insync.replicas"))))
            .answer("producerStateManagerConfig", arguments -> new ProducerStateManagerConfig(
                Integer.parseInt(brokerConfig("producer.id.expiration.ms")), true))
            .of(LogManager.class);
    }

    ReplicaManager replicas(MetadataCache metadata) {
        return new Facade()
            .value("metadataCache", metadata)
            .answer("onlinePartition", arguments -> partition((TopicPartition) arguments[0]))
            .answer("localLog", arguments -> log((TopicPartition) arguments[0]))
            .of(ReplicaManager.class);
    }

    private List<File> directories() {
        return Arrays.stream(node.settings.get("log.dirs").split(",")).map(File::new).toList();
    }

    /** A replica is there if the broker says so, or as long as it has a directory. */
    private boolean there(TopicPartition place) {
        return directories().stream().anyMatch(directory -> new File(directory, place.toString()).exists())
            || hosted(place).isPresent();
    }

    private Optional<TopicPartitionInfo> hosted(TopicPartition place) {
        if (!node.running()) {
            return Optional.empty();
        }
        return BrokerFacade.partitions(cluster, node, place.topic())
            .flatMap(all -> all.stream().filter(one -> one.partition() == place.partition()).findFirst())
            .filter(one -> one.replicas().stream().anyMatch(replica -> replica.id() == node.id));
    }

    private Option<UnifiedLog> log(TopicPartition place) {
        if (!there(place)) {
            return Option.empty();
        }
        return Option.apply(new Facade()
            .answer("highWatermark", arguments -> BrokerFacade.ask(cluster, node, admin ->
                admin.listOffsets(Map.of(place, OffsetSpec.latest())).partitionResult(place).get().offset()))
            .of(UnifiedLog.class));
    }

    private Option<Partition> partition(TopicPartition place) {
        if (!there(place)) {
            return Option.empty();
        }
        return Option.apply(new Facade()
            .answer("leaderIdIfLocal", arguments -> hosted(place)
                .filter(one -> one.leader() != null && one.leader().id() == node.id)
                .map(one -> Option.apply((Object) node.id))
                .orElse(Option.empty()))
            .of(Partition.class));
    }

    private String brokerConfig(String key) {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.BROKER, String.valueOf(node.id));
        return BrokerFacade.ask(cluster, node, admin ->
            admin.describeConfigs(List.of(resource)).all().get().get(resource).get(key).value());
    }
}
