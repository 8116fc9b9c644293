// SPDX-License-Identifier: Apache-2.0

import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/** The four settlements, and what each leaves behind. */
final class Settle {
    private Settle() {}

    static void add() {
        Harness.scenario("complete", Settle::complete);
        Harness.scenario("abandon", Settle::abandon);
        Harness.scenario("max-delivery-count", Settle::maxDeliveryCount);
        Harness.scenario("defer", Settle::defer);
        Harness.scenario("dead-letter", Settle::deadLetter);
        Harness.scenario("expire", Settle::expire);
    }

    private static void complete(Harness.Scene scene) {
        scene.sender().sendMessage(new ServiceBusMessage("done"));
        ServiceBusReceiverClient receiver = scene.receiver();
        receiver.complete(Harness.receiveOne(receiver));
        Harness.equal(scene.receiver().peekMessage(), null, "what is left");
    }

    private static void abandon(Harness.Scene scene) {
        ServiceBusMessage sent = new ServiceBusMessage("again");
        sent.getApplicationProperties().put("kept", 1);
        scene.sender().sendMessage(sent);
        ServiceBusReceiverClient receiver = scene.receiver();
        ServiceBusReceivedMessage m = Harness.receiveOne(receiver);
        receiver.abandon(m, new AbandonOptions().setPropertiesToModify(Map.of("attempt", "second")));
        ServiceBusReceivedMessage again = Harness.receiveOne(receiver);
        Harness.equal(again.getDeliveryCount(), 1L, "delivery count");
        Harness.equal(again.getApplicationProperties(), Map.of("kept", 1, "attempt", "second"), "application properties");
        Harness.equal(again.getSequenceNumber(), m.getSequenceNumber(), "sequence number");
        receiver.complete(again);
    }

    private static void maxDeliveryCount(Harness.Scene scene) {
        scene.sender().sendMessage(new ServiceBusMessage("poison"));
        ServiceBusReceiverClient receiver = scene.receiver();
        for (long i = 0; i < 3; i++) {
            ServiceBusReceivedMessage m = Harness.receiveOne(receiver);
            Harness.equal(m.getDeliveryCount(), i, "delivery count");
            receiver.abandon(m);
        }
        ServiceBusReceiverClient dead = scene.deadLetters();
        ServiceBusReceivedMessage m = Harness.receiveOne(dead);
        Harness.equal(m.getDeadLetterReason(), "MaxDeliveryCountExceeded", "reason");
        dead.complete(m);
    }

    private static void defer(Harness.Scene scene) throws Exception {
        scene.sender().sendMessages(List.of(Harness.messages("later", "now")));
        ServiceBusReceiverClient receiver = scene.receiver();
        List<ServiceBusReceivedMessage> got = Harness.receive(receiver, 2);
        receiver.defer(got.get(0), new DeferOptions().setPropertiesToModify(Map.of("deferred", true)));
        receiver.complete(got.get(1));
        Harness.receiveNothing(receiver);
        Harness.equal(scene.receiver().peekMessage().getState(), ServiceBusMessageState.DEFERRED, "state");
        long number = got.get(0).getSequenceNumber();
        ServiceBusReceivedMessage m = receiver.receiveDeferredMessage(number);
        Harness.equal(m.getBody().toString(), "later", "body");
        Harness.equal(m.getApplicationProperties(), Map.of("deferred", true), "application properties");
        receiver.complete(m);
        // This SDK takes the refusal for an answer without messages, and then misses the one.
        Harness.failsWith(ServiceBusFailureReason.GENERAL_ERROR, () -> receiver.receiveDeferredMessage(number));
    }

    private static void deadLetter(Harness.Scene scene) {
        ServiceBusMessage sent = new ServiceBusMessage("bad").setMessageId("m-bad");
        sent.getApplicationProperties().put("kept", "yes");
        scene.sender().sendMessage(sent);
        ServiceBusReceiverClient receiver = scene.receiver();
        ServiceBusReceivedMessage m = Harness.receiveOne(receiver);
        receiver.deadLetter(m, new DeadLetterOptions()
            .setDeadLetterReason("Unreadable")
            .setDeadLetterErrorDescription("It has no head.")
            .setPropertiesToModify(Map.of("seen", 1)));
        Harness.receiveNothing(receiver);
        ServiceBusReceiverClient dead = scene.deadLetters();
        ServiceBusReceivedMessage d = Harness.receiveOne(dead);
        Harness.equal(d.getMessageId(), "m-bad", "message id");
        Harness.equal(d.getDeadLetterReason(), "Unreadable", "reason");
        Harness.equal(d.getDeadLetterErrorDescription(), "It has no head.", "description");
        Harness.equal(d.getApplicationProperties().get("kept"), "yes", "kept");
        Harness.equal(d.getApplicationProperties().get("seen"), 1, "seen");
        Harness.equal(d.getSequenceNumber(), m.getSequenceNumber(), "sequence number");
        dead.complete(d);
        Harness.equal(scene.deadLetters().peekMessage(), null, "what is left");
    }

    private static void expire(Harness.Scene scene) throws InterruptedException {
        scene.sender().sendMessage(new ServiceBusMessage("stale").setTimeToLive(Duration.ofMillis(100)));
        Thread.sleep(150);
        Harness.receiveNothing(scene.receiver());
        ServiceBusReceiverClient dead = scene.deadLetters();
        ServiceBusReceivedMessage d = Harness.receiveOne(dead);
        Harness.equal(d.getDeadLetterReason(), "TTLExpiredException", "reason");
        dead.complete(d);
    }
}
