import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateDelegationTokenOptions;
import org.apache.kafka.clients.admin.DescribeDelegationTokenOptions;
import org.apache.kafka.clients.admin.ExpireDelegationTokenOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RenewDelegationTokenOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.errors.UnsupportedByAuthenticationException;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.token.delegation.DelegationToken;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * How the Java client logs in. All checks run in one JVM; for each a line of JSON tells how it failed, or null.
 *
 * Argument: a JSON file with settings of clients by name. Those of "logins" write and read; those of "renewed" do so
 * until they have logged in anew on open connections; those of "refused" are told "error" (a class) and "says"; "owner"
 * makes delegation tokens, with which "byToken" and "renewedByToken" log in, less the login itself.
 */
public class SecurityChecks {
    private static final int RECORDS = 200;
    private static final int RENEWALS = 3;
    private static final Duration POLL = Duration.ofMillis(200);
    private static final Duration DEADLINE = Duration.ofSeconds(60);
    private static final ObjectMapper JSON = new ObjectMapper();

    private final JsonNode cases;

    private SecurityChecks(JsonNode cases) {
        this.cases = cases;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Callable<Void>> checks = new SecurityChecks(JSON.readTree(new File(arguments[0]))).all();
        // Side by side: most of their time they wait for a login to end.
        ExecutorService threads = Executors.newFixedThreadPool(checks.size());
        Map<String, Future<String>> failures = new LinkedHashMap<>();
        checks.forEach((name, check) -> failures.put(name, threads.submit(() -> failureOf(check))));
        for (Map.Entry<String, Future<String>> failure : failures.entrySet()) {
            Map<String, String> outcome = new HashMap<>();
            outcome.put("check", failure.getKey());
            outcome.put("failure", failure.getValue().get());
            System.out.println(JSON.writeValueAsString(outcome));
        }
        System.exit(0);
    }

    private Map<String, Callable<Void>> all() {
        Map<String, Callable<Void>> checks = new LinkedHashMap<>();
        each("logins", (name, login) -> checks.put(name + " writes and reads", () -> writesAndReads(name, login)));
        each("renewed", (name, login) -> checks.put(name + " logs in anew", () -> logsInAnew("renewed-" + name, login)));
        cases.get("refused").fields().forEachRemaining(refused ->
            checks.put(refused.getKey() + " is refused", () -> isRefused(refused.getValue())));
        checks.put("a delegation token writes, reads and ends", this::tokenWritesReadsAndEnds);
        checks.put("a delegation token logs in anew", this::tokenLogsInAnew);
        checks.put("a delegation token that ends ends its login", this::tokenThatEndsEndsItsLogin);
        return checks;
    }

    private interface Taking {
        void take(String name, Map<String, Object> settings);
    }

    private void each(String kind, Taking taking) {
        cases.get(kind).fields().forEachRemaining(login -> taking.take(login.getKey(), settings(login.getValue())));
    }

    private static Map<String, Object> settings(JsonNode node) {
        return JSON.convertValue(node, new TypeReference<Map<String, Object>>() { });
    }

    private static String failureOf(Callable<Void> check) {
        try {
            check.call();
            return null;
        } catch (Throwable thrown) {
            StringWriter text = new StringWriter();
            thrown.printStackTrace(new PrintWriter(text));
            return text.toString();
        }
    }

    // Logins

    private Void writesAndReads(String name, Map<String, Object> login) throws Exception {
        String topic = "java-" + name;
        create(login, topic);
        try (KafkaProducer<String, String> producer = producer(login)) {
            List<Future<?>> sent = new ArrayList<>();
            for (int number = 0; number < RECORDS; number++) {
                sent.add(producer.send(new ProducerRecord<>(topic, Integer.toString(number))));
            }
            for (Future<?> each : sent) {
                each.get();
            }
        }
        try (KafkaConsumer<String, String> consumer = consumer(login, topic); Admin admin = Admin.create(login)) {
            consumer.subscribe(List.of(topic));
            equal(numbers(RECORDS), readUntil(consumer, RECORDS));
            consumer.commitSync();
            TopicPartition only = new TopicPartition(topic, 0);
            Map<TopicPartition, ?> committed =
                admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get();
            equal(Set.of(only), committed.keySet());
            equal(bootstrap(login), admin.describeCluster().nodes().get().stream()
                .map(node -> node.host() + ":" + node.port()).collect(Collectors.joining(",")));
        }
        return null;
    }

