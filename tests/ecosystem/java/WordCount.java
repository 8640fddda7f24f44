import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;

/**
 * Counts in how many lines each word occurs. A line's key is its id; its value is words.
 *
 * With at_least_once the state of a word is the set of the ids of its lines, so that a line that is taken twice counts
 * once. With exactly_once_v2 it is a plain count, which is right only if no line is ever taken twice.
 *
 * Arguments: bootstrap servers, application id, state folder, processing guarantee, source topic, target topic, and a
 * file of further settings if there are any.
 */
public class WordCount {
    public static void main(String[] arguments) throws IOException {
        Properties configs = new Properties();
        configs.put("bootstrap.servers", arguments[0]);
        configs.put("application.id", arguments[1]);
        configs.put("state.dir", arguments[2]);
        configs.put("processing.guarantee", arguments[3]);
        configs.put("default.key.serde", Serdes.String().getClass().getName());
        configs.put("default.value.serde", Serdes.String().getClass().getName());
        configs.put("replication.factor", "3");
        configs.put("num.stream.threads", "2");
        configs.put("commit.interval.ms", "200");
        configs.put("statestore.cache.max.bytes", "0");
        configs.put("auto.offset.reset", "earliest");
        configs.put("session.timeout.ms", "6000");
        configs.put("heartbeat.interval.ms", "1000");
        if (arguments.length > 6) {
            try (Reader further = Files.newBufferedReader(Path.of(arguments[6]))) {
                configs.load(further);
            }
        }

        boolean countsPlainly = arguments[3].equals("exactly_once_v2");
        KafkaStreams streams = new KafkaStreams(topology(countsPlainly, arguments[4], arguments[5]).build(), configs);
        streams.setStateListener((now, before) -> {
            System.out.println("state " + now);
            if (now == KafkaStreams.State.ERROR) {
                Runtime.getRuntime().halt(1);
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
        streams.start();
    }

    private static StreamsBuilder topology(boolean countsPlainly, String source, String target) {
        StreamsBuilder builder = new StreamsBuilder();
        KGroupedStream<String, String> linesByWord = builder.<String, String>stream(source)
            .flatMap((id, line) -> Arrays.stream(line.split(" "))
                .distinct()
                .map(word -> KeyValue.pair(word, id))
                .collect(Collectors.toList()))
            .groupByKey(Grouped.as("words"));
        KTable<String, String> counts = countsPlainly ? plainCounts(linesByWord) : countsOfIds(linesByWord);
        counts.toStream().to(target);
        return builder;
    }

    private static KTable<String, String> plainCounts(KGroupedStream<String, String> linesByWord) {
        return linesByWord.count(Materialized.as("counts")).mapValues(count -> Long.toString(count));
    }

    private static KTable<String, String> countsOfIds(KGroupedStream<String, String> linesByWord) {
        return linesByWord
            .aggregate(() -> "", (word, id, ids) -> with(ids, id), Materialized.as("counts"))
            .mapValues(ids -> Integer.toString(ids.split(",").length));
    }

    private static String with(String ids, String id) {
        TreeSet<String> all = ids.isEmpty() ? new TreeSet<>() : new TreeSet<>(Arrays.asList(ids.split(",")));
        all.add(id);
        return String.join(",", all);
    }
}
