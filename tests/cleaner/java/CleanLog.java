// Apache Kafka's own log, and its own cleaner, for one partition directory at a time: written, cleaned, stopped halfway,
// and looked at. In: a line of JSON for each thing to do. Out: a line for each, what came of it, or {"error": ...}.
//
//   {"do": "write", "directory", "settings", "steps": [...]}        a log, as a broker writes it
//   {"do": "clean", "directory", "settings", "now", "first_dirty", "memory", ...}    one pass of the cleaner, or several
//   {"do": "list", "directory", "settings", "now", "clean"}         opened as a broker does at its start, and all that is in it
//
// The clock is what the lines say. The package is Kafka's: some of what is needed is visible only there.
package org.apache.kafka.storage.internals.log;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.*;
import java.nio.ByteBuffer;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.Supplier;
import org.apache.kafka.common.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class CleanLog {
    static final ObjectMapper JSON = new ObjectMapper();
    static final HexFormat HEX = HexFormat.of();
    static final Clock CLOCK = new Clock();
    static final Later LATER = new Later();
    static final BrokerTopicStats STATS = new BrokerTopicStats();
    static final Throttler THROTTLER = new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", Time.SYSTEM);
    static final int EXPIRATION = 86_400_000;

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode said = JSON.createObjectNode();
            LATER.tasks.clear();
            try { perform(JSON.readTree(line), said); }
            catch (Exception | AssertionError error) {
                StringWriter trace = new StringWriter();
                error.printStackTrace(new PrintWriter(trace));
                said.put("error", error.toString()).put("trace", trace.toString());
            }
            out.println(JSON.writeValueAsString(said));
            out.flush();
        }
    }

    static void perform(JsonNode asked, ObjectNode said) throws Exception {
        CLOCK.now = asked.path("now").asLong(0);
        switch (asked.get("do").asText()) {
            case "write": write(asked, said); break;
            case "clean": clean(asked, said); break;
            case "list": list(asked, said); break;
            default: throw new IllegalArgumentException(asked.get("do").asText());
        }
    }

    // --- A log, open ---

    static LogConfig config(JsonNode asked) {
        Map<String, String> settings = new HashMap<>();
        asked.path("settings").fields().forEachRemaining(e -> settings.put(e.getKey(), e.getValue().asText()));
        return new LogConfig(settings);
    }

    static Log open(JsonNode asked, boolean clean) throws IOException {
        File directory = new File(asked.get("directory").asText());
        long start = asked.path("start").asLong(0), recovered = asked.path("recovery_point").asLong(0);
        LogConfig config = config(asked);
        LogDirFailureChannel failures = new LogDirFailureChannel(10);
        Files.createDirectories(directory.toPath());
        TopicPartition partition = UnifiedLog.parseTopicPartitionName(directory);
        LogSegments segments = new LogSegments(partition);
        LeaderEpochFileCache epochs = UnifiedLog.createLeaderEpochCache(directory, partition, failures, Optional.empty(), LATER);
        ProducerStateManager producers = new ProducerStateManager(partition, directory, 900_000,
            new ProducerStateManagerConfig(asked.path("producer_id_expiration").asInt(EXPIRATION), false), CLOCK);
        LoadedLogOffsets offsets = new LogLoader(directory, partition, config, LATER, CLOCK, failures, clean, segments, start, recovered,
            epochs, producers, new ConcurrentHashMap<>(), false).load();
        LocalLog local = new LocalLog(directory, config, segments, offsets.recoveryPoint, offsets.nextOffsetMetadata, LATER, CLOCK,
            partition, failures);
        Log log = new Log(offsets.logStartOffset, local, epochs, producers, failures);
        log.updateHighWatermark(asked.path("high_watermark").asLong(log.logEndOffset()));
        return log;
    }

    static void close(Log log) {
        log.flush(true);
        log.close();
        LATER.runAll();    // what was to be deleted later is deleted now
    }

    // A log whose cleaner may be stopped after so many files were renamed, as if the process had been killed.
    static class Log extends UnifiedLog {
        final LocalLog local;
        final ProducerStateManager producers;
        final LogDirFailureChannel failures;
        int left = -1;    // files that may still be renamed; -1: all of them
        final List<String[]> renamed = new ArrayList<>();

        Log(long start, LocalLog local, LeaderEpochFileCache epochs, ProducerStateManager producers, LogDirFailureChannel failures) throws IOException {
            super(start, local, STATS, 600_000, epochs, producers, Optional.empty(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
            this.local = local;
            this.producers = producers;
            this.failures = failures;
        }

        @Override
        public void replaceSegments(List<LogSegment> made, List<LogSegment> old) throws IOException {
            if (left < 0) { super.replaceSegments(made, old); return; }
            List<LogSegment> watchedMade = new ArrayList<>(), watchedOld = new ArrayList<>();
            for (LogSegment segment : made) watchedMade.add(new Watched(this, segment));
            for (LogSegment segment : old) watchedOld.add(new Watched(this, segment));
            List<LogSegment> gone = LocalLog.replaceSegments(local.segments(), watchedMade, watchedOld, dir(), topicPartition(), config(),
                                                             LATER, failures, "", false);
            for (LogSegment segment : gone) {
                Path snapshot = dir().toPath().resolve(LogFileUtils.filenamePrefixFromOffset(segment.baseOffset()) + ".snapshot");
                if (Files.exists(snapshot)) rename(snapshot, Path.of(snapshot + ".deleted"));
            }
        }

        void rename(Path from, Path to) throws IOException {
            if (left-- == 0) throw new Stopped();
            Files.move(from, to, StandardCopyOption.ATOMIC_MOVE);
            renamed.add(new String[] {from.getFileName().toString(), to.getFileName().toString()});
        }
    }

    static class Stopped extends RuntimeException { }

    // A segment whose files are renamed one by one, in Kafka's order; nothing else is asked of it.
    static class Watched extends LogSegment {
        final Log owner;
        final Path[] files;
        String suffix;

        Watched(Log owner, LogSegment like) {
            super(like.log(), null, null, like.txnIndex(), like.baseOffset(), 4096, 0, CLOCK);
            this.owner = owner;
            String name = like.log().file().getName();
            suffix = name.substring(name.indexOf(".log") + 4);
            Path base = owner.dir().toPath().resolve(name.substring(0, name.indexOf(".log")));
            files = new Path[] {Path.of(base + ".log"), Path.of(base + ".index"), Path.of(base + ".timeindex"), Path.of(base + ".txnindex")};
        }

        @Override public boolean hasSuffix(String asked) { return suffix.endsWith(asked); }
        @Override public int size() { return 0; }
        @Override public String toString() { return files[0] + suffix; }

        @Override public void changeFileSuffixes(String old, String changed) throws IOException {
            for (Path file : files) if (Files.exists(Path.of(file + old))) owner.rename(Path.of(file + old), Path.of(file + changed));
            suffix = changed;
        }
    }

    // --- write ---

    static void write(JsonNode asked, ObjectNode said) throws Exception {
        Log log = open(asked, true);
        for (JsonNode step : asked.get("steps")) {
            if (step.has("now")) CLOCK.now = step.get("now").asLong();
            if (step.has("roll")) log.roll();
            else if (step.has("marker")) mark(log, step);
            else append(log, step);
            log.updateHighWatermark(log.logEndOffset());
        }
        said.put("end", log.logEndOffset()).put("stable", log.lastStableOffset());
        close(log);
    }

    static void append(Log log, JsonNode step) throws IOException {
        long producer = step.path("producer").asLong(-1);
        short producerEpoch = (short) step.path("producer_epoch").asInt(-1);
        int sequence = step.path("sequence").asInt(-1), epoch = step.path("epoch").asInt(0);
        boolean asIs = step.has("offset");    // as a follower does it: offsets are given, and may leave gaps
        long base = step.path("offset").asLong(0);
        TimestampType type = step.has("append_time") ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
        MemoryRecordsBuilder batch = new MemoryRecordsBuilder(new ByteBufferOutputStream(1024), RecordBatch.MAGIC_VALUE_V2,
            Compression.of(CompressionType.forName(step.path("codec").asText("none"))).build(), type, base,
            step.path("append_time").asLong(-1), producer, producerEpoch, sequence, step.path("transactional").asBoolean(), false,
            asIs ? epoch : -1, 1 << 26);
        long next = base;
        for (JsonNode record : step.get("records")) {
            next = record.path("offset").asLong(next);
            batch.appendWithOffset(next++, record.get("timestamp").asLong(), bytes(record.get("key")), bytes(record.get("value")), headers(record));
        }
        if (asIs && step.has("last")) batch.overrideLastOffset(step.get("last").asLong());
        MemoryRecords records = batch.build();
        if (asIs) log.appendAsFollower(records, epoch);
        else log.appendAsLeader(records, epoch);
    }

    static void mark(Log log, JsonNode step) throws IOException {
        ControlRecordType type = ControlRecordType.valueOf(step.get("marker").asText().toUpperCase(Locale.ROOT));
        log.appendAsLeader(MemoryRecords.withEndTransactionMarker(CLOCK.now, step.get("producer").asLong(),
            (short) step.get("producer_epoch").asInt(), new EndTransactionMarker(type, 0)), step.path("epoch").asInt(0), AppendOrigin.COORDINATOR);
    }

    static byte[] bytes(JsonNode hex) { return hex == null || hex.isNull() ? null : HEX.parseHex(hex.asText()); }

    static Header[] headers(JsonNode record) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.path("headers")) headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        return headers.toArray(new Header[0]);
    }

    // --- clean ---

    static void clean(JsonNode asked, ObjectNode said) throws Exception {
        Log log = open(asked, asked.path("clean").asBoolean(true));
        log.left = asked.path("stop_after").asInt(-1);
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(asked.path("memory").asInt(1 << 20)), asked.path("io_buffer").asInt(1 << 16),
            asked.path("max_message").asInt(1 << 20), asked.path("load_factor").asDouble(0.9), THROTTLER, CLOCK, partition -> { });
        Optional<Long> dirty = asked.has("first_dirty") ? Optional.of(asked.get("first_dirty").asLong()) : Optional.empty();
        ArrayNode passes = said.putArray("passes");
        try {
            for (int pass = 0; pass < asked.path("passes").asInt(1); pass++) {
                LogCleanerManager.OffsetsToClean range = LogCleanerManager.cleanableOffsets(log, dirty, CLOCK.now);
                LogToClean what = new LogToClean(log, range.firstDirtyOffset(), range.firstUncleanableDirtyOffset(), false);
                ObjectNode done = passes.addObject().put("first_dirty", range.firstDirtyOffset())
                    .put("first_uncleanable", what.firstUncleanableOffset()).put("cleanable_bytes", what.cleanableBytes())
                    .put("total_bytes", what.totalBytes()).put("reset", range.forceUpdateCheckpoint());
                if (what.totalBytes() == 0 || what.cleanableBytes() == 0) { done.put("end", range.firstDirtyOffset()); break; }
                Map.Entry<Long, CleanerStats> result = cleaner.doClean(what, CLOCK.now);
                CleanerStats stats = result.getValue();
                done.put("end", result.getKey()).put("bytes_read", stats.bytesRead).put("bytes_written", stats.bytesWritten)
                    .put("map_bytes_read", stats.mapBytesRead).put("messages_read", stats.messagesRead)
                    .put("messages_written", stats.messagesWritten).put("invalid", stats.invalidMessagesRead)
                    .put("utilization", stats.bufferUtilization);
                dirty = Optional.of(result.getKey());
            }
        } catch (Stopped stopped) {    // nobody closes this log: what it left is what a killed process leaves
            said.put("stopped", true);
        }
        ArrayNode renamed = said.putArray("renamed");
        for (String[] names : log.renamed) renamed.addArray().add(names[0]).add(names[1]);
        if (!asked.has("stop_after")) close(log);
    }

    // --- list ---

    static void list(JsonNode asked, ObjectNode said) throws Exception {
        Log log = open(asked, asked.path("clean").asBoolean(true));
        said.put("start", log.logStartOffset()).put("end", log.logEndOffset()).put("stable", log.lastStableOffset());
        ArrayNode segments = said.putArray("segments");
        for (LogSegment segment : log.logSegments()) listSegment(log, segment, segments.addObject());
        ArrayNode producers = said.putArray("producers");
        new TreeMap<>(log.producers.activeProducers()).forEach((id, entry) -> producers.addObject().put("id", id)
            .put("epoch", entry.producerEpoch()).put("last_sequence", entry.lastSeq()).put("last_offset", entry.lastDataOffset())
            .put("open_since", entry.currentTxnFirstOffset().orElse(-1)));
        log.close();
        LATER.runAll();
    }

    static void listSegment(Log log, LogSegment segment, ObjectNode said) throws IOException {
        said.put("base_offset", segment.baseOffset()).put("size", segment.size());
        ArrayNode batches = said.putArray("batches");
        Set<Integer> positions = new HashSet<>();
        int position = 0;
        ByteBuffer whole = ByteBuffer.wrap(Files.readAllBytes(segment.log().file().toPath()));
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(whole).batches()) {
            batch.ensureValid();
            positions.add(position);
            listBatch((DefaultRecordBatch) batch, position, whole.getShort(position + 21), batches.addObject());
            position += batch.sizeInBytes();
        }
        if (position != segment.size()) throw new IllegalStateException(segment + " has " + (segment.size() - position) + " bytes after its last batch");
        ArrayNode index = said.putArray("index"), times = said.putArray("times"), aborted = said.putArray("aborted");
        OffsetIndex offsets = segment.offsetIndex();
        for (int i = 0; i < offsets.entries(); i++) {
            OffsetPosition entry = offsets.entry(i);
            if (!positions.contains(entry.position)) throw new IllegalStateException("no batch begins at " + entry.position + ", where the index of " + segment + " says");
            index.addArray().add(entry.offset).add(entry.position);
        }
        TimeIndex timestamps = segment.timeIndex();
        for (int i = 0; i < timestamps.entries(); i++) {
            TimestampOffset entry = timestamps.entry(i);
            times.addArray().add(entry.timestamp).add(entry.offset);
        }
        for (AbortedTxn txn : segment.txnIndex().allAbortedTxns())
            aborted.addArray().add(txn.producerId()).add(txn.firstOffset()).add(txn.lastOffset()).add(txn.lastStableOffset());
    }

    static void listBatch(DefaultRecordBatch batch, int position, short attributes, ObjectNode said) {
        said.put("position", position).put("size", batch.sizeInBytes()).put("base_offset", batch.baseOffset())
            .put("last_offset", batch.lastOffset()).put("leader_epoch", batch.partitionLeaderEpoch()).put("crc", batch.checksum())
            .put("attributes", attributes).put("codec", batch.compressionType().name)
            .put("base_timestamp", batch.baseTimestamp()).put("max_timestamp", batch.maxTimestamp())
            .put("delete_horizon", batch.deleteHorizonMs().isPresent() ? (Long) batch.deleteHorizonMs().getAsLong() : null)
            .put("producer_id", batch.producerId()).put("producer_epoch", batch.producerEpoch()).put("base_sequence", batch.baseSequence())
            .put("count", batch.countOrNull());
        ArrayNode records = said.putArray("records");
        try (CloseableIterator<Record> each = batch.streamingIterator(BufferSupplier.NO_CACHING)) {
            while (each.hasNext()) {
                Record record = each.next();
                ArrayNode headers = records.addObject().put("offset", record.offset()).put("timestamp", record.timestamp())
                    .put("key", hex(record.key())).put("value", hex(record.value())).putArray("headers");
                for (Header header : record.headers())
                    headers.addArray().add(header.key()).add(header.value() == null ? null : HEX.formatHex(header.value()));
            }
        }
    }

    static String hex(ByteBuffer bytes) { return bytes == null ? null : HEX.formatHex(Utils.toArray(bytes)); }

    // --- What a log asks of the world: the time, and somebody who does things later ---

    static class Clock implements Time {
        volatile long now = 0;
        @Override public long milliseconds() { return now; }
        @Override public long nanoseconds() { return now * 1_000_000; }
        @Override public void sleep(long ms) { now += ms; }
        @Override public void waitObject(Object object, Supplier<Boolean> condition, long deadline) { throw new UnsupportedOperationException(); }
    }

    static class Later implements Scheduler {
        final List<Runnable> tasks = new ArrayList<>();
        @Override public void startup() { }
        @Override public void shutdown() { }
        @Override public void resizeThreadPool(int size) { }
        @Override public ScheduledFuture<?> schedule(String name, Runnable task, long delay, long period) {
            if (period < 0) {
                if (delay > 0) tasks.add(task);
                else task.run();
            }
            return new Never();
        }
        void runAll() {
            List<Runnable> due = new ArrayList<>(tasks);
            tasks.clear();
            due.forEach(Runnable::run);
        }
    }

    static class Never extends FutureTask<Void> implements ScheduledFuture<Void> {
        Never() { super(() -> null); }
        @Override public long getDelay(TimeUnit unit) { return 0; }
        @Override public int compareTo(Delayed other) { return 0; }
    }
}