    private static Object bootstrap(Map<String, Object> login) {
        return login.get("bootstrap.servers");
    }

    private Void logsInAnew(String topic, Map<String, Object> login) throws Exception {
        create(login, topic);
        ConcurrentLinkedQueue<Exception> errors = new ConcurrentLinkedQueue<>();
        int written = 0;
        List<String> read = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(login);
                KafkaConsumer<String, String> consumer = consumer(login, topic)) {
            consumer.subscribe(List.of(topic));
            long deadline = System.nanoTime() + DEADLINE.toNanos();
            while (renewals(producer.metrics()) < RENEWALS || renewals(consumer.metrics()) < RENEWALS) {
                that(System.nanoTime() < deadline, "renewed logins within " + DEADLINE);
                producer.send(new ProducerRecord<>(topic, Integer.toString(written++)), (sent, error) -> {
                    if (error != null) {
                        errors.add(error);
                    }
                });
                consumer.poll(Duration.ofMillis(5)).forEach(record -> read.add(record.value()));
            }
            producer.flush();
            read.addAll(readUntil(consumer, written - read.size()));
            that(errors.isEmpty(), "errors: " + errors);
            equal(0.0, metric(producer.metrics(), "failed-reauthentication-total"));
            equal(0.0, metric(consumer.metrics(), "failed-reauthentication-total"));
        }
        equal(numbers(written), read);
        return null;
    }

    private static double renewals(Map<MetricName, ? extends Metric> metrics) {
        return metric(metrics, "successful-reauthentication-total");
    }

    private static double metric(Map<MetricName, ? extends Metric> metrics, String name) {
        return metrics.entrySet().stream()
            .filter(each -> each.getKey().name().equals(name) && each.getKey().group().endsWith("-metrics"))
            .mapToDouble(each -> (Double) each.getValue().metricValue())
            .sum();
    }

    private Void isRefused(JsonNode refused) throws Exception {
        Throwable error = failure(settings(refused.get("settings")));
        equal(refused.get("error").asText(), error.getClass().getSimpleName());
        String said = "";
        for (Throwable each = error; each != null; each = each.getCause()) {
            said += each.getMessage() + "; ";
        }
        that(said.contains(refused.get("says").asText()), said);
        return null;
    }

    private static Throwable failure(Map<String, Object> login) throws Exception {
        try (Admin admin = Admin.create(login)) {
            admin.describeCluster().nodes().get();
        } catch (ExecutionException refused) {
            return refused.getCause();
        }
        throw new AssertionError("it was let in");
    }

    // Delegation tokens

    private Void tokenWritesReadsAndEnds() throws Exception {
        try (Admin owner = Admin.create(settings(cases.get("owner")))) {
            KafkaPrincipal renewer = new KafkaPrincipal(KafkaPrincipal.USER_TYPE, "renewer");
            DelegationToken token = owner.createDelegationToken(
                new CreateDelegationTokenOptions().renewers(List.of(renewer)).maxLifetimeMs(3_600_000)).delegationToken().get();
            equal("User:" + cases.get("ownerName").asText(), token.tokenInfo().ownerAsString());
            equal(List.of(renewer), List.copyOf(token.tokenInfo().renewers()));
            Map<String, Object> byToken = by(token, "byToken");
            writesAndReads("delegation-token", byToken);
            fails(UnsupportedByAuthenticationException.class, () -> {
                try (Admin holder = Admin.create(byToken)) {
                    return holder.createDelegationToken().delegationToken().get();
                }
            });

            long until = owner.renewDelegationToken(
                token.hmac(), new RenewDelegationTokenOptions().renewTimePeriodMs(600_000)).expiryTimestamp().get();
            List<DelegationToken> described = owner.describeDelegationToken(
                new DescribeDelegationTokenOptions().owners(List.of(token.tokenInfo().owner()))).delegationTokens().get();
            DelegationToken found = described.stream()
                .filter(each -> each.tokenInfo().tokenId().equals(token.tokenInfo().tokenId())).findFirst().orElseThrow();
            equal(until, found.tokenInfo().expiryTimestamp());
            equal(token.hmacAsBase64String(), found.hmacAsBase64String());

            owner.expireDelegationToken(
                token.hmac(), new ExpireDelegationTokenOptions().expiryTimePeriodMs(-1)).expiryTimestamp().get();
            equal(SaslAuthenticationException.class, failure(byToken).getClass());
        }
        return null;
    }

    private Void tokenLogsInAnew() throws Exception {
        try (Admin owner = Admin.create(settings(cases.get("owner")))) {
            logsInAnew("renewed-by-token", by(owner.createDelegationToken().delegationToken().get(), "renewedByToken"));
        }
        return null;
    }

    /** The client logs in anew while the token is good, on the connection that it has. */
    private Void tokenThatEndsEndsItsLogin() throws Exception {
        try (Admin owner = Admin.create(settings(cases.get("owner")))) {
            DelegationToken token = owner.createDelegationToken(
                new CreateDelegationTokenOptions().maxLifetimeMs(4000)).delegationToken().get();
            try (Admin holder = Admin.create(by(token, "byToken"))) {
                holder.describeCluster().nodes().get();
                long deadline = System.nanoTime() + DEADLINE.toNanos();
                while (System.nanoTime() < deadline) {
                    holder.describeCluster().nodes().get();
                    Thread.sleep(50);
                }
            } catch (ExecutionException refused) {
                equal(SaslAuthenticationException.class, refused.getCause().getClass());
                that(token.tokenInfo().maxTimestamp() <= System.currentTimeMillis(), "it was good until its end");
                return null;
            }
        }
        throw new AssertionError("it is still let in");
    }

    private Map<String, Object> by(DelegationToken token, String where) {
        Map<String, Object> login = settings(cases.get(where));
        login.put("sasl.mechanism", "SCRAM-SHA-256");
        login.put("sasl.jaas.config", String.format(
            "org.apache.kafka.common.security.scram.ScramLoginModule required tokenauth=\"true\" username=\"%s\" password=\"%s\";",
            token.tokenInfo().tokenId(), token.hmacAsBase64String()));
        return login;
    }

    // Clients

    private static void create(Map<String, Object> login, String topic) throws Exception {
        try (Admin admin = Admin.create(login)) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) -1))).all().get();
        }
    }

    private static KafkaProducer<String, String> producer(Map<String, Object> login) {
        return new KafkaProducer<>(login, new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(Map<String, Object> login, String group) {
        Map<String, Object> settings = new HashMap<>(login);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static List<String> readUntil(KafkaConsumer<String, String> consumer, int count) {
        List<String> values = new ArrayList<>();
        long deadline = System.nanoTime() + DEADLINE.toNanos();
        while (values.size() < count) {
            that(System.nanoTime() < deadline, count + " records, not " + values.size());
            for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                values.add(record.value());
            }
        }
        return values;
    }

    private static List<String> numbers(int count) {
        return IntStream.range(0, count).mapToObj(Integer::toString).toList();
    }

    private static void fails(Class<? extends Throwable> expected, Callable<?> action) throws Exception {
        try {
            action.call();
        } catch (ExecutionException refused) {
            equal(expected, refused.getCause().getClass());
            return;
        }
        throw new AssertionError("it did not fail with " + expected);
    }

    private static void equal(Object expected, Object found) {
        that(expected == null ? found == null : expected.equals(found), "expected " + expected + ", found " + found);
    }

    private static void that(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
