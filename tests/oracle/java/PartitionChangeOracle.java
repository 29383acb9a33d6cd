// Asks Kafka's PartitionChangeBuilder what it makes of a partition: one question per line, one answer per line.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.common.metadata.PartitionChangeRecordJsonConverter;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.MetadataVersion;

public class PartitionChangeOracle {
    private static String[] words;
    private static int at;

    /** "1,2,3", "" for none, "-" for what is not given. */
    private static List<Integer> numbers() {
        String word = words[at++];
        if (word.equals("-")) return null;
        List<Integer> found = new ArrayList<>();
        for (String number : word.split(",")) {
            if (!number.isEmpty()) found.add(Integer.parseInt(number));
        }
        return found;
    }

    private static int[] array(List<Integer> numbers) {
        return numbers.stream().mapToInt(Integer::intValue).toArray();
    }

    private static int number() {
        return Integer.parseInt(words[at++]);
    }

    private static String answer() {
        List<Integer> replicas = numbers();
        List<Integer> isr = numbers();
        List<Integer> removing = numbers();
        List<Integer> adding = numbers();
        List<Integer> elr = numbers();
        List<Integer> lastKnownElr = numbers();
        int leader = number();
        int recovery = number();
        Uuid[] directories = replicas.stream().map(id -> new Uuid(0, 1000 + id)).toArray(Uuid[]::new);
        PartitionRegistration partition = new PartitionRegistration.Builder().
            setReplicas(array(replicas)).setDirectories(directories).setIsr(array(isr)).
            setRemovingReplicas(array(removing)).setAddingReplicas(array(adding)).
            setElr(array(elr)).setLastKnownElr(array(lastKnownElr)).setLeader(leader).
            setLeaderRecoveryState(LeaderRecoveryState.of((byte) recovery)).
            setLeaderEpoch(5).setPartitionEpoch(7).build();
        Set<Integer> acceptable = new HashSet<>(numbers());
        MetadataVersion version = MetadataVersion.fromFeatureLevel((short) number());
        int minIsr = number();
        boolean elrEnabled = number() == 1;
        PartitionChangeBuilder builder = new PartitionChangeBuilder(partition, new Uuid(0, 77), 0,
            acceptable::contains, version, minIsr, elrEnabled);
        builder.setDefaultDirProvider(id -> new Uuid(0, 2000 + id));
        builder.setElection(PartitionChangeBuilder.Election.valueOf(words[at++]));
        List<Integer> given = numbers();
        if (given != null) builder.setTargetIsr(given);
        given = numbers();
        if (given != null) builder.setTargetReplicas(given);
        given = numbers();
        if (given != null) builder.setTargetRemoving(given);
        given = numbers();
        if (given != null) builder.setTargetAdding(given);
        given = numbers();
        if (given != null) builder.setUncleanShutdownReplicas(given);
        given = numbers();
        if (given != null) builder.setTargetLeaderRecoveryState(LeaderRecoveryState.of((byte) (int) given.get(0)));
        given = numbers();
        if (given != null) builder.setDirectory(given.get(0), new Uuid(0, 3000 + given.get(0)));
        return builder.build().map(made -> PartitionChangeRecordJsonConverter.write(
            (PartitionChangeRecord) made.message(), made.version()).toString()).orElse("none");
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            words = line.split(" ", -1);
            at = 0;
            System.out.println(answer());
        }
    }
}
