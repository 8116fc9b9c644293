// SPDX-License-Identifier: Apache-2.0

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;

/** Sends an order that nobody receives, and reads it from the dead-letter queue. */
public class App {
    public static void main(String[] args) {
        ServiceBusClientBuilder builder = new ServiceBusClientBuilder().connectionString(args[0]);
        try (ServiceBusSenderClient sender = builder.sender().queueName("sidecar-orders").buildClient();
                ServiceBusReceiverClient receiver = builder.receiver().queueName("sidecar-orders").subQueue(SubQueue.DEAD_LETTER_QUEUE).buildClient()) {
            sender.sendMessage(new ServiceBusMessage("one coffee").setMessageId("order-1").setTimeToLive(Duration.ofSeconds(2)));
            System.out.println("sent order-1");

            for (ServiceBusReceivedMessage message : receiver.receiveMessages(1, Duration.ofSeconds(10))) {
                System.out.println(message.getMessageId() + " " + message.getBody() + " " + message.getDeadLetterReason());
                receiver.complete(message);
            }
        }
    }
}
