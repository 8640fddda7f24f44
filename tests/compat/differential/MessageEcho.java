import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Decodes messages from standard input with Apache Kafka's own classes, encodes each again, and writes it to standard
 * output. In: API key (short), is it a request (byte), version (short), length (int), bytes; a length of -1 asks for the
 * message with all its defaults. Out: length (int), bytes; a length of -1 stands for a message that was refused.
 */
public final class MessageEcho {
    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        while (true) {
            ApiMessageType type;
            try {
                type = ApiMessageType.fromApiKey(in.readShort());
            } catch (EOFException end) {
                break;
            }
            ApiMessage message = in.readBoolean() ? type.newRequest() : type.newResponse();
            short version = in.readShort();
            int length = in.readInt();
            answer(message, version, length < 0 ? null : in.readNBytes(length), out);
        }
        out.flush();
    }

    private static void answer(ApiMessage message, short version, byte[] body, DataOutputStream out)
            throws IOException {
        try {
            byte[] encoded = echo(message, version, body);
            out.writeInt(encoded.length);
            out.write(encoded);
        } catch (RuntimeException refused) {
            System.err.println(message.getClass().getSimpleName() + " version " + version + ": " + refused);
            out.writeInt(-1);
        }
    }

    private static byte[] echo(ApiMessage message, short version, byte[] body) {
        if (body != null) {
            ByteBuffer input = ByteBuffer.wrap(body);
            message.read(new ByteBufferAccessor(input), version);
            if (input.hasRemaining()) {
                throw new IllegalStateException(input.remaining() + " bytes are left over");
            }
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer output = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(output), cache, version);
        return output.array();
    }
}
