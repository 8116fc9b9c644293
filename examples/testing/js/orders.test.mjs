// SPDX-License-Identifier: Apache-2.0

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { ServiceBusClient } from "@azure/service-bus";
import { startBroker } from "./broker.mjs";

let broker;
before(async () => (broker = await startBroker("../Config.json")));
after(() => broker.stop());

// A client of a namespace for this test alone.
function connect(t) {
  const client = new ServiceBusClient(broker.connectionString(t.name), { retryOptions: { maxRetries: 0 } });
  t.after(() => client.close());
  return client;
}

test("order-is-received", async (t) => {
  const client = connect(t);
  await client.createSender("test-orders").sendMessages({ body: "one coffee" });
  const receiver = client.createReceiver("test-orders");
  const [message] = await receiver.receiveMessages(1);
  assert.equal(message.body, "one coffee");
  await receiver.completeMessage(message);
  assert.deepEqual(await broker.control(t.name, "GET", "messages/test-orders"), []);
});

test("order-expires-after-an-hour", async (t) => {
  await connect(t).createSender("test-orders").sendMessages({ body: "one coffee", timeToLive: 3_600_000 });
  await broker.control(t.name, "POST", "clock", { advance: "2h" });
  const [dead] = await broker.control(t.name, "GET", "messages/test-orders/$DeadLetterQueue");
  assert.equal(dead.deadLetterReason, "TTLExpiredException");
});

test("full-queue-is-an-error", async (t) => {
  const sender = connect(t).createSender("test-orders");
  await broker.control(t.name, "POST", "faults", { entity: "test-orders", operation: "send", error: "full", times: 1 });
  await assert.rejects(sender.sendMessages({ body: "one coffee" }), { code: "QuotaExceeded" });
  await sender.sendMessages({ body: "one coffee" });
});

test("misspelt-queue-is-an-error", async (t) => {
  const sender = connect(t).createSender("test-order");
  await assert.rejects(sender.sendMessages({ body: "one coffee" }), { code: "MessagingEntityNotFound" });
});
