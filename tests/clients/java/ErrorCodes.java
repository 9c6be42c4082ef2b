import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/** Prints each of Kafka's error codes: its number, its name, and whether clients ask again by themselves. */
public class ErrorCodes {
    public static void main(String[] arguments) {
        for (Errors error : Errors.values())
            System.out.println(error.code() + " " + error.name() + " " + (error.exception() instanceof RetriableException));
    }
}
