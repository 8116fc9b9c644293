// SPDX-License-Identifier: Apache-2.0

const { ServiceBusClient } = require("@azure/service-bus");

async function main() {
  const client = new ServiceBusClient(process.argv[2]);
  await client.createSender("sidecar-orders").sendMessages({ messageId: "order-1", body: "one coffee", timeToLive: 2000 });
  console.log("sent order-1"); // nobody receives it

  const receiver = client.createReceiver("sidecar-orders", { subQueueType: "deadLetter" });
  for (const m of await receiver.receiveMessages(1, { maxWaitTimeInMs: 10000 })) {
    console.log(m.messageId, m.body, m.deadLetterReason);
    await receiver.completeMessage(m);
  }
  await client.close();
}

main();
