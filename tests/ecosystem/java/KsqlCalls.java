import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.SecurityDisabledException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What a ksqlDB server asks of its cluster, in its order: at its start, for a command that it keeps in its command topic,
 * and for CREATE STREAM, CREATE TABLE and DROP STREAM ... DELETE TOPIC. Prints a line for each part that went well.
 * Argument: the bootstrap servers of a cluster of three brokers.
 */
public class KsqlCalls {
    private static final String COMMANDS = "_confluent-ksql-default__command_topic";
    private static final TopicPartition COMMAND_PARTITION = new TopicPartition(COMMANDS, 0);
    private static final Duration POLL = Duration.ofMillis(200);
    private static final int POLLS = 150;
    private static final Map<String, String> COMMAND_CONFIGS = Map.of(
            "retention.ms", "-1",
            "cleanup.policy", "delete",
            "unclean.leader.election.enable", "false",
            "min.insync.replicas", "2");

    private final String bootstrap;
    private final Admin admin;

    private KsqlCalls(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) throws Exception {
        KsqlCalls ksql = new KsqlCalls(arguments[0]);
        ksql.looksAtTheCluster();
        System.out.println("cluster");
        ksql.makesItsCommandTopic();
        System.out.println("command topic");
        ksql.writesAndReadsCommands();
        System.out.println("commands");
        ksql.createsStreamsAndTables();
        System.out.println("streams and tables");
        ksql.dropsThem();
        System.out.println("dropped");
        ksql.admin.close(Duration.ZERO);
    }

