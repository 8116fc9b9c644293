// SPDX-License-Identifier: Apache-2.0

import com.azure.core.amqp.models.AmqpMessageBody;
import com.azure.core.amqp.models.AmqpMessageBodyType;
import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.Arrays;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.UUID;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.IntStream;

/** What is sent comes out as it went in. */
final class Messages {
    private Messages() {}

    static void add() {
        Harness.scenario("send-receive", Messages::sendReceive);
        Harness.scenario("property-types", Messages::propertyTypes);
        Harness.scenario("body-types", Messages::bodyTypes);
        Harness.scenario("batch", Messages::batch);
        Harness.scenario("receive-and-delete", Messages::receiveAndDelete);
        Harness.scenario("peek", Messages::peek);
        Harness.scenario("large-message", Messages::largeMessage);
        Harness.scenario("message-too-large", Messages::messageTooLarge);
        Harness.scenario("send-again", Messages::sendAgain);
        Harness.scenario("subscribe", Messages::subscribe);
    }

    private static void sendReceive(Harness.Scene scene) {
        ServiceBusMessage sent = new ServiceBusMessage("žluťoučký kůň")
            .setMessageId("m-1").setSubject("created").setContentType("text/plain").setCorrelationId("c-1")
            .setTo("there").setReplyTo("back").setTimeToLive(Duration.ofMinutes(1));
        sent.getApplicationProperties().put("kind", "test");
        scene.sender().sendMessage(sent);
        ServiceBusReceiverClient receiver = scene.receiver();
        ServiceBusReceivedMessage m = Harness.receiveOne(receiver);
        Harness.equal(m.getBody().toString(), "žluťoučký kůň", "body");
        Harness.equal(m.getMessageId(), "m-1", "message id");
        Harness.equal(m.getSubject(), "created", "subject");
        Harness.equal(m.getContentType(), "text/plain", "content type");
        Harness.equal(m.getCorrelationId(), "c-1", "correlation id");
        Harness.equal(m.getTo(), "there", "to");
        Harness.equal(m.getReplyTo(), "back", "reply to");
        Harness.equal(m.getTimeToLive(), Duration.ofMinutes(1), "time to live");
        Harness.equal(m.getApplicationProperties(), Map.of("kind", "test"), "application properties");
        Harness.equal(m.getDeliveryCount(), 0L, "delivery count");
        Harness.equal(m.getState(), ServiceBusMessageState.ACTIVE, "state");
        Harness.equal(m.getExpiresAt(), m.getEnqueuedTime().plusMinutes(1), "expires at");
        OffsetDateTime now = OffsetDateTime.now();
        Duration since = Duration.between(m.getEnqueuedTime(), now).abs();
        Harness.check(since.compareTo(Duration.ofSeconds(120)) < 0, "enqueued " + m.getEnqueuedTime() + ", now is " + now);
        Harness.check(m.getLockedUntil().isAfter(now), "locked until " + m.getLockedUntil() + ", now is " + now);
        Harness.check(m.getSequenceNumber() > 0, "sequence number " + m.getSequenceNumber());
        UUID.fromString(m.getLockToken());
        receiver.complete(m);
    }

    private static void sendAgain(Harness.Scene scene) {
        ServiceBusSenderClient sender = scene.sender();
        ServiceBusReceiverClient receiver = scene.receiver();
        sender.sendMessage(new ServiceBusMessage("again").setPartitionKey("p-1"));
        for (int i = 0; i < 3; i++) {
            ServiceBusReceivedMessage m = Harness.receiveOne(receiver);
            Harness.equal(m.getBody().toString(), "again", "body");
            Harness.equal(m.getPartitionKey(), "p-1", "partition key");
            if (i < 2) {
                sender.sendMessage(new ServiceBusMessage(m));
            }
            receiver.complete(m);
        }
    }

    private static void propertyTypes(Harness.Scene scene) {
        Map<String, Object> properties = new HashMap<>();
        properties.put("text", "a");
        properties.put("empty", "");
        properties.put("yes", true);
        properties.put("no", false);
        properties.put("byte", (byte) -1);
        properties.put("short", (short) -300);
        properties.put("int", 70_000);
        properties.put("long", 1L << 40);
        properties.put("float", 1.5f);
        properties.put("double", -2.25);
        properties.put("char", 'ů');
        properties.put("uuid", UUID.fromString("00112233-4455-6677-8899-aabbccddeeff"));
        properties.put("when", new Date(1_767_323_045_678L));
        ServiceBusMessage sent = new ServiceBusMessage("x");
        sent.getApplicationProperties().putAll(properties);
        scene.sender().sendMessage(sent);
        ServiceBusReceiverClient receiver = scene.receiver();
        ServiceBusReceivedMessage m = Harness.receiveOne(receiver);
        Harness.equal(m.getApplicationProperties(), properties, "application properties");
        receiver.complete(m);
    }

