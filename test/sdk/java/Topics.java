// SPDX-License-Identifier: Apache-2.0

import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusRuleManagerClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.OffsetDateTime;
import java.util.Comparator;
import java.util.List;
import java.util.Map;

/** Topics: who gets what, and rules over AMQP. */
final class Topics {
    private Topics() {}

    static void add() {
        Harness.scenario("topic", Topics::topic);
        Harness.scenario("topic-schedule", Topics::schedule);
        Harness.scenario("rule-manager", Topics::ruleManager);
        Harness.scenario("duplicate", Topics::duplicate);
        Harness.scenario("forward", Topics::forward);
    }

    private static ServiceBusMessage order(String body, String subject, Map<String, Object> properties) {
        ServiceBusMessage m = new ServiceBusMessage(body).setSubject(subject);
        m.getApplicationProperties().putAll(properties);
        return m;
    }

    private static void topic(Harness.Scene scene) {
        ServiceBusSenderClient sender = scene.topicSender(scene.queue);
        sender.sendMessages(List.of(
            order("small-red", "order", Map.of("color", "red", "amount", 5)),
            order("large-red", "order", Map.of("color", "red", "amount", 20, "secret", "x")),
            order("blue", "order", Map.of("color", "blue", "amount", 1)),
            order("blue-note", "note", Map.of("color", "blue", "amount", 1)),
            order("vip", "vip-order", Map.of("amount", 1))));
        Map<String, List<String>> want = Map.of(
            "all", List.of("small-red", "large-red", "blue", "blue-note", "vip"),
            "none", List.of(),
            "sql", List.of("large-red", "vip"),
            "correlation", List.of("blue"));
        want.forEach((name, bodies) -> {
            ServiceBusReceiverClient receiver = scene.subscription(scene.queue, name);
            List<ServiceBusReceivedMessage> got = Harness.receive(receiver, bodies.size());
            Harness.equal(Harness.bodies(got), bodies, name);
            if (name.equals("sql")) {
                // An action leaves its rule's name on the copy.
                Map<String, Object> after = Map.of("color", "red", "amount", 20, "seen", 21L, "RuleName", "large-red");
                Map<String, Object> properties = got.get(0).getApplicationProperties();
                properties.computeIfPresent("seen", (k, v) -> ((Number) v).longValue());
                Harness.equal(properties, after, "after the action");
            }
            got.forEach(receiver::complete);
            Harness.receiveNothing(receiver);
        });
        ServiceBusReceiverClient receiver = scene.subscription(scene.queue, "all");
        sender.sendMessage(new ServiceBusMessage("bad"));
        receiver.deadLetter(Harness.receiveOne(receiver), new DeadLetterOptions().setDeadLetterReason("Bad"));
        ServiceBusReceiverClient dead = scene.opened(scene.builder.receiver().topicName(scene.queue)
            .subscriptionName("all").subQueue(SubQueue.DEAD_LETTER_QUEUE).disableAutoComplete().buildClient());
        ServiceBusReceivedMessage d = Harness.receiveOne(dead);
        Harness.equal(d.getDeadLetterReason(), "Bad", "reason");
        dead.complete(d);
    }

    private static void schedule(Harness.Scene scene) {
        ServiceBusSenderClient sender = scene.topicSender(scene.queue);
        OffsetDateTime at = OffsetDateTime.now().plusSeconds(15); // a busy machine cancels late
        long cancelled = sender.scheduleMessage(new ServiceBusMessage("never"), at);
        sender.scheduleMessage(new ServiceBusMessage("later"), at);
        sender.cancelScheduledMessage(cancelled);
        ServiceBusReceiverClient receiver = scene.subscription(scene.queue, "all");
        ServiceBusReceivedMessage m = Harness.receiveOne(receiver);
        Harness.check(!OffsetDateTime.now().isBefore(at.minusNanos(50_000_000)), "it comes at its time");
        Harness.equal(m.getBody().toString(), "later", "body");
        receiver.complete(m);
    }