    /** Its id is part of the server's own; whether there is an authorizer decides how commands are checked. */
    private void looksAtTheCluster() throws Exception {
        check(!admin.describeCluster().clusterId().get().isEmpty(), "a cluster id");
        admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true))
                .authorizedOperations()
                .get();
        Config broker = brokerConfig();
        ConfigEntry authorizer = broker.get("authorizer.class.name");
        check(authorizer == null || authorizer.value() == null || authorizer.value().isEmpty(), "no authorizer");
        check("true".equals(broker.get("delete.topic.enable").value()), "topics can be deleted");
        check("3".equals(broker.get("default.replication.factor").value()), "the default number of replicas");
        fails(SecurityDisabledException.class, () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
    }

    private void makesItsCommandTopic() throws Exception {
        fails(UnknownTopicOrPartitionException.class, () -> described(COMMANDS));
        create(new NewTopic(COMMANDS, 1, (short) 3).configs(COMMAND_CONFIGS));
        fails(TopicExistsException.class, () -> create(new NewTopic(COMMANDS, 1, (short) 3)));
        check(described(COMMANDS).partitions().get(0).replicas().size() == 3, "three replicas");
        for (Map.Entry<String, String> wanted : COMMAND_CONFIGS.entrySet()) {
            check(wanted.getValue().equals(topicConfig(COMMANDS, wanted.getKey())), wanted.getKey());
        }
        String forEver = String.valueOf(Long.MAX_VALUE);
        AlterConfigOp set = new AlterConfigOp(new ConfigEntry("retention.ms", forEver), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(topic(COMMANDS), List.of(set))).all().get();
        eventually(() -> forEver.equals(topicConfig(COMMANDS, "retention.ms")), "the changed retention");
        check("2".equals(topicConfig(COMMANDS, "min.insync.replicas")), "the other configs stay");
    }

    /** A server writes a command in a transaction once it has read all before it; another server fences it. */
    private void writesAndReadsCommands() throws Exception {
        try (KafkaConsumer<String, String> reader = commandReader();
                KafkaProducer<String, String> first = commandWriter()) {
            first.initTransactions();
            write(reader, first, "CREATE STREAM given up", false);
            write(reader, first, "CREATE STREAM a", true);
            try (KafkaProducer<String, String> second = commandWriter()) {
                second.initTransactions();
                boolean fenced = false;
                try {
                    write(reader, first, "CREATE STREAM by the old server", true);
                } catch (KafkaException error) {
                    fenced = true;
                }
                check(fenced, "the first server is fenced");
                write(reader, second, "CREATE STREAM b", true);
            }
            reader.seekToBeginning(Set.of(COMMAND_PARTITION));
            StringBuilder read = new StringBuilder();
            eventually(() -> {
                reader.poll(POLL).forEach(each -> read.append(each.value()).append(';'));
                return read.toString().equals("CREATE STREAM a;CREATE STREAM b;");
            }, "both commands and no other");
        }
    }

    private void write(
            KafkaConsumer<String, String> reader, KafkaProducer<String, String> writer, String command, boolean commits)
            throws Exception {
        writer.beginTransaction();
        long end = reader.endOffsets(Set.of(COMMAND_PARTITION)).get(COMMAND_PARTITION);
        eventually(() -> {
            reader.poll(POLL);
            return reader.position(COMMAND_PARTITION) >= end;
        }, "everything before the command");
        writer.send(new ProducerRecord<>(COMMANDS, 0, "stream", command));
        writer.flush();
        if (commits) {
            writer.commitTransaction();
        } else {
            writer.abortTransaction();
        }
    }

    private void createsStreamsAndTables() throws Exception {
        NewTopic stream = new NewTopic("KSQL_STREAM", Optional.of(3), Optional.empty()).configs(Map.of());
        admin.createTopics(List.of(stream), new CreateTopicsOptions().validateOnly(true)).all().get();
        check(!names().contains("KSQL_STREAM"), "only checked, not made");
        create(stream);
        TopicDescription made = described("KSQL_STREAM");
        check(made.partitions().size() == 3, "three partitions");
        check(made.partitions().stream().allMatch(each -> each.replicas().size() == 3), "the default of replicas");
        create(new NewTopic("KSQL_TABLE", 3, (short) 3).configs(Map.of("cleanup.policy", "compact")));
        Map<String, String> windowed = Map.of("cleanup.policy", "compact,delete", "retention.ms", "86400000");
        create(new NewTopic("KSQL_WINDOWED", 3, (short) 3).configs(windowed));
        check("compact".equals(topicConfig("KSQL_TABLE", "cleanup.policy")), "a compacted table");
        check("compact,delete".equals(topicConfig("KSQL_WINDOWED", "cleanup.policy")), "a windowed table");
        for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest())) {
            Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
            for (int index = 0; index < 3; index++) {
                asked.put(new TopicPartition("KSQL_STREAM", index), spec);
            }
            check(admin.listOffsets(asked).all().get().values().stream().allMatch(each -> each.offset() == 0), "offsets");
        }
        String query = "_confluent-ksql-default_query_CSAS_1";
        check(admin.listConsumerGroupOffsets(query).partitionsToOffsetAndMetadata().get().isEmpty(), "no offsets yet");
    }

    private void dropsThem() throws Exception {
        Collection<String> topics = List.of("KSQL_STREAM", "KSQL_TABLE", "KSQL_WINDOWED", COMMANDS);
        admin.deleteTopics(topics).all().get();
        eventually(() -> topics.stream().noneMatch(names()::contains), "the topics to be gone");
    }

    private Config brokerConfig() throws Exception {
        int any = admin.describeCluster().nodes().get().iterator().next().id();
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, String.valueOf(any));
        return admin.describeConfigs(List.of(broker)).all().get().get(broker);
    }

    private Set<String> names() throws ExecutionException, InterruptedException {
        return admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
    }

    private void create(NewTopic topic) throws Exception {
        admin.createTopics(List.of(topic), new CreateTopicsOptions().validateOnly(false)).all().get();
        eventually(() -> names().contains(topic.name()), topic.name());
    }

    private TopicDescription described(String name) throws Exception {
        return admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
    }

    private static ConfigResource topic(String name) {
        return new ConfigResource(ConfigResource.Type.TOPIC, name);
    }

    private String topicConfig(String name, String key) throws Exception {
        return admin.describeConfigs(List.of(topic(name))).all().get().get(topic(name)).get(key).value();
    }

    private KafkaConsumer<String, String> commandReader() {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap, "isolation.level", "read_committed", "auto.offset.reset", "none");
        KafkaConsumer<String, String> reader =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        reader.assign(List.of(COMMAND_PARTITION));
        reader.seekToBeginning(List.of(COMMAND_PARTITION));
        return reader;
    }

    private KafkaProducer<String, String> commandWriter() {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap, "transactional.id", "default_", "acks", "all");
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError("not so: " + what);
        }
    }

    private static void fails(Class<? extends Throwable> expected, Step step) throws Exception {
        try {
            step.run();
        } catch (ExecutionException error) {
            check(expected.isInstance(error.getCause()), expected + ", but " + error.getCause());
            return;
        }
        throw new AssertionError("no " + expected);
    }

    private interface Step {
        void run() throws Exception;
    }

    private static void eventually(Callable<Boolean> condition, String what) throws Exception {
        for (int count = 0; count < POLLS; count++) {
            if (condition.call()) {
                return;
            }
            Thread.sleep(50);
        }
        throw new AssertionError("still waiting for " + what);
    }
}
