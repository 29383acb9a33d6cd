import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Optional;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogSegmentMetadataSnapshot;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteState;

/** Writes a segment of `__remote_log_metadata` to the path that is its argument: every type of record in every state,
 * serialized by Kafka's own class, a batch for each type. */
public class RemoteMetadataOracle {
    private static final RemoteLogMetadataSerde SERDE = new RemoteLogMetadataSerde();
    private static final TopicIdPartition PARTITION =
        new TopicIdPartition(new Uuid(0x1122334455667788L, -2L), new TopicPartition("größe.of-things", 7));

    public static void main(String[] args) throws Exception {
        List<RemoteLogMetadata> segments = new java.util.ArrayList<>();
        List<RemoteLogMetadata> updates = new java.util.ArrayList<>();
        List<RemoteLogMetadata> snapshots = new java.util.ArrayList<>();
        List<RemoteLogMetadata> deletions = new java.util.ArrayList<>();
        for (RemoteLogSegmentState state : RemoteLogSegmentState.values()) {
            RemoteLogSegmentId id = new RemoteLogSegmentId(PARTITION, new Uuid(-1L - state.id(), state.id()));
            boolean odd = state.id() % 2 == 1;
            Optional<CustomMetadata> custom = odd ? Optional.of(new CustomMetadata(new byte[state.id() * 100])) : Optional.empty();
            Map<Integer, Long> epochs = odd ? Map.of(12, 900L, 3, 5L, 7, Long.MAX_VALUE - 1) : Map.of(0, 0L);
            RemoteLogSegmentMetadata segment = new RemoteLogSegmentMetadata(id, state.id(), Long.MAX_VALUE - state.id(),
                odd ? -1L : 1_700_000_000_000L, 3, 1_700_000_000_001L, Integer.MAX_VALUE, custom, state, epochs, odd);
            segments.add(segment);
            snapshots.add(RemoteLogSegmentMetadataSnapshot.create(segment));
            updates.add(new RemoteLogSegmentMetadataUpdate(id, -5L, custom, state, -1));
        }
        updates.add(new RemoteLogSegmentMetadataUpdate(new RemoteLogSegmentId(PARTITION, Uuid.ZERO_UUID), 0L,
            Optional.of(new CustomMetadata(new byte[0])), RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 0));
        for (RemotePartitionDeleteState state : RemotePartitionDeleteState.values())
            deletions.add(new RemotePartitionDeleteMetadata(PARTITION, state, 1_700_000_000_002L, state.id()));

        ByteBuffer log = ByteBuffer.allocate(1 << 16);
        long offset = 0;
        for (List<RemoteLogMetadata> batch : List.of(segments, updates, deletions, snapshots)) {
            write(log, offset, batch);
            offset += batch.size();
        }
        byte[] raw = new byte[log.flip().remaining()];
        log.get(raw);
        Files.write(Path.of(args[0]), raw);
    }

    private static void write(ByteBuffer log, long offset, List<RemoteLogMetadata> told) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 14), RecordBatch.CURRENT_MAGIC_VALUE,
            Compression.of(offset == 0 ? CompressionType.GZIP : CompressionType.NONE).build(), TimestampType.CREATE_TIME, offset);
        for (RemoteLogMetadata each : told)
            builder.append(1_700_000_000_003L, null, SERDE.serialize(each));
        log.put(builder.build().buffer());
    }
}
