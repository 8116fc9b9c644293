// SPDX-License-Identifier: Apache-2.0

import com.azure.core.amqp.models.AmqpAddress;
import com.azure.core.amqp.models.AmqpAnnotatedMessage;
import com.azure.core.amqp.models.AmqpMessageBody;
import com.azure.core.amqp.models.AmqpMessageId;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/**
 * Puts on the wire whatever the Java SDK can write. Arguments, each QUEUE=KIND: `whole` sends messages with
 * ids and times to live to the queue, and `bare` without; both then receive them and complete them. `late` sends
 * three that nobody receives within their second. Prints `done` at the end.
 */
final class Wire {
    private static final OffsetDateTime FAR = OffsetDateTime.of(2100, 1, 2, 3, 4, 5, 678_000_000, ZoneOffset.UTC);

    private Wire() {}

    public static void main(String[] args) {
        ServiceBusClientBuilder builder = new ServiceBusClientBuilder()
            .connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING"));
        for (String arg : args) {
            String[] parts = arg.split("=");
            if (parts[1].equals("late")) {
                late(builder, parts[0]);
            } else {
                exchange(builder, parts[0], parts[1].equals("whole"));
            }
        }
        System.out.println("done");
        System.exit(0);
    }

    /** What there is of sections and bodies, with ids and times to live where they are asked for. */
    private static List<ServiceBusMessage> messages(boolean whole) {
        List<ServiceBusMessage> all = new ArrayList<>();
        all.add(new ServiceBusMessage("žluťoučký kůň").setSubject("created"));
        all.add(new ServiceBusMessage(new byte[] {0, -1}).setPartitionKey("p"));
        all.add(new ServiceBusMessage(AmqpMessageBody.fromValue(42L)));
        all.add(new ServiceBusMessage(AmqpMessageBody.fromValue("text")));
        all.add(new ServiceBusMessage(AmqpMessageBody.fromValue(Map.of("key", List.of(1, "two", true)))));
        all.add(new ServiceBusMessage(AmqpMessageBody.fromSequence(List.of(1, "two", 3L))));
        all.add(everything());
        for (int i = 0; whole && i < all.size(); i++) {
            all.get(i).setMessageId("id-" + i).setTimeToLive(Duration.ofHours(1));
        }
        return all;
    }

    private static ServiceBusMessage everything() {
        ServiceBusMessage message = new ServiceBusMessage(AmqpMessageBody.fromData("everything".getBytes()));
        AmqpAnnotatedMessage raw = message.getRawAmqpMessage();
        raw.getHeader().setDurable(true).setPriority((short) 7).setFirstAcquirer(true).setDeliveryCount(2L);
        // No delivery annotations and no footer: this SDK writes their keys as strings, and fails to read them.
        raw.getMessageAnnotations().put("x-note", "n");
        raw.getProperties().setTo(new AmqpAddress("there")).setSubject("s").setReplyTo(new AmqpAddress("back"))
            .setCorrelationId(new AmqpMessageId("c")).setContentType("text/plain").setContentEncoding("gzip")
            .setAbsoluteExpiryTime(FAR).setCreationTime(FAR).setGroupId("group").setGroupSequence(3L)
            .setReplyToGroupId("other").setUserId("me".getBytes());
        Map<String, Object> properties = message.getApplicationProperties();
        properties.put("text", "a");
        properties.put("empty", "");
        properties.put("yes", true);
        properties.put("byte", (byte) -1);
        properties.put("short", (short) -300);
        properties.put("int", 70_000);
        properties.put("long", 1L << 40);
        properties.put("float", 1.5f);
        properties.put("double", -2.25);
        properties.put("char", 'ů');
        properties.put("uuid", UUID.fromString("00112233-4455-6677-8899-aabbccddeeff"));
        properties.put("when", new Date(1_767_323_045_678L));
        return message;
    }

    private static void exchange(ServiceBusClientBuilder builder, String queue, boolean whole) {
        int left = 0;
        try (ServiceBusSenderClient sender = builder.sender().queueName(queue).buildClient()) {
            for (ServiceBusMessage m : messages(whole)) {
                sender.sendMessage(m);
                left++;
            }
            ServiceBusMessageBatch batch = sender.createMessageBatch();
            for (ServiceBusMessage m : messages(whole).subList(0, 3)) {
                if (!batch.tryAddMessage(m)) {
                    throw new IllegalStateException("a batch does not take three messages");
                }
                left++;
            }
            sender.sendMessages(batch);
        }
        try (ServiceBusReceiverClient receiver = builder.receiver().queueName(queue).disableAutoComplete().buildClient()) {
            while (left > 0) {
                int before = left;
                for (ServiceBusReceivedMessage m : receiver.receiveMessages(left, Duration.ofSeconds(10))) {
                    receiver.complete(m);
                    left--;
                }
                if (left == before) {
                    throw new IllegalStateException(left + " messages of " + queue + " have not come");
                }
            }
        }
    }

    private static void late(ServiceBusClientBuilder builder, String queue) {
        try (ServiceBusSenderClient sender = builder.sender().queueName(queue).buildClient()) {
            List<ServiceBusMessage> all = new ArrayList<>();
            for (int i = 1; i <= 3; i++) {
                all.add(new ServiceBusMessage("x").setMessageId(queue + "-" + i).setTimeToLive(Duration.ofSeconds(1)));
            }
            sender.sendMessages(all);
        }
    }
}
