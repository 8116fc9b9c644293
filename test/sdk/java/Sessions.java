// SPDX-License-Identifier: Apache-2.0

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;

/** Sessions: one holder at a time, in order, with a state. */
final class Sessions {
    private Sessions() {}

    static void add() {
        Harness.scenario("session", Sessions::session);
        Harness.scenario("session-next", Sessions::next);
        Harness.scenario("session-renew", Sessions::renew);
        Harness.scenario("session-lock-lost", Sessions::lockLost);
        Harness.scenario("session-topic", Sessions::topic);
    }

    private static Stream<ServiceBusMessage> in(String session, String... bodies) {
        return Arrays.stream(Harness.messages(bodies)).map(m -> m.setSessionId(session));
    }

    private static ServiceBusSessionReceiverClient sessions(Harness.Scene scene) {
        return scene.opened(scene.builder.sessionReceiver().queueName(scene.queue)
            .maxAutoLockRenewDuration(Duration.ZERO).disableAutoComplete().buildClient());
    }

    private static void session(Harness.Scene scene) throws Exception {
        scene.sender().sendMessages(Stream.concat(in("a", "a1", "a2", "a3"), in("b", "b1")).toList());
        ServiceBusSessionReceiverClient sessions = sessions(scene);
        ServiceBusReceiverClient session = sessions.acceptSession("a");
        Harness.equal(session.getSessionId(), "a", "session id");
        Harness.equal(Harness.bodies(session.peekMessages(10).stream().toList()), List.of("a1", "a2", "a3"), "peeked");
        List<ServiceBusReceivedMessage> got = Harness.receive(session, 3);
        Harness.equal(Harness.bodies(got), List.of("a1", "a2", "a3"), "received");
        got.forEach(m -> Harness.equal(m.getSessionId(), "a", "session id of " + m.getBody()));
        session.complete(got.get(0));
        session.defer(got.get(1));
        session.deadLetter(got.get(2), new DeadLetterOptions().setDeadLetterReason("Bad"));
        Harness.receiveNothing(session);
        session.renewSessionLock(); // it is short, and all this takes a while
        ServiceBusReceivedMessage deferred = session.receiveDeferredMessage(got.get(1).getSequenceNumber());
        Harness.equal(deferred.getBody().toString(), "a2", "body of the deferred message");
        session.complete(deferred);

        Harness.equal(session.getSessionState(), null, "state");
        session.setSessionState("step 2".getBytes());
        Harness.equal(new String(session.getSessionState()), "step 2", "state");
        session.renewSessionLock();
        // On the same connection this SDK would hand out the link that it has.
        try (var other = new Harness.Scene(scene.queue, Harness.CONNECTION_STRING)) {
            Harness.refusedWith(AmqpErrorCondition.SESSION_CANNOT_BE_LOCKED, () -> sessions(other).acceptSession("a"));
        }
        session.close();
        Harness.equal(stateOfNext(sessions, "a"), "step 2", "state to the next holder");

        ServiceBusReceiverClient dead = scene.deadLetters();
        ServiceBusReceivedMessage d = Harness.receiveOne(dead);
        Harness.equal(List.of(d.getBody().toString(), d.getSessionId()), List.of("a3", "a"), "dead-lettered");
        dead.complete(d);
    }

    /** Is the state as the next holder sees it. For a while this SDK may hand out the link that it is closing still. */
    private static String stateOfNext(ServiceBusSessionReceiverClient sessions, String id) throws Exception {
        for (int tries = 1;; tries++) {
            try (ServiceBusReceiverClient session = sessions.acceptSession(id)) {
                return new String(session.getSessionState());
            } catch (ServiceBusException e) {
                if (tries == 20) {
                    throw e;
                }
                Thread.sleep(200);
            }
        }
    }

    private static void next(Harness.Scene scene) throws Exception {
        scene.sender().sendMessages(Stream.concat(in("a", "a1"), in("b", "b1")).toList());
        ServiceBusSessionReceiverClient sessions = sessions(scene);
        List<ServiceBusReceiverClient> taken = List.of(sessions.acceptNextSession(), sessions.acceptNextSession());
        Harness.equal(taken.stream().map(ServiceBusReceiverClient::getSessionId).sorted().toList(), List.of("a", "b"), "sessions");
        for (ServiceBusReceiverClient session : taken) {
            ServiceBusReceivedMessage m = Harness.receiveOne(session);
            Harness.equal(m.getBody().toString(), session.getSessionId() + "1", "body");
            session.complete(m);
            session.close();
        }
        try {
            sessions.acceptNextSession();
        } catch (IllegalStateException e) {
            return; // how this SDK says that it has waited long enough
        }
        throw new AssertionError("accepted a session, want a timeout");
    }

    private static void renew(Harness.Scene scene) throws Exception {
        scene.sender().sendMessages(in("a", "a1").toList());
        ServiceBusReceiverClient session = sessions(scene).acceptSession("a");
        ServiceBusReceivedMessage m = Harness.receiveOne(session);
        OffsetDateTime accepted = OffsetDateTime.now();
        Thread.sleep(8000);
        OffsetDateTime renewed = session.renewSessionLock();
        Harness.check(renewed.isAfter(accepted.plusSeconds(17)), "accepted at " + accepted + " for 15 s, renewed to " + renewed);
        Harness.sleepUntil(accepted.plus(Duration.ofMillis(15500)));
        session.complete(m);
        session.close();
    }

    private static void lockLost(Harness.Scene scene) throws Exception {
        scene.sender().sendMessages(in("a", "a1").toList());
        ServiceBusSessionReceiverClient sessions = sessions(scene);
        ServiceBusReceiverClient session = sessions.acceptSession("a");
        ServiceBusReceivedMessage m = Harness.receiveOne(session);
        Thread.sleep(5500);
        Harness.failsWith(ServiceBusFailureReason.SESSION_LOCK_LOST, () -> session.renewSessionLock());
        try (ServiceBusReceiverClient again = sessions.acceptSession("a")) {
            ServiceBusReceivedMessage n = Harness.receiveOne(again);
            Harness.equal(n.getDeliveryCount(), 1L, "delivery count");
            again.complete(n);
        }
        session.close();
    }

    private static void topic(Harness.Scene scene) {
        scene.topicSender(scene.queue).sendMessages(Stream.concat(in("a", "a1"), Stream.of(new ServiceBusMessage("none"))).toList());
        ServiceBusReceiverClient session = scene.opened(scene.builder.sessionReceiver().topicName(scene.queue)
            .subscriptionName("s").disableAutoComplete().buildClient()).acceptNextSession();
        Harness.equal(session.getSessionId(), "a", "session id");
        ServiceBusReceivedMessage m = Harness.receiveOne(session);
        Harness.equal(m.getBody().toString(), "a1", "body");
        session.complete(m);
        session.close();
        ServiceBusReceiverClient dead = scene.opened(scene.builder.receiver().topicName(scene.queue)
            .subscriptionName("s").subQueue(SubQueue.DEAD_LETTER_QUEUE).disableAutoComplete().buildClient());
        ServiceBusReceivedMessage d = Harness.receiveOne(dead);
        Harness.equal(List.of(d.getBody().toString(), d.getDeadLetterReason()), List.of("none", "Session id is null."), "dead-lettered");
        dead.complete(d);
    }
}
