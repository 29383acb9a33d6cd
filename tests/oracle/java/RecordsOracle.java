import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

/** Answers one line for each line: `read HEX` tells the batches, `write CODEC RECORD...` gives the bytes. */
public class RecordsOracle {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            try {
                System.out.println(words[0].equals("read") ? read(words[1]) : write(words));
            } catch (Exception e) {
                System.out.println("!" + e);
            }
        }
    }

    private static String read(String hex) {
        StringBuilder out = new StringBuilder();
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(hex)));
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            out.append("batch ").append(batch.baseOffset()).append(',').append(batch.lastOffset()).append(',')
                .append(batch.compressionType().name).append(',').append(batch.producerId()).append(',')
                .append(batch.producerEpoch()).append(',').append(batch.baseSequence()).append(',')
                .append(batch.isTransactional()).append(',').append(batch.isControlBatch()).append(',')
                .append(batch.maxTimestamp()).append(',').append(batch.countOrNull()).append(',')
                .append(batch.deleteHorizonMs().orElse(-1L)).append(' ');
            for (Record record : batch) {
                out.append(record.offset()).append(',').append(record.timestamp()).append(',')
                    .append(hex(record.key())).append(',').append(hex(record.value()));
                for (Header header : record.headers()) {
                    byte[] value = header.value();
                    out.append(',').append(HEX.formatHex(header.key().getBytes(StandardCharsets.UTF_8)))
                        .append('=').append(value == null ? "-" : HEX.formatHex(value));
                }
                out.append(' ');
            }
        }
        return out.toString().trim();
    }

    private static String write(String[] words) {
        Compression compression = Compression.of(CompressionType.forName(words[1])).build();
        ByteBuffer buffer = ByteBuffer.allocate(1024);
        MemoryRecordsBuilder builder = MemoryRecords.builder(buffer, RecordBatch.CURRENT_MAGIC_VALUE, compression,
            TimestampType.CREATE_TIME, 0L, -1L, 7L, (short) 2, 11, false, 5);
        for (int i = 2; i < words.length; i++) {
            String[] parts = words[i].split(",", -1);
            Header[] headers = new Header[parts.length - 4];
            for (int h = 4; h < parts.length; h++) {
                String[] pair = parts[h].split("=", 2);
                String name = new String(HEX.parseHex(pair[0]), StandardCharsets.UTF_8);
                headers[h - 4] = new RecordHeader(name, bytes(pair[1]));
            }
            builder.appendWithOffset(Long.parseLong(parts[0]), Long.parseLong(parts[1]), bytes(parts[2]), bytes(parts[3]),
                headers);
        }
        MemoryRecords records = builder.build();
        byte[] raw = new byte[records.sizeInBytes()];
        records.buffer().duplicate().get(raw);
        return HEX.formatHex(raw);
    }

    private static byte[] bytes(String word) {
        return word.equals("-") ? null : HEX.parseHex(word);
    }

    private static String hex(ByteBuffer buffer) {
        if (buffer == null)
            return "-";
        byte[] raw = new byte[buffer.remaining()];
        buffer.duplicate().get(raw);
        return HEX.formatHex(raw);
    }
}
