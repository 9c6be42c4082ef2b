// Reads small files with Apache Kafka's own classes, and says what they found in them.
// In: a line for each file, `kind <tab> its bytes in hexadecimal`. Out: a line for each, what was found or `refused (why)`.
import java.io.*;
import java.nio.file.*;
import java.util.*;
import java.util.stream.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.metadata.properties.*;
import org.apache.kafka.raft.FileQuorumStateStore;
import org.apache.kafka.storage.internals.checkpoint.*;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;

public class ReadFiles {
    static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        Path directory = Files.createTempDirectory("read-files").resolve("orders-0");
        Files.createDirectory(directory);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", -1);
            byte[] content = HEX.parseHex(parts[1]);
            String said;
            try { said = read(parts[0], content, directory); }
            catch (Exception error) { said = "refused (" + error.getClass().getSimpleName() + ")"; }
            System.out.println(said.replace("\n", "\\n").replace("\r", "\\r"));
        }
    }

    static String read(String kind, byte[] content, Path directory) throws Exception {
        if (kind.equals("id")) return Uuid.fromString(new String(content, "UTF-8")).toString();
        Path path = directory.resolve(kind);
        Files.write(path, content);
        File file = path.toFile();
        LogDirFailureChannel failures = new LogDirFailureChannel(100);
        try {
            switch (kind) {
                case "partition.metadata": return new PartitionMetadataFile(file, failures).read().topicId().toString();
                case "replication-offset-checkpoint":
                    return new OffsetCheckpointFile(file, failures).read().entrySet().stream()
                        .map(e -> e.getKey().topic() + " " + e.getKey().partition() + " " + e.getValue()).sorted()
                        .collect(Collectors.joining("; ")).strip();
                case "leader-epoch-checkpoint":
                    return new LeaderEpochCheckpointFile(file, failures).read().stream()
                        .map(e -> e.epoch + " " + e.startOffset).collect(Collectors.joining("; "));
                case "quorum-state":
                    return new FileQuorumStateStore(file).readElectionState().map(e -> "" + e.epoch()).orElse("nothing");
                case "meta.properties":
                    MetaPropertiesEnsemble found = new MetaPropertiesEnsemble.Loader().addMetadataLogDir(directory.toString()).load();
                    if (!found.errorLogDirs().isEmpty()) return "refused (unreadable)";
                    found.verify(Optional.empty(), OptionalInt.of(1), EnumSet.of(   // as Kafka does when node 1 starts
                        MetaPropertiesEnsemble.VerificationFlag.REQUIRE_AT_LEAST_ONE_VALID,
                        MetaPropertiesEnsemble.VerificationFlag.REQUIRE_METADATA_LOG_DIR));
                    MetaProperties meta = found.logDirProps().values().iterator().next();
                    return found.clusterId().get() + " " + meta.nodeId().orElse(-1) + " " + meta.directoryId().map(Uuid::toString).orElse("-");
                default: throw new IllegalArgumentException(kind);
            }
        } finally { Files.deleteIfExists(path); }
    }
}
