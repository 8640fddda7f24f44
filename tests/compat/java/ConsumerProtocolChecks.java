import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.UUID;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidRegularExpression;
import org.apache.kafka.common.errors.UnsupportedAssignorException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * What the Java consumer must be able to do with the consumer group protocol (KIP-848). All checks run in one JVM, each
 * with a topic and a group of its own; for each a line of JSON tells how it failed, or null. Argument: the bootstrap
 * servers.
 */
public class ConsumerProtocolChecks {
    private interface Check {
        void run(String name) throws Exception;
    }

    private static final Duration POLL = Duration.ofMillis(100);
    private static final Duration DEADLINE = Duration.ofSeconds(30);

    private final String bootstrap;
    private final Admin admin;

    private ConsumerProtocolChecks(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) throws Exception {
        ConsumerProtocolChecks checks = new ConsumerProtocolChecks(arguments[0]);
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
        checks.put("members share and take over partitions", this::membersShare);
        checks.put("group goes on after what it committed", this::groupGoesOn);
        checks.put("pattern is resolved by the coordinator", this::patternIsResolved);
        checks.put("bad pattern is refused", this::badPatternIsRefused);
        checks.put("range assignor can be asked for, an unknown one cannot", this::assignorCanBeAskedFor);
        checks.put("static member comes back", this::staticMemberComesBack);
        checks.put("classic group moves over and back", this::classicGroupMovesOver);
        return checks;
    }

    private void membersShare(String name) throws Exception {
        createTopic(name, 4);
        try (KafkaConsumer<byte[], byte[]> first = consumer(name, Map.of())) {
            first.subscribe(List.of(name));
            pollUntil("all partitions", () -> first.assignment().size() == 4, first);
            try (KafkaConsumer<byte[], byte[]> second = consumer(name, Map.of())) {
                second.subscribe(List.of(name));
                pollUntil("two for each",
                    () -> first.assignment().size() == 2 && second.assignment().size() == 2, first, second);
                ConsumerGroupDescription described =
                    admin.describeConsumerGroups(List.of(name)).describedGroups().get(name).get();
                equal(GroupType.CONSUMER, described.type());
                equal(2, described.members().size());
                equal("uniform", described.partitionAssignor());
                Set<String> listed = admin.listGroups(
                        ListGroupsOptions.forConsumerGroups().withTypes(Set.of(GroupType.CONSUMER))).all().get()
                    .stream().map(each -> each.groupId()).collect(Collectors.toSet());
                that(listed.contains(name), "the group in the list");
            }
            pollUntil("all partitions again", () -> first.assignment().size() == 4, first);
        }
        pollUntil("an empty group", () -> GroupState.EMPTY == get(name).groupState());
        admin.deleteConsumerGroups(List.of(name)).all().get();
    }