    private static void bodyTypes(Harness.Scene scene) {
        byte[] data = {0, 1, -2, -1};
        List<Object> sequence = List.of(1, "two", 3L);
        ServiceBusSenderClient sender = scene.sender();
        sender.sendMessage(new ServiceBusMessage(AmqpMessageBody.fromData(data)));
        sender.sendMessage(new ServiceBusMessage(AmqpMessageBody.fromValue(42L)));
        sender.sendMessage(new ServiceBusMessage(AmqpMessageBody.fromSequence(sequence)));
        ServiceBusReceiverClient receiver = scene.receiver();
        List<ServiceBusReceivedMessage> got = Harness.receive(receiver, 3);
        List<AmqpMessageBody> bodies = got.stream().map(m -> m.getRawAmqpMessage().getBody()).toList();
        Harness.equal(bodies.stream().map(AmqpMessageBody::getBodyType).toList(),
            List.of(AmqpMessageBodyType.DATA, AmqpMessageBodyType.VALUE, AmqpMessageBodyType.SEQUENCE), "body types");
        Harness.equal(bodies.get(0).getFirstData(), data, "data");
        Harness.equal(bodies.get(1).getValue(), 42L, "value");
        Harness.equal(bodies.get(2).getSequence(), sequence, "sequence");
        got.forEach(receiver::complete);
    }

    private static void batch(Harness.Scene scene) {
        ServiceBusSenderClient sender = scene.sender();
        ServiceBusMessageBatch batch = sender.createMessageBatch();
        while (batch.tryAddMessage(new ServiceBusMessage(new byte[10_000]).setMessageId("m-" + batch.getCount()))) {
            Harness.check(batch.getCount() <= 100, "the batch takes more than its size");
        }
        int count = batch.getCount();
        Harness.check(count >= 20, "the batch took " + count + " messages of 10,000 bytes");
        sender.sendMessages(batch);
        ServiceBusReceiverClient receiver = scene.receiver();
        List<ServiceBusReceivedMessage> got = Harness.receive(receiver, count);
        Harness.equal(got.stream().map(ServiceBusReceivedMessage::getMessageId).toList(),
            IntStream.range(0, count).mapToObj(i -> "m-" + i).toList(), "message ids");
        got.forEach(receiver::complete);
        Harness.receiveNothing(receiver);
    }

    private static void receiveAndDelete(Harness.Scene scene) {
        scene.sender().sendMessages(List.of(Harness.messages("a", "b", "c")));
        Harness.equal(Harness.bodies(Harness.receive(scene.deleting(), 3)), List.of("a", "b", "c"), "bodies");
        Harness.equal(scene.receiver().peekMessage(), null, "what is left");
    }

    private static void peek(Harness.Scene scene) {
        scene.sender().sendMessages(List.of(Harness.messages("a", "b", "c", "d", "e")));
        ServiceBusReceiverClient receiver = scene.receiver();
        ServiceBusReceivedMessage locked = Harness.receiveOne(receiver);
        ServiceBusReceiverClient peeker = scene.receiver();
        List<ServiceBusReceivedMessage> first = peeker.peekMessages(2).stream().toList();
        Harness.equal(Harness.bodies(first), List.of("a", "b"), "first peeked");
        Harness.equal(Harness.bodies(peeker.peekMessages(10).stream().toList()), List.of("c", "d", "e"), "then peeked");
        Harness.equal(first.get(0).getLockedUntil() != null, true, "a lock of the peeked message that is locked");
        Harness.equal(first.get(1).getLockedUntil(), null, "lock of another peeked message");
        long from = first.get(0).getSequenceNumber() + 3;
        Harness.equal(Harness.bodies(peeker.peekMessages(10, from).stream().toList()), List.of("d", "e"), "peeked from");
        receiver.complete(locked);
    }

    private static void largeMessage(Harness.Scene scene) {
        // This SDK reckons 4 KiB for the envelope, and drops without a word what is larger than the rest.
        byte[] body = new byte[251 * 1024];
        for (int i = 0; i < body.length; i++) {
            body[i] = (byte) (i * 31);
        }
        scene.sender().sendMessage(new ServiceBusMessage(BinaryData.fromBytes(body)));
        ServiceBusReceiverClient receiver = scene.receiver();
        ServiceBusReceivedMessage m = Harness.receiveOne(receiver);
        Harness.check(Arrays.equals(m.getBody().toBytes(), body), "the body has changed");
        receiver.complete(m);
    }

    private static void messageTooLarge(Harness.Scene scene) throws Exception {
        ServiceBusSenderClient sender = scene.sender();
        Harness.failsWith(ServiceBusFailureReason.MESSAGE_SIZE_EXCEEDED,
            () -> sender.sendMessage(new ServiceBusMessage(new byte[257 * 1024])));
        sender.sendMessage(new ServiceBusMessage("small"));
        ServiceBusReceiverClient receiver = scene.receiver();
        ServiceBusReceivedMessage m = Harness.receiveOne(receiver);
        Harness.equal(m.getBody().toString(), "small", "body");
        receiver.complete(m);
    }

    private static void subscribe(Harness.Scene scene) throws Exception {
        int count = 50;
        Queue<Integer> got = new ConcurrentLinkedQueue<>();
        Queue<Throwable> errors = new ConcurrentLinkedQueue<>();
        try (var processor = scene.builder.processor().queueName(scene.queue).maxConcurrentCalls(5)
            .processMessage(context -> got.add(Integer.valueOf(context.getMessage().getBody().toString())))
            .processError(context -> errors.add(context.getException()))
            .buildProcessorClient()) {
            processor.start();
            scene.sender().sendMessages(
                IntStream.range(0, count).mapToObj(i -> new ServiceBusMessage(Integer.toString(i))).toList());
            Harness.eventually("messages have arrived", () -> got.size() >= count);
            // Each is completed after its handler.
            Harness.eventually("messages are completed", () -> scene.receiver().peekMessage() == null);
        }
        Harness.equal(List.copyOf(errors), List.of(), "errors");
        Harness.equal(got.stream().sorted().toList(), IntStream.range(0, count).boxed().toList(), "bodies");
    }
}
