import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/** Carries out the lines of a file with Apache Kafka's own classes, and writes an answer in a line for each question. */
public class Decisions {
    record Context(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "LISTENER"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 1; }
        public int requestVersion() { return 1; }
        public String clientId() { return "client"; }
        public int correlationId() { return 1; }
    }

    private StandardAuthorizer authorizer;
    private SslPrincipalMapper mapper;
    private final StringBuilder answers = new StringBuilder();

    public static void main(String[] arguments) throws Exception {
        Decisions decisions = new Decisions();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            decisions.take(line.split("\t", -1));
        }
        Files.writeString(Path.of(arguments[1]), decisions.answers.toString());
    }

    private void take(String[] words) throws Exception {
        switch (words[0]) {
            case "authorizer" -> begin(words[1]);
            case "acl" -> authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(
                ResourceType.fromCode(code(words[1])), words[2], PatternType.fromCode(code(words[3])), words[4], words[5],
                AclOperation.fromCode(code(words[6])), AclPermissionType.fromCode(code(words[7]))));
            case "may" -> answer(authorizer.authorize(context(words), List.of(new Action(
                AclOperation.fromCode(code(words[3])),
                new ResourcePattern(ResourceType.fromCode(code(words[4])), words[5], PatternType.LITERAL),
                1, false, false))).get(0) == AuthorizationResult.ALLOWED);
            case "may-on-any" -> answer(authorizer.authorizeByResourceType(
                context(words), AclOperation.fromCode(code(words[3])), ResourceType.fromCode(code(words[4])))
                == AuthorizationResult.ALLOWED);
            case "rules" -> mapper = SslPrincipalMapper.fromRules(words[1]);
            case "map" -> map(words[1]);
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private void begin(String allowsWithoutAcl) {
        authorizer = new StandardAuthorizer();
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), new HashMap<>()));
        authorizer.configure(Map.of(
            "node.id", "1", "super.users", "User:root", "allow.everyone.if.no.acl.found", allowsWithoutAcl));
        authorizer.completeInitialLoad();
    }

    private static Context context(String[] words) throws Exception {
        return new Context(new KafkaPrincipal("User", words[1]), InetAddress.getByName(words[2]));
    }

    private static byte code(String word) {
        return Byte.parseByte(word);
    }

    private void map(String subject) {
        String name;
        try {
            name = mapper.getName(subject);
        } catch (Exception nobody) {
            name = "";
        }
        answers.append(name).append("\n");
    }

    private void answer(boolean isAllowed) {
        answers.append(isAllowed).append("\n");
    }
}
