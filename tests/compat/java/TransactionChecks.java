import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.InvalidTxnStateException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What the Java client's transactions must come to. All checks run in one JVM, each with topics of its own; for each a
 * line of JSON tells how it failed, or null. Argument: the bootstrap servers.
 */
public class TransactionChecks {
    private interface Check {
        void run(String name) throws Exception;
    }

    private static final Duration POLL = Duration.ofMillis(200);
    private static final Duration DEADLINE = Duration.ofSeconds(30);

    private final String bootstrap;
    private final Admin admin;

    private TransactionChecks(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) throws Exception {
        TransactionChecks checks = new TransactionChecks(arguments[0]);
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
        checks.put("transaction version 2 is on", this::transactionVersionIsOn);
        checks.put("committed records are read and aborted ones are not", this::committedAreRead);
        checks.put("a transaction over many partitions is one", this::manyPartitions);
        checks.put("every transaction has an epoch of its own", this::epochPerTransaction);
        checks.put("a second instance fences the first", this::secondInstanceFences);
        checks.put("a transaction that is left behind is aborted", this::leftBehindIsAborted);
        checks.put("offsets are committed with the records", this::offsetsAreCommitted);
        checks.put("offsets are not committed with an abort", this::offsetsAreNotCommitted);
        checks.put("admin lists, describes and fences", this::adminTransactions);
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

    private void transactionVersionIsOn(String name) throws Exception {
        FeatureMetadata features = admin.describeFeatures().featureMetadata().get();
        equal((short) 2, features.finalizedFeatures().get("transaction.version").maxVersionLevel());
        equal((short) 0, features.supportedFeatures().get("transaction.version").minVersion());
        equal((short) 2, features.supportedFeatures().get("transaction.version").maxVersion());
    }

    private void committedAreRead(String name) throws Exception {
        create(name, 1);
        try (KafkaProducer<String, String> producer = transactional(name)) {
            for (String value : List.of("a", "b", "c")) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(name, value + "-aborted"));
                producer.flush();
                producer.abortTransaction();
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(name, value));
                producer.commitTransaction();
            }
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(name, "open")).get();
            equal(List.of("a", "b", "c"), values(read(name, "read_committed", 3)));
            producer.abortTransaction();
        }
        equal(7, read(name, "read_uncommitted", 7).size());
    }

    private void manyPartitions(String name) throws Exception {
        create(name, 12);
        try (KafkaProducer<String, String> producer = transactional(name)) {
            for (boolean commits : List.of(false, true)) {
                producer.beginTransaction();
                for (int partition = 0; partition < 12; partition++) {
                    producer.send(new ProducerRecord<>(name, partition, null, "" + commits));
                }
                producer.flush();
                if (commits) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
        equal(Set.of("true"), Set.copyOf(values(read(name, "read_committed", 12))));
    }

    private void epochPerTransaction(String name) throws Exception {
        create(name, 1);
        try (KafkaProducer<String, String> producer = transactional(name)) {
            List<Integer> epochs = new ArrayList<>();
            for (int number = 0; number < 3; number++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(name, "" + number)).get();
                epochs.add(described(name).producerEpoch());
                producer.commitTransaction();
            }
            equal(List.of(0, 1, 2), epochs);
        }
    }

    private void secondInstanceFences(String name) throws Exception {
        create(name, 1);
        try (KafkaProducer<String, String> first = transactional(name)) {
            first.beginTransaction();
            first.send(new ProducerRecord<>(name, "first")).get();
            try (KafkaProducer<String, String> second = transactional(name)) {
                second.beginTransaction();
                second.send(new ProducerRecord<>(name, "second"));
                second.commitTransaction();
                fenced(first::commitTransaction);
                fenced(() -> {
                    first.beginTransaction();
                    first.send(new ProducerRecord<>(name, "zombie")).get();
                });
                second.beginTransaction();
                second.send(new ProducerRecord<>(name, "third"));
                second.commitTransaction();
            }
        }
        equal(List.of("second", "third"), values(read(name, "read_committed", 2)));
    }

    private void leftBehindIsAborted(String name) throws Exception {
        create(name, 1);
        try (KafkaProducer<String, String> producer = producer(name, Map.of("transaction.timeout.ms", 1000))) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(name, "left behind")).get();
            eventually(() -> described(name).state() == TransactionState.COMPLETE_ABORT);
            try {
                producer.commitTransaction();
                throw new AssertionError("the transaction is over");
            } catch (ProducerFencedException | InvalidTxnStateException expected) {
                // Apache Kafka takes the request for a repeat that has changed its mind.
            }
        }
        try (KafkaProducer<String, String> producer = transactional(name)) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(name, "next"));
            producer.commitTransaction();
        }
        equal(List.of("next"), values(read(name, "read_committed", 1)));
    }

    private void offsetsAreCommitted(String name) throws Exception {
        equal(new OffsetAndMetadata(3), copy(name, true));
        equal(List.of("A", "B", "C"), values(read(name + "-copy", "read_committed", 3)));
    }

    private void offsetsAreNotCommitted(String name) throws Exception {
        equal(null, copy(name, false));
    }

    /** Copy three records as a transaction; the offset that the group has afterwards. */
    private OffsetAndMetadata copy(String name, boolean commits) throws Exception {
        create(name, 1);
        create(name + "-copy", 1);
        try (KafkaProducer<String, String> plain = producer(null, Map.of())) {
            for (String value : List.of("a", "b", "c")) {
                plain.send(new ProducerRecord<>(name, value)).get();
            }
        }
        TopicPartition source = new TopicPartition(name, 0);
        try (KafkaConsumer<String, String> consumer = consumer(Map.of("group.id", name, "enable.auto.commit", false));
                KafkaProducer<String, String> producer = transactional(name)) {
            consumer.subscribe(List.of(name));
            List<ConsumerRecord<String, String>> records = poll(consumer, 3);
            producer.beginTransaction();
            for (ConsumerRecord<String, String> record : records) {
                producer.send(new ProducerRecord<>(name + "-copy", record.value().toUpperCase()));
            }
            producer.sendOffsetsToTransaction(
                Map.of(source, new OffsetAndMetadata(records.size())), consumer.groupMetadata());
            if (commits) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
            return consumer.committed(Set.of(source)).get(source);
        }
    }

    private void adminTransactions(String name) throws Exception {
        create(name, 2);
        try (KafkaProducer<String, String> producer = transactional(name)) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(name, 1, null, "x")).get();
            TransactionDescription description = described(name);
            equal(TransactionState.ONGOING, description.state());
            equal(Set.of(new TopicPartition(name, 1)), description.topicPartitions());
            check(description.transactionStartTimeMs().isPresent(), "it has begun");
            Collection<TransactionListing> listed = admin.listTransactions().all().get();
            check(listed.stream().anyMatch(listing -> listing.transactionalId().equals(name)
                && listing.producerId() == description.producerId()
                && listing.state() == TransactionState.ONGOING), "it is listed");
            admin.fenceProducers(List.of(name)).all().get();
            eventually(() -> described(name).state() == TransactionState.EMPTY
                || described(name).state() == TransactionState.COMPLETE_ABORT);
            fenced(producer::commitTransaction);
        }
    }

    private TransactionDescription described(String name) throws Exception {
        return admin.describeTransactions(List.of(name)).description(name).get();
    }

    private void create(String topic, int partitions) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) -1))).all().get();
    }

    private KafkaProducer<String, String> transactional(String name) {
        KafkaProducer<String, String> producer = producer(name, Map.of());
        producer.initTransactions();
        return producer;
    }

    private KafkaProducer<String, String> producer(String transactionalId, Map<String, Object> more) {
        Map<String, Object> configs = new HashMap<>(more);
        configs.put("bootstrap.servers", bootstrap);
        if (transactionalId != null) {
            configs.put("transactional.id", transactionalId);
        }
        return new KafkaProducer<>(configs, new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer(Map<String, Object> more) {
        Map<String, Object> configs = new HashMap<>(more);
        configs.put("bootstrap.servers", bootstrap);
        configs.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(configs, new StringDeserializer(), new StringDeserializer());
    }

    private List<ConsumerRecord<String, String>> read(String topic, String isolation, int count) throws Exception {
        try (KafkaConsumer<String, String> consumer = consumer(Map.of("isolation.level", isolation))) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map(info -> new TopicPartition(topic, info.partition())).toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            List<ConsumerRecord<String, String>> records = poll(consumer, count);
            consumer.poll(POLL).forEach(records::add); // Those that should not be there.
            return records;
        }
    }

    private static List<ConsumerRecord<String, String>> poll(KafkaConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        long deadline = System.nanoTime() + DEADLINE.toNanos();
        while (records.size() < count && System.nanoTime() < deadline) {
            consumer.poll(POLL).forEach(records::add);
        }
        return records;
    }

    private static List<String> values(List<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::value).toList();
    }

    private interface Action {
        void run() throws Exception;
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void fenced(Action action) throws Exception {
        try {
            action.run();
        } catch (ProducerFencedException | InvalidProducerEpochException expected) {
            return;
        } catch (ExecutionException | org.apache.kafka.common.KafkaException expected) {
            if (expected.getCause() instanceof ProducerFencedException
                    || expected.getCause() instanceof InvalidProducerEpochException) {
                return;
            }
            throw expected;
        }
        throw new AssertionError("the producer should have been fenced");
    }

    private static void eventually(Condition condition) throws Exception {
        long deadline = System.nanoTime() + DEADLINE.toNanos();
        while (!condition.holds()) {
            check(System.nanoTime() < deadline, "still waiting");
            Thread.sleep(50);
        }
    }

    private static void equal(Object expected, Object actual) {
        check(Objects.equals(expected, actual), "expected " + expected + " but got " + actual);
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
