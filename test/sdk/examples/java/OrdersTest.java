// SPDX-License-Identifier: Apache-2.0

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;

class OrdersTest {
    private static Process overdue;
    private static String broker; // host:port

    private String namespace;

    /** One broker for all tests of the class, on any free port. */
    @BeforeAll
    static void start() throws Exception {
        overdue = new ProcessBuilder("overdue", "broker", "--broker-listen", "127.0.0.1:0", "--isolate",
            "--broker-expiry", "eager", "--log-level", "warn").redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String start = "Endpoint=sb://";
        broker = overdue.inputReader().lines().filter(line -> line.startsWith(start)).findFirst().orElseThrow()
            .substring(start.length()).split(";")[0];
    }

    @AfterAll
    static void stop() {
        overdue.destroy();
    }

    @BeforeEach
    void name(TestInfo test) {
        namespace = test.getTestMethod().orElseThrow().getName();
    }

    /** A builder of clients of a namespace for this test alone. The broker creates its queues on first use. */
    private ServiceBusClientBuilder connect() {
        return new ServiceBusClientBuilder().retryOptions(new AmqpRetryOptions().setMaxRetries(0)).connectionString(
            "Endpoint=sb://" + broker + ";SharedAccessKeyName=" + namespace + ";SharedAccessKey=any;UseDevelopmentEmulator=true");
    }

    /** Reads or changes the state of the broker over HTTP. */
    private String control(String method, String path, String body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create("http://" + broker + "/_overdue/" + path + "?namespace=" + namespace))
            .method(method, HttpRequest.BodyPublishers.ofString(body)).build();
        HttpResponse<String> response = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        assertEquals(2, response.statusCode() / 100, response::body);
        return response.body();
    }

    @Test
    void orderIsReceived() throws Exception {
        try (ServiceBusSenderClient sender = connect().sender().queueName("orders").buildClient();
                ServiceBusReceiverClient receiver = connect().receiver().queueName("orders").buildClient()) {
            sender.sendMessage(new ServiceBusMessage("one coffee"));
            ServiceBusReceivedMessage message = receiver.receiveMessages(1).iterator().next();
            assertEquals("one coffee", message.getBody().toString());
            receiver.complete(message);
        }
        assertEquals("[]", control("GET", "messages/orders", "").strip());
    }

    @Test
    void orderExpiresAfterAnHour() throws Exception {
        try (ServiceBusSenderClient sender = connect().sender().queueName("orders").buildClient()) {
            sender.sendMessage(new ServiceBusMessage("one coffee").setTimeToLive(Duration.ofHours(1)));
        }
        control("POST", "clock", "{\"advance\": \"2h\"}");
        try {
            String dead = control("GET", "messages/orders/$DeadLetterQueue", "");
            assertTrue(dead.contains("TTLExpiredException"), dead);
        } finally {
            control("POST", "clock", "{\"offset\": \"0s\"}");
        }
    }

    @Test
    void fullQueueIsAnError() throws Exception {
        try (ServiceBusSenderClient sender = connect().sender().queueName("orders").buildClient()) {
            control("POST", "faults", "{\"entity\": \"orders\", \"operation\": \"send\", \"error\": \"full\", \"times\": 1}");
            assertThrows(ServiceBusException.class, () -> sender.sendMessage(new ServiceBusMessage("one coffee")));
            sender.sendMessage(new ServiceBusMessage("one coffee"));
        }
        control("POST", "reset", "");
    }
}
