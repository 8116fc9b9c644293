// SPDX-License-Identifier: Apache-2.0

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** What is refused, and what is survived. */
final class Faults {
    private Faults() {}

    static void add() {
        Harness.scenario("entity-not-found", Faults::entityNotFound);
        Harness.scenario("reconnect", Faults::reconnect);
    }

    private static void entityNotFound(Harness.Scene scene) throws Exception {
        ServiceBusFailureReason reason = ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND;
        Harness.failsWith(reason, () -> scene.sender("nowhere").sendMessage(new ServiceBusMessage("x")));
        Harness.failsWith(reason, () -> scene.receiver("nowhere").peekMessage());
        Harness.refusedWith(AmqpErrorCondition.NOT_FOUND,
            () -> scene.receiver("nowhere").receiveMessages(1, Duration.ofSeconds(1)).forEach(m -> { }));
    }

    private static void reconnect(Harness.Scene scene) throws Exception {
        Set<String> got = ConcurrentHashMap.newKeySet();
        try (var cut = new Harness.Scene(scene.queue, Harness.FORWARDED_CONNECTION_STRING);
            var processor = cut.builder.processor().queueName(cut.queue).disableAutoComplete()
                .processMessage(context -> {
                    context.complete(); // before the next cut: one that meets it may never return, see Steady.java
                    got.add(context.getMessage().getBody().toString());
                })
                .processError(context -> { }) // the SDK reports the cut, and goes on
                .buildProcessorClient()) {
            processor.start();
            ServiceBusSenderClient sender = cut.sender();
            sender.sendMessage(new ServiceBusMessage("before"));
            Harness.eventually("the first has arrived", () -> got.contains("before"));
            for (String round : new String[] {"first", "second"}) {
                var request = HttpRequest.newBuilder(URI.create(Harness.CUT_URL)).POST(HttpRequest.BodyPublishers.noBody()).build();
                Harness.equal(HttpClient.newHttpClient().send(request, BodyHandlers.discarding()).statusCode(), 204, "status of the cut");
                sender.sendMessage(new ServiceBusMessage("after the " + round));
                Harness.eventually("what was sent after the " + round + " cut has arrived", () -> got.contains("after the " + round));
            }
        }
    }
}