    private static void ruleManager(Harness.Scene scene) throws Exception {
        ServiceBusRuleManagerClient manager = scene.opened(
            scene.builder.ruleManager().topicName(scene.queue).subscriptionName("some").buildClient());
        List<RuleProperties> rules = manager.listRules().stream().toList();
        Harness.equal(rules.stream().map(RuleProperties::getName).toList(), List.of("$Default"), "rules");
        Harness.check(rules.get(0).getFilter() instanceof TrueRuleFilter, "filter " + rules.get(0).getFilter());
        manager.deleteRule("$Default");
        manager.createRule("large", new CreateRuleOptions(new SqlRuleFilter("amount > 10"))
            .setAction(new SqlRuleAction("SET big = true")));
        CorrelationRuleFilter correlation = new CorrelationRuleFilter().setLabel("urgent");
        correlation.getProperties().put("grade", 1);
        manager.createRule("urgent", new CreateRuleOptions(correlation));
        Harness.failsWith(ServiceBusFailureReason.MESSAGING_ENTITY_ALREADY_EXISTS,
            () -> manager.createRule("large", new CreateRuleOptions(new TrueRuleFilter())));
        Harness.failsWith(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, () -> manager.deleteRule("$Default"));
        rules = manager.listRules().stream().sorted(Comparator.comparing(RuleProperties::getName)).toList();
        Harness.equal(rules.stream().map(RuleProperties::getName).toList(), List.of("large", "urgent"), "rules");
        Harness.equal(((SqlRuleFilter) rules.get(0).getFilter()).getSqlExpression(), "amount > 10", "SQL filter");
        Harness.equal(((SqlRuleAction) rules.get(0).getAction()).getSqlExpression(), "SET big = true", "SQL action");
        CorrelationRuleFilter got = (CorrelationRuleFilter) rules.get(1).getFilter();
        Harness.equal(got.getLabel(), "urgent", "label of the correlation filter");
        // This SDK reads every value as text.
        Harness.equal(got.getProperties(), Map.of("grade", "1"), "properties of the correlation filter");

        scene.topicSender(scene.queue).sendMessages(List.of(
            order("small", "x", Map.of("amount", 1)),
            order("large", "x", Map.of("amount", 11)),
            order("urgent", "urgent", Map.of("grade", 1))));
        ServiceBusReceiverClient receiver = scene.subscription(scene.queue, "some");
        List<ServiceBusReceivedMessage> messages = Harness.receive(receiver, 2);
        Harness.equal(Harness.bodies(messages), List.of("large", "urgent"), "bodies");
        Harness.equal(messages.get(0).getApplicationProperties().get("big"), true, "what the action has set");
        messages.forEach(receiver::complete);
        Harness.receiveNothing(receiver);
    }

    private static void duplicate(Harness.Scene scene) {
        ServiceBusSenderClient sender = scene.sender();
        sender.sendMessage(new ServiceBusMessage("first").setMessageId("same"));
        sender.sendMessage(new ServiceBusMessage("second").setMessageId("same"));
        sender.sendMessage(new ServiceBusMessage("other").setMessageId("other"));
        ServiceBusReceiverClient receiver = scene.receiver();
        List<ServiceBusReceivedMessage> got = Harness.receive(receiver, 2);
        Harness.equal(Harness.bodies(got), List.of("first", "other"), "bodies");
        got.forEach(receiver::complete);
    }

    private static void forward(Harness.Scene scene) {
        scene.sender().sendMessage(new ServiceBusMessage("passed on"));
        ServiceBusReceiverClient receiver = scene.receiver("forward-to");
        ServiceBusReceivedMessage m = Harness.receiveOne(receiver);
        Harness.equal(m.getBody().toString(), "passed on", "body");
        Harness.check(m.getEnqueuedSequenceNumber() > 0, "enqueued sequence number " + m.getEnqueuedSequenceNumber());
        receiver.complete(m);
    }
}