    private void groupGoesOn(String name) throws Exception {
        createTopic(name, 1);
        produce(name, 5);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(name, Map.of())) {
            consumer.subscribe(List.of(name));
            equal(List.of(0L, 1L, 2L, 3L, 4L), read(consumer, 5));
            consumer.commitSync();
        }
        produce(name, 2);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(name, Map.of())) {
            consumer.subscribe(List.of(name));
            equal(List.of(5L, 6L), read(consumer, 2));
        }
    }

    private void patternIsResolved(String name) throws Exception {
        createTopic(name + ".a", 1);
        createTopic(name + "-b", 1);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(name, Map.of())) {
            consumer.subscribe(new SubscriptionPattern(name + "\\.[a-z]+"));
            pollUntil("the topic that matches",
                () -> consumer.assignment().equals(Set.of(new TopicPartition(name + ".a", 0))), consumer);
            createTopic(name + ".later", 1);
            pollUntil("the topic that came later", () -> consumer.assignment().size() == 2, consumer);
        }
    }

    private void badPatternIsRefused(String name) throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(name, Map.of())) {
            consumer.subscribe(new SubscriptionPattern("(a"));
            fails(InvalidRegularExpression.class, () -> pollUntil("an error", () -> false, consumer));
        }
    }

    private void assignorCanBeAskedFor(String name) throws Exception {
        createTopic(name, 2);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(name, Map.of("group.remote.assignor", "range"))) {
            consumer.subscribe(List.of(name));
            pollUntil("both partitions", () -> consumer.assignment().size() == 2, consumer);
            equal("range", get(name).partitionAssignor());
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(name, Map.of("group.remote.assignor", "mine"))) {
            consumer.subscribe(List.of(name));
            fails(UnsupportedAssignorException.class, () -> pollUntil("an error", () -> false, consumer));
        }
    }

    private void staticMemberComesBack(String name) throws Exception {
        createTopic(name, 2);
        try (KafkaConsumer<byte[], byte[]> one = consumer(name, Map.of("group.instance.id", "one"))) {
            one.subscribe(List.of(name));
            Set<TopicPartition> before;
            try (KafkaConsumer<byte[], byte[]> two = consumer(name, Map.of("group.instance.id", "two"))) {
                two.subscribe(List.of(name));
                pollUntil("one for each",
                    () -> one.assignment().size() == 1 && two.assignment().size() == 1, one, two);
                before = two.assignment();
            }
            try (KafkaConsumer<byte[], byte[]> again = consumer(name, Map.of("group.instance.id", "two"))) {
                again.subscribe(List.of(name));
                pollUntil("the partition back", () -> again.assignment().equals(before), one, again);
            }
        }
    }

    private void classicGroupMovesOver(String name) throws Exception {
        createTopic(name, 2);
        produce(name, 4);
        try (KafkaConsumer<byte[], byte[]> classic = consumer(name, Map.of("group.protocol", "classic"))) {
            classic.subscribe(List.of(name));
            equal(List.of(0L, 1L, 2L, 3L), read(classic, 4));
            classic.commitSync();
            try (KafkaConsumer<byte[], byte[]> moved = consumer(name, Map.of())) {
                moved.subscribe(List.of(name));
                pollUntil("one for each",
                    () -> classic.assignment().size() == 1 && moved.assignment().size() == 1, classic, moved);
                equal(GroupType.CONSUMER, get(name).type());
                classic.commitSync();
                moved.commitSync();
            }
            pollUntil("both partitions again", () -> classic.assignment().size() == 2, classic);
            equal(GroupType.CLASSIC, get(name).type());
            equal(4L, admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get()
                .get(new TopicPartition(name, 0)).offset());
        }
    }

    private ConsumerGroupDescription get(String group) {
        try {
            return admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get();
        } catch (Exception failed) {
            throw new IllegalStateException(failed);
        }
    }

    private KafkaConsumer<byte[], byte[]> consumer(String group, Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>();
        all.put("bootstrap.servers", bootstrap);
        all.put("group.id", group);
        all.put("group.protocol", "consumer");
        all.put("auto.offset.reset", "earliest");
        all.put("enable.auto.commit", false);
        all.put("metadata.max.age.ms", 500);
        all.putAll(settings);
        if ("classic".equals(all.get("group.protocol"))) {
            all.put("heartbeat.interval.ms", 200);
            all.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        }
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private void createTopic(String topic, int partitions) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
    }

    private void produce(String topic, int count) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int number : IntStream.range(0, count).toArray()) {
                producer.send(new ProducerRecord<>(topic, 0, null, new byte[] {(byte) number})).get();
            }
        }
    }

    private List<Long> read(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<Long> offsets = new ArrayList<>();
        long deadline = System.nanoTime() + DEADLINE.toNanos();
        while (offsets.size() < count) {
            that(System.nanoTime() < deadline, count + " records in time, not " + offsets);
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                offsets.add(record.offset());
            }
        }
        return offsets;
    }

    @SafeVarargs
    private static void pollUntil(String what, BooleanSupplier condition, KafkaConsumer<byte[], byte[]>... consumers) {
        long deadline = System.nanoTime() + DEADLINE.toNanos();
        while (!condition.getAsBoolean()) {
            that(System.nanoTime() < deadline, what + " in time, with "
                + Arrays.stream(consumers).map(each -> each.assignment().toString()).toList());
            for (KafkaConsumer<byte[], byte[]> consumer : consumers) {
                consumer.poll(POLL);
            }
        }
    }

    private static String failureOf(Check check) {
        try {
            check.run("java-" + UUID.randomUUID());
            return null;
        } catch (Throwable failure) {
            StringWriter trace = new StringWriter();
            failure.printStackTrace(new PrintWriter(trace));
            return trace.toString();
        }
    }

    private static void fails(Class<? extends Exception> expected, Runnable action) {
        try {
            action.run();
        } catch (RuntimeException failed) {
            that(expected.isInstance(failed), expected.getSimpleName() + ", not " + failed);
            return;
        }
        throw new AssertionError("expected " + expected.getSimpleName());
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
