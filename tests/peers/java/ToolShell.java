import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs many command-line tools in one JVM, one after the other, since a JVM costs seconds to start. Each line of
 * standard input asks for one run (main class, arguments, standard input); each line of output tells its exit status
 * and what it printed.
 */
public class ToolShell {
    /** What a tool's exit becomes, so that the JVM goes on. */
    private static final class Exited extends RuntimeException {
        Exited(int status) {
            super("exit status " + status);
        }
    }

    private static final ObjectMapper JSON = new ObjectMapper();

    /** Of the current run: a tool writes out what it holds when its JVM ends, and this one goes on. */
    private static final List<Runnable> shutdownHooks = new ArrayList<>();

    /** Of the current run. The first one counts: a tool that catches everything catches its own exit, too. */
    private static Integer exitStatus;

    public static void main(String[] arguments) throws Exception {
        Exit.Procedure exit = (status, message) -> {
            if (exitStatus == null) {
                exitStatus = status;
            }
            throw new Exited(status);
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Exit.setShutdownHookAdder((name, hook) -> shutdownHooks.add(hook));
        PrintStream answers = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(JSON.writeValueAsString(run(JSON.readTree(line))));
            answers.flush();
        }
        System.exit(0);
    }

    private static ObjectNode run(JsonNode request) {
        InputStream stdinBefore = System.in;
        PrintStream stdoutBefore = System.out;
        PrintStream stderrBefore = System.err;
        ByteArrayOutputStream stdout = new ByteArrayOutputStream();
        ByteArrayOutputStream stderr = new ByteArrayOutputStream();
        int status;
        request.get("properties").fields().forEachRemaining(
            property -> System.setProperty(property.getKey(), property.getValue().asText()));
        try {
            System.setIn(new ByteArrayInputStream(request.get("stdin").asText().getBytes(StandardCharsets.UTF_8)));
            System.setOut(new PrintStream(stdout, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(stderr, true, StandardCharsets.UTF_8));
            status = runMain(request.get("main").asText(), texts(request.get("arguments")));
        } finally {
            System.setIn(stdinBefore);
            System.setOut(stdoutBefore);
            System.setErr(stderrBefore);
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.put("status", status);
        answer.put("stdout", stdout.toString(StandardCharsets.UTF_8));
        answer.put("stderr", stderr.toString(StandardCharsets.UTF_8));
        return answer;
    }

    private static int runMain(String mainClass, String[] arguments) {
        exitStatus = null;
        shutdownHooks.clear();
        boolean failed = false;
        try {
            Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            failed = true;
            thrown.getCause().printStackTrace();
        } catch (ReflectiveOperationException missing) {
            failed = true;
            missing.printStackTrace();
        }
        shutdownHooks.forEach(Runnable::run);
        if (exitStatus != null) {
            return exitStatus;
        }
        return failed ? 1 : 0;
    }

    private static String[] texts(JsonNode array) {
        List<String> texts = new ArrayList<>();
        array.forEach(node -> texts.add(node.asText()));
        return texts.toArray(new String[0]);
    }
}
