import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends the golden records of content.py with the Java client, to the topic java-CODEC for each codec. The topics must exist.
 *
 * java -cp 'kafka-clients and its dependencies' CaptureProducer.java BOOTSTRAP
 */
public class CaptureProducer {
    private static final long BASE_TIMESTAMP_MS = 1_700_000_000_000L;
    private static final long DAY_MS = 24L * 60 * 60 * 1000;

    public static void main(String[] arguments) {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            Properties config = new Properties();
            config.put("bootstrap.servers", arguments[0]);
            config.put("compression.type", codec);
            config.put("linger.ms", "300");
            try (var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
                sendAll(producer, "java-" + codec);
            }
        }
    }

    private static void sendAll(KafkaProducer<byte[], byte[]> producer, String topic) {
        List<Header> none = List.of();
        List<Header> headers = List.of(
            new RecordHeader("trace", utf8("first")),
            new RecordHeader("trace", utf8("second")),
            new RecordHeader("empty", new byte[0]),
            new RecordHeader("größe", new byte[] {0, (byte) 0xff}));
        send(producer, topic, 0, utf8("key-0"), utf8("a value that shrinks ".repeat(20)), none);
        send(producer, topic, 5, null, utf8("a value without a key"), none);
        send(producer, topic, 3, utf8("tombstone"), null, none);
        send(producer, topic, 7, utf8("key-3"), utf8("a value with headers"), headers);
        send(producer, topic, 40 * DAY_MS, new byte[0], new byte[0], none);
    }

    private static void send(
            KafkaProducer<byte[], byte[]> producer, String topic, long delayMs, byte[] key, byte[] value, List<Header> headers) {
        producer.send(new ProducerRecord<>(topic, 0, BASE_TIMESTAMP_MS + delayMs, key, value, headers));
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
