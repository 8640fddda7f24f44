import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * What the Java client must be able to do with a node. All checks run in one JVM, each with topics of its own; for each
 * a line of JSON tells how it failed, or null. Argument: the bootstrap servers.
 */
public class ClientChecks {
    private interface Check {
        void run(String topic) throws Exception;
    }

    private static final Duration POLL = Duration.ofMillis(200);
    private static final Duration DEADLINE = Duration.ofSeconds(30);
    private static final long NOON_MS = 1_735_732_800_000L;

    private final String bootstrap;
    private final Admin admin;

    private ClientChecks(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) throws Exception {
        ClientChecks checks = new ClientChecks(arguments[0]);
        ObjectMapper json = new ObjectMapper();
        for (Map.Entry<String, Check> check : checks.all().entrySet()) {
            Map<String, String> outcome = new HashMap<>();
            outcome.put("check", check.getKey());
            outcome.put("failure", failureOf(check.getValue()));
            System.out.println(json.writeValueAsString(outcome));
        }
        System.exit(0);
    }

    private Map<String, Check> all() {
        Map<String, Check> checks = new LinkedHashMap<>();
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            checks.put("records come back as sent with codec " + codec, topic -> recordsComeBack(topic, codec));
        }
        checks.put("producer is idempotent by default", this::producerIsIdempotentByDefault);
        checks.put("every level of acknowledgement", this::everyLevelOfAcknowledgement);
        checks.put("record above the limit is refused", this::recordAboveTheLimitIsRefused);
        checks.put("seek by time and to both ends", this::seekByTimeAndToBothEnds);
        checks.put("waiting consumer gets a later record", this::waitingConsumerGetsALaterRecord);
        checks.put("members share and take over partitions, eagerly", topic -> membersShare(topic, "RangeAssignor"));
        checks.put("members share and take over partitions, cooperatively",
            topic -> membersShare(topic, "CooperativeStickyAssignor"));
        checks.put("static member comes back", this::staticMemberComesBack);
        checks.put("group goes on after what it committed", this::groupGoesOnAfterWhatItCommitted);
        checks.put("subscription by pattern finds later topics", this::subscriptionByPattern);
        checks.put("topic is deleted and comes back under open clients", this::topicComesBackUnderOpenClients);
        checks.put("admin: topics", this::adminTopics);
        checks.put("admin: a hundred topics in one request", this::adminHundredTopics);
        checks.put("admin: configs", this::adminConfigs);
        checks.put("admin: records and offsets", this::adminRecordsAndOffsets);
        checks.put("admin: groups", this::adminGroups);
        checks.put("admin: producers", this::adminProducers);
        checks.put("admin: cluster and log directories", this::adminCluster);
        return checks;
    }

    private static String failureOf(Check check) {
        try {
            check.run("java-" + UUID.randomUUID());
            return null;
        } catch (Throwable thrown) {
            StringWriter text = new StringWriter();
            thrown.printStackTrace(new PrintWriter(text));
            return text.toString();
        }
    }

    // Records

    private void recordsComeBack(String topic, String codec) throws Exception {
        create(topic, 1);
        List<ProducerRecord<byte[], byte[]>> sent = List.of(
            record(topic, "key", "value", NOON_MS),
            record(topic, null, "no key", NOON_MS + 1),
            record(topic, "tombstone", null, NOON_MS + 2),
            record(topic, "", "", NOON_MS + 3),
            record(topic, "earlier", "x".repeat(50_000), NOON_MS - 5000),
            record(topic, "headers", "in order", NOON_MS + 4, header("b", "1"), header("a", "2"), header("b", "3")),
            record(topic, "headers", "null", NOON_MS + 5, header("null", null), header("", "no name")));
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("compression.type", codec, "linger.ms", 50))) {
            List<Future<RecordMetadata>> acknowledged = sent.stream().map(producer::send).toList();
            for (int index = 0; index < sent.size(); index++) {
                equal((long) index, acknowledged.get(index).get().offset());
            }
        }
        List<ConsumerRecord<byte[], byte[]>> received = readAll(topic, sent.size());
        for (int index = 0; index < sent.size(); index++) {
            ProducerRecord<byte[], byte[]> before = sent.get(index);
            ConsumerRecord<byte[], byte[]> after = received.get(index);
            that(Arrays.equals(before.key(), after.key()), "the key of record " + index);
            that(Arrays.equals(before.value(), after.value()), "the value of record " + index);
            equal(before.timestamp(), after.timestamp());
            equal(List.of(before.headers().toArray()), List.of(after.headers().toArray()));
        }
    }

    private void producerIsIdempotentByDefault(String topic) throws Exception {
        create(topic, 1);
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            for (int number = 0; number < 300; number++) {
                producer.send(record(topic, "k", Integer.toString(number), NOON_MS));
            }
        }
        List<ConsumerRecord<byte[], byte[]>> received = readAll(topic, 300);
        equal(IntStream.range(0, 300).mapToObj(Integer::toString).toList(), received.stream().map(this::text).toList());
    }

    private void everyLevelOfAcknowledgement(String topic) throws Exception {
        create(topic, 1);
        for (String acks : List.of("0", "1", "all")) {
            try (KafkaProducer<byte[], byte[]> producer =
                    producer(Map.of("acks", acks, "enable.idempotence", acks.equals("all")))) {
                producer.send(record(topic, null, acks, NOON_MS)).get();
            }
        }
        equal(List.of("0", "1", "all"), readAll(topic, 3).stream().map(this::text).toList());
    }

    private void recordAboveTheLimitIsRefused(String topic) throws Exception {
        NewTopic limited = new NewTopic(topic, 1, (short) 1).configs(Map.of("max.message.bytes", "100000"));
        admin.createTopics(List.of(limited)).all().get();
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            equal(0L, producer.send(record(topic, null, "x".repeat(99_900), NOON_MS)).get().offset());
            fails(RecordTooLargeException.class, producer.send(record(topic, null, "x".repeat(100_001), NOON_MS)));
            equal(1L, producer.send(record(topic, null, "small again", NOON_MS)).get().offset());
        }
    }

    private void seekByTimeAndToBothEnds(String topic) throws Exception {
        create(topic, 1);
        write(topic, 10);
        TopicPartition only = partition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            consumer.assign(List.of(only));
            equal(0L, consumer.beginningOffsets(List.of(only)).get(only));
            equal(10L, consumer.endOffsets(List.of(only)).get(only));
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(only, NOON_MS + 4)).get(only);
            equal(4L, found.offset());
            equal(NOON_MS + 4, found.timestamp());
            equal(null, consumer.offsetsForTimes(Map.of(only, NOON_MS + 10)).get(only));
            consumer.seek(only, found.offset());
            equal("4", text(poll(consumer, 1).get(0)));
            consumer.seekToBeginning(List.of(only));
            equal("0", text(poll(consumer, 1).get(0)));
            consumer.seekToEnd(List.of(only));
            equal(10L, consumer.position(only));
        }
    }

    private void waitingConsumerGetsALaterRecord(String topic) throws Exception {
        create(topic, 1);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            consumer.assign(List.of(partition(topic, 0)));
            consumer.seekToBeginning(List.of());
            equal(0, consumer.poll(POLL).count());
            for (int number = 0; number < 5; number++) {
                write(topic, 1);
                equal((long) number, poll(consumer, 1).get(0).offset());
            }
        }
    }

    // Groups

    private void membersShare(String topic, String assignor) throws Exception {
        create(topic, 4);
        Map<String, Object> settings =
            member(topic, Map.of("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor));
        KafkaConsumer<byte[], byte[]> first = consumer(settings);
        first.subscribe(List.of(topic));
        eventually("one member with all partitions", () -> assigned(first).size() == 4);
        try (KafkaConsumer<byte[], byte[]> second = consumer(settings)) {
            second.subscribe(List.of(topic));
            eventually("two partitions each", () -> assigned(first).size() == 2 & assigned(second).size() == 2);
            first.close();
            eventually("all partitions for who is left", () -> assigned(second).size() == 4);
        }
    }

    private void staticMemberComesBack(String topic) throws Exception {
        create(topic, 2);
        try (KafkaConsumer<byte[], byte[]> one = consumer(member(topic, Map.of("group.instance.id", "one")))) {
            one.subscribe(List.of(topic));
            KafkaConsumer<byte[], byte[]> two = consumer(member(topic, Map.of("group.instance.id", "two")));
            two.subscribe(List.of(topic));
            eventually("a partition each", () -> assigned(one).size() == 1 & assigned(two).size() == 1);
            Set<TopicPartition> before = two.assignment();
            int generation = one.groupMetadata().generationId();
            two.close();
            try (KafkaConsumer<byte[], byte[]> again = consumer(member(topic, Map.of("group.instance.id", "two")))) {
                again.subscribe(List.of(topic));
                eventually("the partition from before", () -> assigned(again).equals(before));
                equal(generation, again.groupMetadata().generationId());
            }
        }
    }

    private void groupGoesOnAfterWhatItCommitted(String topic) throws Exception {
        create(topic, 1);
        write(topic, 6);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(member(topic, Map.of()))) {
            consumer.subscribe(List.of(topic));
            poll(consumer, 6);
            consumer.commitSync(Map.of(partition(topic, 0), new OffsetAndMetadata(4, Optional.of(0), "a note")));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(member(topic, Map.of()))) {
            consumer.subscribe(List.of(topic));
            equal(4L, poll(consumer, 2).get(0).offset());
            equal("a note", consumer.committed(Set.of(partition(topic, 0))).get(partition(topic, 0)).metadata());
        }
    }

    private void subscriptionByPattern(String topic) throws Exception {
        create(topic + "-1", 1);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(member(topic, Map.of("metadata.max.age.ms", "500")))) {
            consumer.subscribe(Pattern.compile(Pattern.quote(topic) + "-.*"));
            eventually("the first topic", () -> assigned(consumer).size() == 1);
            create(topic + "-2", 2);
            eventually("the topic that came later", () -> assigned(consumer).size() == 3);
        }
    }

    private void topicComesBackUnderOpenClients(String topic) throws Exception {
        create(topic, 1);
        Map<String, Object> quick = Map.of("metadata.max.age.ms", "500", "auto.offset.reset", "earliest");
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("metadata.max.age.ms", "500"));
                KafkaConsumer<byte[], byte[]> consumer = consumer(quick)) {
            consumer.assign(List.of(partition(topic, 0)));
            producer.send(record(topic, null, "old", NOON_MS)).get();
            equal("old", text(poll(consumer, 1).get(0)));
            Uuid before = describe(topic).topicId();
            admin.deleteTopics(List.of(topic)).all().get();
            eventually("the topic to be gone", () -> !names().contains(topic));
            eventually("the topic to be created again", () -> created(topic));
            eventually("a record of the new topic", () -> {
                producer.send(record(topic, null, "new", NOON_MS));
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    if (text(record).equals("new")) {
                        return true;
                    }
                }
                return false;
            });
            that(!before.equals(describe(topic).topicId()), "the topic has a new id");
        }
    }

    // Administration

    private void adminTopics(String topic) throws Exception {
        NewTopic wanted = new NewTopic(topic, Optional.of(2), Optional.empty()).configs(Map.of("retention.ms", "77777"));
        var created = admin.createTopics(List.of(wanted));
        created.all().get();
        equal(2, created.numPartitions(topic).get());
        equal(1, created.replicationFactor(topic).get());
        equal("77777", created.config(topic).get().get("retention.ms").value());
        fails(TopicExistsException.class, admin.createTopics(List.of(wanted)).all());
        fails(InvalidTopicException.class, admin.createTopics(List.of(new NewTopic("no way", 1, (short) 1))).all());
        eventually("the topic to be listed", () -> names().contains(topic));
        TopicDescription description = describe(topic);
        equal(7, description.partitions().get(1).leader().id());
        equal(1, description.partitions().get(1).isr().size());
        equal(description.topicId(), created.topicId(topic).get());
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
        eventually("four partitions", () -> describe(topic).partitions().size() == 4);
        admin.deleteTopics(TopicCollection.ofTopicIds(List.of(description.topicId()))).all().get();
        eventually("the topic to be gone", () -> !names().contains(topic));
        fails(UnknownTopicOrPartitionException.class, admin.deleteTopics(List.of(topic)).all());
    }

    private void adminHundredTopics(String topic) throws Exception {
        List<String> names = IntStream.range(0, 100).mapToObj(number -> topic + "-" + number).toList();
        admin.createTopics(names.stream().map(name -> new NewTopic(name, 1, (short) 1)).toList()).all().get();
        eventually("all topics to be listed", () -> names().containsAll(names));
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            for (Future<RecordMetadata> sent :
                    names.stream().map(name -> producer.send(record(name, null, "x", NOON_MS))).toList()) {
                equal(0L, sent.get().offset());
            }
        }
        admin.deleteTopics(names).all().get();
    }

    private void adminConfigs(String topic) throws Exception {
        create(topic, 1);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        alter(resource, new AlterConfigOp(new ConfigEntry("retention.ms", "4242"), AlterConfigOp.OpType.SET));
        eventually("the new value", () -> config(resource).get("retention.ms").value().equals("4242"));
        equal(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, config(resource).get("retention.ms").source());
        alter(resource, new AlterConfigOp(new ConfigEntry("retention.ms", null), AlterConfigOp.OpType.DELETE));
        eventually("the default", () -> config(resource).get("retention.ms").isDefault());
        ConfigEntry entry = config(resource).get("max.message.bytes");
        equal("1048588", entry.value());
        equal(ConfigEntry.ConfigType.INT, entry.type());
        equal("7", config(new ConfigResource(ConfigResource.Type.BROKER, "7")).get("node.id").value());
    }

    private void adminRecordsAndOffsets(String topic) throws Exception {
        create(topic, 1);
        write(topic, 10);
        TopicPartition only = partition(topic, 0);
        equal(3L, admin.deleteRecords(Map.of(only, RecordsToDelete.beforeOffset(3))).lowWatermarks().get(only).get()
            .lowWatermark());
        Map<OffsetSpec, Long> expected = Map.of(OffsetSpec.earliest(), 3L, OffsetSpec.latest(), 10L,
            OffsetSpec.maxTimestamp(), 9L, OffsetSpec.forTimestamp(NOON_MS + 5), 5L);
        for (Map.Entry<OffsetSpec, Long> each : expected.entrySet()) {
            equal(each.getValue(), admin.listOffsets(Map.of(only, each.getKey())).partitionResult(only).get().offset());
        }
    }

    private void adminGroups(String topic) throws Exception {
        create(topic, 1);
        write(topic, 3);
        String group = (String) member(topic, Map.of()).get("group.id");
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(member(topic, Map.of()))) {
            consumer.subscribe(List.of(topic));
            poll(consumer, 3);
            consumer.commitSync();
            equal(GroupState.STABLE, state(group));
            equal(1, get(admin.describeConsumerGroups(List.of(group)).describedGroups().get(group)).members().size());
        }
        eventually("an empty group", () -> state(group) == GroupState.EMPTY);
        that(get(admin.listGroups().all()).stream().anyMatch(each -> each.groupId().equals(group)), "the group is listed");
        admin.alterConsumerGroupOffsets(group, Map.of(partition(topic, 0), new OffsetAndMetadata(1))).all().get();
        equal(1L, get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata())
            .get(partition(topic, 0)).offset());
        admin.deleteConsumerGroupOffsets(group, Set.of(partition(topic, 0))).all().get();
        equal(Map.of(), get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()));
        admin.alterConsumerGroupOffsets(group, Map.of(partition(topic, 0), new OffsetAndMetadata(1))).all().get();
        admin.deleteConsumerGroups(List.of(group)).all().get();
        fails(GroupIdNotFoundException.class, admin.deleteConsumerGroups(List.of(group)).all());
    }

    private void adminProducers(String topic) throws Exception {
        create(topic, 1);
        write(topic, 3);
        List<ProducerState> producers = admin.describeProducers(List.of(partition(topic, 0)))
            .partitionResult(partition(topic, 0)).get().activeProducers();
        equal(List.of(2), producers.stream().map(ProducerState::lastSequence).toList());
    }

    private void adminCluster(String topic) throws Exception {
        create(topic, 1);
        write(topic, 3);
        DescribeClusterResult cluster = admin.describeCluster();
        equal(bootstrap, cluster.nodes().get().stream().map(node -> node.host() + ":" + node.port())
            .collect(Collectors.joining(",")));
        equal(7, cluster.controller().get().id());
        that(cluster.clusterId().get().length() >= 20, "a cluster id");
        Map<String, LogDirDescription> directories = admin.describeLogDirs(List.of(7)).allDescriptions().get().get(7);
        that(directories.values().stream().anyMatch(directory -> directory.replicaInfos().containsKey(partition(topic, 0))
            && directory.replicaInfos().get(partition(topic, 0)).size() > 0), "the partition in a log directory");
        admin.describeFeatures().featureMetadata().get();
    }

    // What the checks are written with

    private KafkaProducer<byte[], byte[]> producer(Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        all.putAll(settings);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", "false"));
        all.putAll(settings);
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private Map<String, Object> member(String topic, Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(Map.of("group.id", "group-of-" + topic, "auto.offset.reset", "earliest",
            "heartbeat.interval.ms", "200", "session.timeout.ms", "6000"));
        all.putAll(settings);
        return all;
    }

    private void write(String topic, int count) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            for (int number = 0; number < count; number++) {
                producer.send(record(topic, null, Integer.toString(number), NOON_MS + number)).get();
            }
        }
    }

    private List<ConsumerRecord<byte[], byte[]>> readAll(String topic, int count) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            consumer.assign(List.of(partition(topic, 0)));
            consumer.seekToBeginning(List.of());
            List<ConsumerRecord<byte[], byte[]>> records = poll(consumer, count);
            equal(count, records.size());
            return records;
        }
    }

    private List<ConsumerRecord<byte[], byte[]>> poll(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        eventually(count + " records", () -> {
            consumer.poll(POLL).forEach(records::add);
            return records.size() >= count;
        });
        return records;
    }

    /** A member's partitions after a poll, in which it takes part in a rebalance. */
    private Set<TopicPartition> assigned(KafkaConsumer<byte[], byte[]> consumer) {
        consumer.poll(POLL);
        return new HashSet<>(consumer.assignment());
    }

    private void create(String topic, int partitions) {
        get(admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all());
        eventually("the topic to be listed", () -> names().contains(topic));
    }

    /** Whether the topic exists now: open clients may have created it by asking for it. */
    private boolean created(String topic) {
        try {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
            return true;
        } catch (ExecutionException | InterruptedException refused) {
            return refused.getCause() instanceof TopicExistsException && names().contains(topic);
        }
    }

    private Set<String> names() {
        return get(admin.listTopics().names());
    }

    private TopicDescription describe(String topic) {
        return get(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic);
    }

    private GroupState state(String group) {
        return get(admin.describeConsumerGroups(List.of(group)).describedGroups().get(group)).groupState();
    }

    private Config config(ConfigResource resource) {
        return get(admin.describeConfigs(List.of(resource)).all()).get(resource);
    }

    private void alter(ConfigResource resource, AlterConfigOp operation) {
        get(admin.incrementalAlterConfigs(Map.of(resource, List.of(operation))).all());
    }

    private static <T> T get(KafkaFuture<T> future) {
        try {
            return future.get();
        } catch (InterruptedException | ExecutionException failed) {
            throw new IllegalStateException(failed);
        }
    }

    private static TopicPartition partition(String topic, int index) {
        return new TopicPartition(topic, index);
    }

    private static ProducerRecord<byte[], byte[]> record(
            String topic, String key, String value, long timestampMs, Header... headers) {
        return new ProducerRecord<>(topic, 0, timestampMs, bytes(key), bytes(value), List.of(headers));
    }

    private static Header header(String name, String value) {
        return new RecordHeader(name, bytes(value));
    }

    private static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    private String text(ConsumerRecord<byte[], byte[]> record) {
        return new String(record.value(), StandardCharsets.UTF_8);
    }

    private static void eventually(String what, BooleanSupplier condition) {
        long deadline = System.nanoTime() + DEADLINE.toNanos();
        while (!condition.getAsBoolean()) {
            that(System.nanoTime() < deadline, what + " in time");
            Thread.onSpinWait();
        }
    }

    private static void fails(Class<? extends Exception> expected, Future<?> action) throws Exception {
        try {
            action.get();
        } catch (ExecutionException failed) {
            that(expected.isInstance(failed.getCause()), expected.getSimpleName() + ", not " + failed.getCause());
            return;
        }
        throw new AssertionError("expected " + expected.getSimpleName());
    }

    private static void fails(Class<? extends Exception> expected, KafkaFuture<?> action) throws Exception {
        fails(expected, action.toCompletionStage().toCompletableFuture());
    }

    private static void equal(Object expected, Object actual) {
        that(Objects.equals(expected, actual), expected + ", but was " + actual);
    }

    private static void that(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError("expected " + what);
        }
    }
}
