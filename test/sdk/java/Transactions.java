// SPDX-License-Identifier: Apache-2.0

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.CompleteOptions;
import java.util.List;

/** Transactions: all of it or nothing. */
final class Transactions {
    private Transactions() {}

    static void add() {
        Harness.scenario("transaction-commit", Transactions::commit);
        Harness.scenario("transaction-rollback", Transactions::rollback);
        Harness.scenario("transaction-across", Transactions::across);
    }

    private static void commit(Harness.Scene scene) {
        ServiceBusSenderClient sender = scene.sender();
        sender.sendMessage(new ServiceBusMessage("in"));
        ServiceBusReceiverClient receiver = scene.receiver();
        ServiceBusReceivedMessage in = Harness.receiveOne(receiver);
        ServiceBusTransactionContext transaction = receiver.createTransaction();
        receiver.complete(in, new CompleteOptions().setTransactionContext(transaction));
        sender.sendMessage(new ServiceBusMessage("out"), transaction);
        sender.sendMessages(List.of(Harness.messages("out-2", "out-3")), transaction);
        List<ServiceBusReceivedMessage> before = scene.receiver().peekMessages(10).stream().toList();
        Harness.equal(Harness.bodies(before), List.of("in"), "before the commit");
        receiver.commitTransaction(transaction);
        List<ServiceBusReceivedMessage> got = Harness.receive(receiver, 3);
        Harness.equal(Harness.bodies(got), List.of("out", "out-2", "out-3"), "after the commit");
        got.forEach(receiver::complete);
        Harness.equal(scene.receiver().peekMessage(), null, "what is left");
    }

    private static void rollback(Harness.Scene scene) {
        ServiceBusSenderClient sender = scene.sender();
        sender.sendMessage(new ServiceBusMessage("in"));
        ServiceBusReceiverClient receiver = scene.receiver();
        ServiceBusReceivedMessage in = Harness.receiveOne(receiver);
        ServiceBusTransactionContext transaction = receiver.createTransaction();
        receiver.complete(in, new CompleteOptions().setTransactionContext(transaction));
        sender.sendMessage(new ServiceBusMessage("out"), transaction);
        receiver.rollbackTransaction(transaction);
        List<ServiceBusReceivedMessage> left = scene.receiver().peekMessages(10).stream().toList();
        Harness.equal(Harness.bodies(left), List.of("in"), "after the rollback");
        // To this SDK the message is settled whatever became of the transaction, so its lock has to lapse.
        ServiceBusReceivedMessage again = Harness.receiveOne(receiver);
        Harness.equal(again.getDeliveryCount(), 1L, "delivery count");
        receiver.complete(again);
        Harness.equal(scene.receiver().peekMessage(), null, "what is left");
    }

    /** Received from one queue and sent to another, in one transaction: the second link goes via the first queue. */
    private static void across(Harness.Scene scene) throws Exception {
        scene.sender().sendMessage(new ServiceBusMessage("in"));
        ServiceBusClientBuilder builder = new ServiceBusClientBuilder()
            .connectionString(Harness.CONNECTION_STRING).enableCrossEntityTransactions();
        ServiceBusReceiverClient receiver = scene.opened(builder.receiver().queueName(scene.queue).disableAutoComplete().buildClient());
        ServiceBusReceivedMessage in = Harness.receiveOne(receiver);
        ServiceBusSenderClient sender = scene.opened(builder.sender().queueName(scene.queue + "-out").buildClient());
        ServiceBusTransactionContext transaction = receiver.createTransaction();
        sender.sendMessage(new ServiceBusMessage("out"), transaction);
        receiver.complete(in, new CompleteOptions().setTransactionContext(transaction));
        receiver.commitTransaction(transaction);
        ServiceBusReceiverClient out = scene.receiver(scene.queue + "-out");
        ServiceBusReceivedMessage m = Harness.receiveOne(out);
        Harness.equal(m.getBody().toString(), "out", "body");
        out.complete(m);
        Harness.equal(scene.receiver().peekMessage(), null, "what is left");
    }
}
