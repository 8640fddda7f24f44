import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java producer with its defaults, as librdkafka_probe.py is for the other client: a record every 2 ms for one
 * partition, and when each was handed over and acknowledged. System.nanoTime is the clock that the other processes
 * read too. Arguments: the bootstrap servers, the topic, its partitions.
 */
public class ProduceProbe {
    private static final long INTERVAL_NS = 2_000_000;
    private static final long STEADY_NS = 300_000_000;
    private static final int SENDS_PER_ROUND = 25;
    private static final byte[] VALUE = new byte[100];

    private final KafkaProducer<byte[], byte[]> producer;
    private final String topic;
    private final int partitions;
    private int sends = 0;
    private volatile int partition = -1;
    private List<long[]> acknowledged = new ArrayList<>();
    private int failed = 0;

    ProduceProbe(String bootstrap, String topic, int partitions) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        this.producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        this.topic = topic;
        this.partitions = partitions;
    }

    public static void main(String[] arguments) throws Exception {
        ProduceProbe probe = new ProduceProbe(arguments[0], arguments[1], Integer.parseInt(arguments[2]));
        Thread sender = new Thread(probe::run);
        sender.setDaemon(true);
        sender.start();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.trim().split(" ");
            System.out.println(
                switch (words[0]) {
                    case "partition" -> probe.switchTo(Integer.parseInt(words[1]));
                    case "lately" -> probe.acknowledgedLately();
                    default -> probe.firstAcknowledged(Long.parseLong(words[1]));
                });
            System.out.flush();
        }
        System.exit(0);
    }

    private void run() {
        long due = System.nanoTime();
        while (true) {
            long now = System.nanoTime();
            if (now >= due) {
                due = Math.max(due + INTERVAL_NS, now - INTERVAL_NS);
                send(now);
            }
            LockSupport.parkNanos(Math.max(0, due - System.nanoTime()));
        }
    }

    private void send(long handedOver) {
        int target = partition;
        if (target < 0) {
            return;
        }
        producer.send(
            new ProducerRecord<>(topic, target, null, VALUE),
            (metadata, error) -> {
                synchronized (this) {
                    if (target != partition) {
                        return;
                    }
                    if (error != null) {
                        failed++;
                    } else {
                        acknowledged.add(new long[] {System.nanoTime(), handedOver});
                    }
                }
            });
        if (++sends % SENDS_PER_ROUND == 0) {
            for (int other = 0; other < partitions; other++) {
                if (other != target) {
                    producer.send(new ProducerRecord<>(topic, other, null, VALUE));
                }
            }
        }
    }

    private synchronized String switchTo(int target) {
        partition = target;
        acknowledged = new ArrayList<>();
        failed = 0;
        return "ok";
    }

    private synchronized String acknowledgedLately() {
        long since = System.nanoTime() - STEADY_NS;
        int count = 0;
        for (int index = acknowledged.size() - 1; index >= 0 && acknowledged.get(index)[0] >= since; index--) {
            count++;
        }
        return String.valueOf(count);
    }

    private synchronized String firstAcknowledged(long handedOverAfter) {
        for (long[] each : acknowledged) {
            if (each[1] > handedOverAfter) {
                return each[0] + " " + failed;
            }
        }
        return "0 " + failed;
    }
}
