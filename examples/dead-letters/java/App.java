// SPDX-License-Identifier: Apache-2.0

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.SubQueue;
import java.util.Set;

/**
 * Handles the dead letters of a queue: orders that came too late go to one queue, orders that consumers could not
 * handle go to another.
 */
public class App {
    private static final Set<String> LATE = Set.of("TTLExpiredException", "DeadlineExceeded");

    public static void main(String[] args) throws InterruptedException {
        ServiceBusClientBuilder builder = new ServiceBusClientBuilder().connectionString(args[0]);
        ServiceBusSenderClient late = builder.sender().queueName("late-orders").buildClient();
        ServiceBusSenderClient failed = builder.sender().queueName("failed-orders").buildClient();
        ServiceBusProcessorClient processor = builder.processor()
            .queueName("handled-orders").subQueue(SubQueue.DEAD_LETTER_QUEUE).disableAutoComplete()
            .processMessage(context -> {
                var message = context.getMessage();
                ServiceBusSenderClient sender = LATE.contains(message.getDeadLetterReason()) ? late : failed;
                // The copy keeps the message-id, so that a second copy after a crash can be recognised.
                sender.sendMessage(new ServiceBusMessage(message.getBody()).setMessageId(message.getMessageId()));
                context.complete();
                System.out.printf("%s: %s, now in %s%n", message.getMessageId(), message.getDeadLetterReason(), sender.getEntityPath());
            })
            .processError(context -> System.err.println(context.getException().getMessage()))
            .buildProcessorClient();
        processor.start();
        Thread.currentThread().join(); // for ever
    }
}
