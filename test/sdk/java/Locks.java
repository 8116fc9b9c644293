// SPDX-License-Identifier: Apache-2.0

import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;

/** Locks: kept, renewed by the SDK itself, and lost. */
final class Locks {
    private Locks() {}

    static void add() {
        Harness.scenario("renew-lock", Locks::renewLock);
        Harness.scenario("auto-renew", Locks::autoRenew);
        Harness.scenario("lock-lost", Locks::lockLost);
    }

    private static void renewLock(Harness.Scene scene) throws Exception {
        scene.sender().sendMessage(new ServiceBusMessage("mine"));
        ServiceBusReceiverClient receiver = scene.receiver();
        ServiceBusReceivedMessage m = Harness.receiveOne(receiver);
        OffsetDateTime first = m.getLockedUntil();
        Thread.sleep(8000);
        OffsetDateTime renewed = receiver.renewMessageLock(m);
        Harness.check(!renewed.isBefore(first.plus(Duration.ofMillis(7900))), "renewed to " + renewed + " from " + first);
        Harness.sleepUntil(first.plus(Duration.ofMillis(500)));
        receiver.complete(m);
        Harness.receiveNothing(scene.receiver());
    }

    private static void autoRenew(Harness.Scene scene) throws Exception {
        scene.sender().sendMessage(new ServiceBusMessage("mine"));
        Queue<Throwable> errors = new ConcurrentLinkedQueue<>();
        Queue<ServiceBusReceivedMessage> done = new ConcurrentLinkedQueue<>();
        try (var processor = scene.builder.processor().queueName(scene.queue).disableAutoComplete()
            .maxAutoLockRenewDuration(Duration.ofMinutes(1))
            .processMessage(context -> {
                try {
                    Harness.sleepUntil(context.getMessage().getLockedUntil().plus(Duration.ofMillis(1500)));
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
                context.complete();
                done.add(context.getMessage());
            })
            .processError(context -> errors.add(context.getException()))
            .buildProcessorClient()) {
            processor.start();
            Harness.eventually("the message is done", () -> !done.isEmpty() || !errors.isEmpty());
        }
        Harness.equal(List.copyOf(errors), List.of(), "errors");
        Harness.receiveNothing(scene.receiver());
    }

    private static void lockLost(Harness.Scene scene) throws Exception {
        scene.sender().sendMessage(new ServiceBusMessage("slow"));
        ServiceBusReceiverClient receiver = scene.receiver();
        ServiceBusReceivedMessage m = Harness.receiveOne(receiver);
        Harness.sleepUntil(m.getLockedUntil().plus(Duration.ofMillis(300)));
        Harness.failsWith(ServiceBusFailureReason.MESSAGE_LOCK_LOST, () -> receiver.renewMessageLock(m));
        Harness.failsWith(ServiceBusFailureReason.MESSAGE_LOCK_LOST, () -> receiver.complete(m));
        ServiceBusReceivedMessage again = Harness.receiveOne(receiver);
        Harness.equal(again.getDeliveryCount(), 1L, "delivery count");
        receiver.complete(again);
    }
}
