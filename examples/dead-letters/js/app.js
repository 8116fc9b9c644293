// SPDX-License-Identifier: Apache-2.0
// Handles the dead letters of a queue: orders that came too late go to one queue, orders that consumers could not
// handle go to another.

const { ServiceBusClient } = require("@azure/service-bus");

const client = new ServiceBusClient(process.argv[2]);
const senders = { late: client.createSender("late-orders"), failed: client.createSender("failed-orders") };

const receiver = client.createReceiver("handled-orders", { subQueueType: "deadLetter" });
receiver.subscribe({
  async processMessage(m) {
    const late = ["TTLExpiredException", "DeadlineExceeded"].includes(m.deadLetterReason);
    const sender = late ? senders.late : senders.failed;
    // The copy keeps the message-id, so that a second copy after a crash can be recognised.
    await sender.sendMessages({ messageId: m.messageId, body: m.body });
    await receiver.completeMessage(m);
    console.log(`${m.messageId}: ${m.deadLetterReason}, now in ${sender.entityPath}`);
  },
  async processError({ error }) {
    console.error(error.message);
  },
}, { autoCompleteMessages: false });
