// SPDX-License-Identifier: Apache-2.0

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.time.Duration;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;

class OrdersTest {
    private static Broker broker;

    private String name;

    @BeforeAll
    static void start() throws Exception {
        broker = new Broker("../Config.json");
    }

    @AfterAll
    static void stop() throws Exception {
        broker.close();
    }

    @BeforeEach
    void name(TestInfo test) {
        name = test.getTestMethod().orElseThrow().getName();
    }

    /** A builder of clients of a namespace for this test alone. */
    private ServiceBusClientBuilder connect() {
        return new ServiceBusClientBuilder().retryOptions(new AmqpRetryOptions().setMaxRetries(0)).connectionString(broker.connectionString(name));
    }

    private ServiceBusSenderClient sender(String queue) {
        return connect().sender().queueName(queue).buildClient();
    }

    @Test
    void orderIsReceived() throws Exception {
        try (ServiceBusSenderClient sender = sender("test-orders");
                ServiceBusReceiverClient receiver = connect().receiver().queueName("test-orders").buildClient()) {
            sender.sendMessage(new ServiceBusMessage("one coffee"));
            ServiceBusReceivedMessage message = receiver.receiveMessages(1).iterator().next();
            assertEquals("one coffee", message.getBody().toString());
            receiver.complete(message);
        }
        assertEquals("[]", broker.control(name, "GET", "messages/test-orders", "").strip());
    }

    @Test
    void orderExpiresAfterAnHour() throws Exception {
        try (ServiceBusSenderClient sender = sender("test-orders")) {
            sender.sendMessage(new ServiceBusMessage("one coffee").setTimeToLive(Duration.ofHours(1)));
        }
        broker.control(name, "POST", "clock", "{\"advance\": \"2h\"}");
        String dead = broker.control(name, "GET", "messages/test-orders/$DeadLetterQueue", "");
        assertTrue(dead.contains("TTLExpiredException"), dead);
    }

    @Test
    void fullQueueIsAnError() throws Exception {
        try (ServiceBusSenderClient sender = sender("test-orders")) {
            broker.control(name, "POST", "faults", "{\"entity\": \"test-orders\", \"operation\": \"send\", \"error\": \"full\", \"times\": 1}");
            assertThrows(ServiceBusException.class, () -> sender.sendMessage(new ServiceBusMessage("one coffee")));
            sender.sendMessage(new ServiceBusMessage("one coffee"));
        }
    }

    @Test
    void misspeltQueueIsAnError() {
        try (ServiceBusSenderClient sender = sender("test-order")) {
            ServiceBusException e = assertThrows(ServiceBusException.class, () -> sender.sendMessage(new ServiceBusMessage("one coffee")));
            assertEquals(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, e.getReason());
        }
    }
}
