// The driver of the Java clients; contract.py says what each job does and prints.
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.regex.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.serialization.*;

public class Driver {
    static final long PATIENCE = 30;
    static final Duration POLL = Duration.ofMillis(100);
    static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);

    final Map<String, String> options = new HashMap<>();

    Driver(List<String> words) {
        for (int i = 1; i + 1 < words.size(); i += 2) options.put(words.get(i).substring(2), words.get(i + 1));
    }

    public static void main(String[] arguments) throws Exception {
        List<String> words = List.of(arguments);
        if (!words.equals(List.of("serve"))) {
            new Driver(words).run(words.get(0));
            return;
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            List<String> command = Pattern.compile("\"([^\"]*)\"").matcher(line).results().map(found -> found.group(1)).toList();
            try {
                new Driver(command).run(command.get(0));
                say("done", true);
            } catch (Exception error) {
                StringWriter trace = new StringWriter();
                error.printStackTrace(new PrintWriter(trace));
                say("failed", trace.toString());
            }
        }
    }

    void run(String job) throws Exception {
        switch (job) {
            case "create" -> create();
            case "list" -> list();
            case "describe" -> describe();
            case "grow" -> grow();
            case "configure" -> configure();
            case "delete" -> delete();
            case "produce" -> produce();
            case "transact" -> transact();
            case "copy" -> copy();
            case "consume" -> consume();
            case "offsets" -> offsets();
            case "member" -> member();
            case "groups" -> groups();
            case "forget" -> forget();
            case "truncate" -> truncate();
            case "log_dirs" -> logDirs();
            case "move" -> move();
            case "elect" -> elect();
            case "reassign" -> reassign();
            case "quorum" -> quorum();
            case "features" -> features();
            case "quotas" -> quotas();
            case "throttle" -> throttle();
            default -> throw new IllegalArgumentException("this driver has no job " + job);
        }
    }

    // --- Lines of JSON ---

    static synchronized void say(Object... namesAndValues) {
        List<String> parts = new ArrayList<>();
        for (int i = 0; i < namesAndValues.length; i += 2) parts.add(json(namesAndValues[i]) + ": " + json(namesAndValues[i + 1]));
        OUT.println("{" + String.join(", ", parts) + "}");
    }

    static String json(Object value) {
        if (value instanceof Collection<?> list) return list.stream().map(Driver::json).collect(Collectors.joining(", ", "[", "]"));
        if (value instanceof Number || value instanceof Boolean) return value.toString();
        StringBuilder text = new StringBuilder("\"");
        for (char c : value.toString().toCharArray()) {
            if (c == '"' || c == '\\') text.append('\\').append(c);
            else if (c < ' ') text.append(String.format("\\u%04x", (int) c));
            else text.append(c);
        }
        return text.append('"').toString();
    }

    static void say(ConsumerRecord<String, String> record) {
        say("partition", record.partition(), "offset", record.offset(), "key", record.key(), "value", record.value());
    }

    // --- Options ---

    String topic() { return options.get("topic"); }
    int number(String name) { return Integer.parseInt(options.getOrDefault(name, "0")); }
    List<TopicPartition> each() { return IntStream.range(0, number("partitions")).mapToObj(partition -> new TopicPartition(topic(), partition)).toList(); }
    <T> Map<TopicPartition, T> forEach(T value) { return each().stream().collect(Collectors.toMap(place -> place, place -> value)); }

    static String key(int number) { return "key-" + number; }
    static String value(int number) { return "value-" + number + " " + "abcdefghij".repeat(20); }

    Properties properties(Object... namesAndValues) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", options.get("bootstrap"));
        properties.put("reconnect.backoff.max.ms", 200);
        for (int i = 0; i < namesAndValues.length; i += 2) properties.put(namesAndValues[i], namesAndValues[i + 1]);
        return properties;
    }

    Admin admin() { return Admin.create(properties()); }
    static <T> T get(Future<T> future) throws Exception { return future.get(PATIENCE, TimeUnit.SECONDS); }

    // --- Topics ---

    void create() throws Exception {
        try (Admin admin = admin()) { get(admin.createTopics(List.of(new NewTopic(topic(), number("partitions"), (short) 1))).all()); }
        say("created", topic());
    }

    void list() throws Exception {
        try (Admin admin = admin()) { say("topics", new TreeSet<>(get(admin.listTopics().names()))); }
    }

    void describe() throws Exception {
        try (Admin admin = admin()) {
            for (var partition : get(admin.describeTopics(List.of(topic())).allTopicNames()).get(topic()).partitions())
                say("partition", partition.partition(), "leader", partition.leader().id());
        }
    }

    void grow() throws Exception {
        try (Admin admin = admin()) { get(admin.createPartitions(Map.of(topic(), NewPartitions.increaseTo(number("partitions")))).all()); }
        say("partitions", number("partitions"));
    }

    void configure() throws Exception {
        String[] config = options.get("config").split("=");
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic());
        try (Admin admin = admin()) {
            get(admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(new ConfigEntry(config[0], config[1]), AlterConfigOp.OpType.SET)))).all());
            say("name", config[0], "value", get(admin.describeConfigs(List.of(resource)).all()).get(resource).get(config[0]).value());
        }
    }

    void delete() throws Exception {
        try (Admin admin = admin()) { get(admin.deleteTopics(List.of(topic())).all()); }
        say("deleted", topic());
    }

    // --- Producing ---

    KafkaProducer<String, String> producer(Object... settings) { return new KafkaProducer<>(properties(settings), new StringSerializer(), new StringSerializer()); }

    void send(KafkaProducer<String, String> producer, int first, int count) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int number = first; number < first + count; number++) sent.add(producer.send(new ProducerRecord<>(topic(), key(number), value(number))));
        for (var future : sent) get(future);
    }

    void produce() throws Exception {
        boolean idempotent = options.containsKey("idempotent");
        try (var producer = producer("compression.type", options.getOrDefault("codec", "none"), "enable.idempotence", idempotent, "linger.ms", 20)) {
            send(producer, number("first"), number("count"));
        }
        say("produced", number("count"));
    }

    void transact() throws Exception {
        List<Integer> committed = new ArrayList<>(), aborted = new ArrayList<>();
        try (var producer = producer("transactional.id", options.get("id"))) {
            producer.initTransactions();
            for (int first = 0; first < 50; first += 10) {
                boolean commit = first % 20 == 0;
                producer.beginTransaction();
                send(producer, first, 10);
                if (commit) producer.commitTransaction(); else producer.abortTransaction();
                IntStream.range(first, first + 10).forEach((commit ? committed : aborted)::add);
            }
        }
        say("committed", committed, "aborted", aborted);
    }

    void copy() throws Exception {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        try (var producer = producer("transactional.id", options.get("id")); var consumer = consumer("isolation.level", "read_committed")) {
            producer.initTransactions();
            consumer.subscribe(List.of(topic()));
            while (records.size() < number("count")) consumer.poll(POLL).forEach(records::add);
            for (boolean commit : new boolean[] {false, true}) {
                producer.beginTransaction();
                for (var record : records) producer.send(new ProducerRecord<>(options.get("to"), record.key(), record.value()));
                producer.flush();
                Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
                for (TopicPartition place : consumer.assignment()) positions.put(place, new OffsetAndMetadata(consumer.position(place)));
                producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
                if (commit) producer.commitTransaction(); else producer.abortTransaction();
            }
        }
        say("copied", records.size());
    }

    // --- Consuming ---

    KafkaConsumer<String, String> consumer(Object... settings) {
        Properties properties = properties("enable.auto.commit", false, "auto.offset.reset", "earliest", "fetch.max.wait.ms", 100,
                                           "isolation.level", options.getOrDefault("isolation", "read_uncommitted"));
        if (options.containsKey("group")) properties.put("group.id", options.get("group"));
        for (int i = 0; i < settings.length; i += 2) properties.put(settings[i], settings[i + 1]);
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    void consume() {
        try (var consumer = consumer()) {
            consumer.assign(each());
            consumer.seekToBeginning(each());
            for (int seen = 0; seen < number("count"); ) {
                for (var record : consumer.poll(POLL)) {
                    say(record);
                    seen++;
                }
            }
        }
    }

    void offsets() throws Exception {
        try (Admin admin = admin()) {
            var earliest = get(admin.listOffsets(forEach(OffsetSpec.earliest())).all());
            var latest = get(admin.listOffsets(forEach(OffsetSpec.latest())).all());
            for (TopicPartition place : each()) say("partition", place.partition(), "earliest", earliest.get(place).offset(), "latest", latest.get(place).offset());
        }
    }

    void member() throws Exception {
        AtomicBoolean leave = new AtomicBoolean();
        Thread watch = new Thread(() -> {
            try { while (System.in.read() >= 0) { } } catch (IOException gone) { }
            leave.set(true);
        });
        watch.setDaemon(true);
        watch.start();
        String protocol = options.getOrDefault("protocol", "classic");
        Object[] settings = protocol.equals("classic")   // otherwise the broker says how long is too long
            ? new Object[] {"group.protocol", protocol, "session.timeout.ms", 6000, "heartbeat.interval.ms", 500} : new Object[] {"group.protocol", protocol};
        try (var consumer = consumer(settings)) {
            consumer.subscribe(List.of(topic()));
            Set<Integer> assigned = null;
            while (!leave.get()) {
                var records = consumer.poll(POLL);
                Set<Integer> now = consumer.assignment().stream().map(TopicPartition::partition).collect(Collectors.toCollection(TreeSet::new));
                if (!now.equals(assigned)) say("assigned", now);
                assigned = now;
                records.forEach(Driver::say);
                if (!records.isEmpty()) consumer.commitSync();
            }
        }
        say("left", true);
    }

    void groups() throws Exception {
        String group = options.get("group");
        try (Admin admin = admin()) {
            if (get(admin.listGroups().all()).stream().anyMatch(listed -> listed.groupId().equals(group))) {
                var described = get(admin.describeConsumerGroups(List.of(group)).all()).get(group);
                say("group", group, "state", described.groupState().toString(), "members", described.members().size());
            }
            get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).forEach((place, offset) -> say("partition", place.partition(), "committed", offset.offset()));
        }
    }

    void forget() throws Exception {
        try (Admin admin = admin()) { get(admin.deleteConsumerGroups(List.of(options.get("group"))).all()); }
        say("forgotten", options.get("group"));
    }

    // --- The broker itself ---

    void logDirs() throws Exception {
        try (Admin admin = admin()) {
            get(admin.describeLogDirs(List.of(1)).allDescriptions()).get(1).forEach((dir, described) -> described.replicaInfos().forEach((place, replica) -> {
                if (place.topic().equals(topic())) say("partition", place.partition(), "dir", dir, "size", replica.size());
            }));
        }
    }

    void move() throws Exception {
        Map<TopicPartitionReplica, String> wanted = new HashMap<>();
        for (TopicPartition place : each()) wanted.put(new TopicPartitionReplica(topic(), place.partition(), 1), options.get("to"));
        try (Admin admin = admin()) { get(admin.alterReplicaLogDirs(wanted).all()); }
        say("moved", number("partitions"));
    }

    void elect() throws Exception {
        try (Admin admin = admin()) {
            for (var answer : get(admin.electLeaders(ElectionType.PREFERRED, Set.copyOf(each())).partitions()).entrySet()) {
                Throwable error = answer.getValue().orElse(null);
                if (error != null && !(error instanceof ElectionNotNeededException)) throw new ExecutionException(error);
                say("partition", answer.getKey().partition(), "elected", error == null);
            }
        }
    }

    void reassign() throws Exception {
        try (Admin admin = admin()) {
            get(admin.alterPartitionReassignments(forEach(Optional.of(new NewPartitionReassignment(List.of(number("to")))))).all());
            say("moving", get(admin.listPartitionReassignments().reassignments()).keySet().stream().map(TopicPartition::partition).toList());
        }
    }

    void quorum() throws Exception {
        try (Admin admin = admin()) {
            QuorumInfo quorum = get(admin.describeMetadataQuorum().quorumInfo());
            say("leader", quorum.leaderId(), "voters", quorum.voters().stream().map(QuorumInfo.ReplicaState::replicaId).toList());
        }
    }

    void features() throws Exception {
        String[] config = options.get("config").split("=");
        try (Admin admin = admin()) {
            FeatureUpdate update = new FeatureUpdate(Short.parseShort(config[1]), FeatureUpdate.UpgradeType.UPGRADE);
            get(admin.updateFeatures(Map.of(config[0], update), new UpdateFeaturesOptions()).all());
            say("name", config[0], "level", get(admin.describeFeatures().featureMetadata()).finalizedFeatures().get(config[0]).maxVersionLevel());
        }
    }

    void quotas() throws Exception {
        ClientQuotaEntity client = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, options.get("id")));
        ClientQuotaFilter filter = ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.CLIENT_ID, options.get("id"))));
        try (Admin admin = admin()) {
            if (options.containsKey("config")) {
                String[] config = options.get("config").split("=");
                get(admin.alterClientQuotas(List.of(new ClientQuotaAlteration(client, List.of(new ClientQuotaAlteration.Op(config[0], Double.valueOf(config[1])))))).all());
                say("set", config[0]);
            } else get(admin.describeClientQuotas(filter).entities()).getOrDefault(client, Map.of()).forEach((name, value) -> say("name", name, "value", value));
        }
    }

    void throttle() throws Exception {
        try (var producer = producer("client.id", options.get("id"), "linger.ms", 20)) {
            send(producer, 0, number("count"));
            boolean throttled = producer.metrics().values().stream().anyMatch(metric -> metric.metricName().name().equals("produce-throttle-time-max") && (double) metric.metricValue() > 0);
            say("produced", number("count"), "throttled", throttled);
        }
    }

    void truncate() throws Exception {
        try (Admin admin = admin()) {
            for (var answer : admin.deleteRecords(forEach(RecordsToDelete.beforeOffset(number("before")))).lowWatermarks().entrySet())
                say("partition", answer.getKey().partition(), "earliest", get(answer.getValue()).lowWatermark());
        }
    }
}
