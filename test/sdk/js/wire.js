// SPDX-License-Identifier: Apache-2.0

// Puts on the wire whatever the JavaScript SDK can write. Arguments, each QUEUE=KIND: `whole` sends
// messages with ids and times to live to the queue, and `bare` without; both then receive them and complete
// them. `late` sends three that nobody receives within their second, and `brim` a batch of such, without ids, that has
// room for nothing more. Prints `done` at the end.

import { ServiceBusClient } from "@azure/service-bus";

const HOUR = 3_600_000;
const FAR = new Date("2100-01-02T03:04:05.678Z");

/** What there is of sections and bodies, without id and time to live. */
function messages() {
  return [
    { body: { order: 1, note: "žluťoučký kůň" }, subject: "created" },
    { body: "text" },
    { bodyType: "data", body: Buffer.from([0, 1, 254, 255]) },
    { bodyType: "value", body: "text" },
    { bodyType: "value", body: { key: [1, "two", null, true] } },
    { bodyType: "value", body: null },
    { bodyType: "sequence", body: [["a", 1], ["b", 2]] },
    {
      bodyType: "data",
      body: Buffer.from("everything"),
      header: { durable: true, priority: 7, firstAcquirer: true, deliveryCount: 2 },
      deliveryAnnotations: { "x-opt-hop": 1 },
      messageAnnotations: { "x-opt-partition-key": "group", "x-note": "n" },
      properties: {
        to: "there", subject: "s", replyTo: "back", correlationId: "c", contentType: "text/plain",
        contentEncoding: "gzip", absoluteExpiryTime: FAR.getTime(), creationTime: FAR.getTime(), groupId: "group", groupSequence: 3,
        replyToGroupId: "other", userId: Buffer.from("me"),
      },
      applicationProperties: {
        text: "a", empty: "", int: 7, negative: -1, big: 2 ** 40, double: 1.5, yes: true, no: false, nothing: null, when: FAR,
      },
      footer: { "x-sum": "1234" },
    },
  ];
}

/** Gives a message an id and a time to live, in the way that its kind has them. */
function whole(m, i) {
  if (m.bodyType) {
    return { ...m, header: { ...m.header, timeToLive: HOUR }, properties: { ...m.properties, messageId: `id-${i}` } };
  }
  return { ...m, messageId: `id-${i}`, timeToLive: HOUR };
}

async function exchange(client, queue, all) {
  const sender = client.createSender(queue);
  for (const m of all) {
    await sender.sendMessages(m);
  }
  await sender.sendMessages(all.slice(0, 3)); // a batch
  await sender.close();
  const receiver = client.createReceiver(queue);
  for (let left = all.length + 3; left > 0; ) {
    const some = await receiver.receiveMessages(left, { maxWaitTimeInMs: 10_000 });
    if (some.length === 0) {
      throw new Error(`${left} messages of ${queue} have not come`);
    }
    for (const m of some) {
      await receiver.completeMessage(m);
    }
    left -= some.length;
  }
  await receiver.close();
}

/** Sends messages of ever smaller sizes until none of them fits into the batch. */
async function brim(sender) {
  const batch = await sender.createMessageBatch();
  for (const size of [8192, 1024, 128, 16, 1]) {
    while (batch.tryAddMessage({ body: Buffer.alloc(size), timeToLive: 1000 }));
  }
  await sender.sendMessages(batch);
}

const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);
for (const [queue, kind] of process.argv.slice(2).map((a) => a.split("="))) {
  if (kind === "late") {
    await client.createSender(queue).sendMessages([1, 2, 3].map((i) => ({ body: i, messageId: `${queue}-${i}`, timeToLive: 1000 })));
  } else if (kind === "brim") {
    await brim(client.createSender(queue));
  } else {
    await exchange(client, queue, kind === "whole" ? messages().map(whole) : messages());
  }
}
await client.close();
console.log("done");
