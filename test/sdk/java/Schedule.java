// SPDX-License-Identifier: Apache-2.0

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;

/** Messages for later. */
final class Schedule {
    private Schedule() {}

    static void add() {
        Harness.scenario("schedule", Schedule::schedule);
        Harness.scenario("schedule-by-property", Schedule::scheduleByProperty);
        Harness.scenario("cancel", Schedule::cancel);
    }

    /** A time to the millisecond, which is what the wire can carry. */
    private static OffsetDateTime in(long millis) {
        return OffsetDateTime.now(ZoneOffset.UTC).plus(millis, ChronoUnit.MILLIS).truncatedTo(ChronoUnit.MILLIS);
    }

    private static void notBefore(OffsetDateTime at) {
        OffsetDateTime now = OffsetDateTime.now();
        Harness.check(!now.isBefore(at.minus(50, ChronoUnit.MILLIS)), "came at " + now + ", due at " + at);
    }

    private static void schedule(Harness.Scene scene) {
        OffsetDateTime at = in(15_000); // a busy machine peeks late
        List<Long> numbers = new ArrayList<>();
        scene.sender().scheduleMessages(List.of(Harness.messages("a", "b")), at).forEach(numbers::add);
        List<ServiceBusReceivedMessage> peeked = scene.receiver().peekMessages(10).stream().toList();
        Harness.equal(peeked.stream().map(ServiceBusReceivedMessage::getSequenceNumber).toList(), numbers, "sequence numbers");
        peeked.forEach(m -> Harness.equal(m.getState(), ServiceBusMessageState.SCHEDULED, "state"));
        ServiceBusReceiverClient receiver = scene.receiver();
        List<ServiceBusReceivedMessage> got = Harness.receive(receiver, 2);
        notBefore(at);
        Harness.equal(Harness.bodies(got).stream().sorted().toList(), List.of("a", "b"), "bodies");
        got.forEach(m -> {
            Harness.equal(m.getScheduledEnqueueTime(), at, "scheduled enqueue time");
            receiver.complete(m);
        });
    }

    private static void scheduleByProperty(Harness.Scene scene) {
        OffsetDateTime at = in(2000);
        scene.sender().sendMessage(new ServiceBusMessage("later").setScheduledEnqueueTime(at));
        ServiceBusReceiverClient receiver = scene.receiver();
        ServiceBusReceivedMessage m = Harness.receiveOne(receiver);
        notBefore(at);
        receiver.complete(m);
    }

    private static void cancel(Harness.Scene scene) {
        ServiceBusSenderClient sender = scene.sender();
        List<Long> numbers = new ArrayList<>();
        sender.scheduleMessages(List.of(Harness.messages("a", "b", "c")), in(60_000)).forEach(numbers::add);
        sender.cancelScheduledMessages(List.of(numbers.get(0), numbers.get(2)));
        Harness.equal(Harness.bodies(scene.receiver().peekMessages(10).stream().toList()), List.of("b"), "what is left");
        sender.cancelScheduledMessage(numbers.get(1));
        Harness.equal(scene.receiver().peekMessage(), null, "what is left");
        sender.cancelScheduledMessage(numbers.get(1)); // to this SDK what is not there has been cancelled
    }
}
