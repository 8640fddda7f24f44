import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Copies a topic exactly once until its standard input ends: consumes, transforms and produces in transactions. A
 * failure ends both clients, and the next ones go on from what is committed. Each commit prints a line. Arguments: the
 * bootstrap servers, the transactional id, the source topic, the target topic, the group.
 */
public class ExactlyOnceCopier {
    private final String bootstrap;
    private final String name;
    private final String source;
    private final String target;
    private final String group;
    private volatile boolean isStopping;

    private ExactlyOnceCopier(String[] arguments) {
        bootstrap = arguments[0];
        name = arguments[1];
        source = arguments[2];
        target = arguments[3];
        group = arguments[4];
    }

    public static void main(String[] arguments) throws Exception {
        ExactlyOnceCopier copier = new ExactlyOnceCopier(arguments);
        Thread copying = new Thread(copier::run);
        copying.start();
        while (System.in.read() >= 0) {
            // Nothing is said here; only the end counts.
        }
        copier.isStopping = true;
        copying.join();
        System.exit(0);
    }

    private void run() {
        while (!isStopping) {
            try {
                copyUntilAFailure();
            } catch (KafkaException failure) {
                System.err.println(failure);
            }
        }
    }

    private void copyUntilAFailure() {
        try (KafkaProducer<String, String> producer = producer(); KafkaConsumer<String, String> consumer = consumer()) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            while (!isStopping) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (!records.isEmpty()) {
                    copy(producer, consumer, records);
                }
            }
        }
    }

    private void copy(
            KafkaProducer<String, String> producer,
            KafkaConsumer<String, String> consumer,
            ConsumerRecords<String, String> records) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(target, "copy of " + record.value()));
            offsets.put(new TopicPartition(source, record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        producer.commitTransaction();
        System.out.println("committed");
    }

    private KafkaProducer<String, String> producer() {
        Map<String, Object> configs = new HashMap<>();
        configs.put("bootstrap.servers", bootstrap);
        configs.put("transactional.id", name);
        configs.put("transaction.timeout.ms", 10_000);
        return new KafkaProducer<>(configs, new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer() {
        Map<String, Object> configs = new HashMap<>();
        configs.put("bootstrap.servers", bootstrap);
        configs.put("group.id", group);
        configs.put("auto.offset.reset", "earliest");
        configs.put("enable.auto.commit", false);
        configs.put("isolation.level", "read_committed");
        configs.put("session.timeout.ms", 6_000);
        configs.put("max.poll.records", 40);
        return new KafkaConsumer<>(configs, new StringDeserializer(), new StringDeserializer());
    }
}
