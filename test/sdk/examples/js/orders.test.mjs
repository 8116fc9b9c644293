// SPDX-License-Identifier: Apache-2.0

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { ServiceBusClient } from "@azure/service-bus";

let overdue;
let broker; // host:port

// One broker for all tests of the file, on any free port.
before(async () => {
  const args = ["broker", "--broker-listen", "127.0.0.1:0", "--isolate", "--broker-expiry", "eager", "--log-level", "warn"];
  overdue = spawn("overdue", args, { stdio: ["ignore", "pipe", "inherit"] });
  for await (const line of createInterface({ input: overdue.stdout })) {
    if (line.startsWith("Endpoint=sb://")) {
      broker = line.slice("Endpoint=sb://".length).split(";")[0];
      break;
    }
  }
});

after(() => overdue.kill());

// A client of a namespace for this test alone. The broker creates its queues on first use.
function connect(t) {
  const client = new ServiceBusClient(
    `Endpoint=sb://${broker};SharedAccessKeyName=${t.name};SharedAccessKey=any;UseDevelopmentEmulator=true`,
    { retryOptions: { maxRetries: 0 } },
  );
  t.after(() => client.close());
  return client;
}

// Reads or changes the state of the broker over HTTP.
async function control(t, method, path, body) {
  const url = `http://${broker}/_overdue/${path}?namespace=${encodeURIComponent(t.name)}`;
  const response = await fetch(url, { method, body: body && JSON.stringify(body) });
  assert.ok(response.ok, `${path}: ${response.status}`);
  return response.status === 204 ? undefined : response.json();
}

test("order-is-received", async (t) => {
  const client = connect(t);
  await client.createSender("orders").sendMessages({ body: "one coffee" });
  const receiver = client.createReceiver("orders");
  const [message] = await receiver.receiveMessages(1);
  assert.equal(message.body, "one coffee");
  await receiver.completeMessage(message);
  assert.deepEqual(await control(t, "GET", "messages/orders"), []);
});

test("order-expires-after-an-hour", async (t) => {
  await connect(t).createSender("orders").sendMessages({ body: "one coffee", timeToLive: 3_600_000 });
  await control(t, "POST", "clock", { advance: "2h" });
  t.after(() => control(t, "POST", "clock", { offset: "0s" }));
  const [dead] = await control(t, "GET", "messages/orders/$DeadLetterQueue");
  assert.equal(dead.deadLetterReason, "TTLExpiredException");
});

test("full-queue-is-an-error", async (t) => {
  const sender = connect(t).createSender("orders");
  await control(t, "POST", "faults", { entity: "orders", operation: "send", error: "full", times: 1 });
  await assert.rejects(sender.sendMessages({ body: "one coffee" }), { code: "QuotaExceeded" });
  await sender.sendMessages({ body: "one coffee" });
  await control(t, "POST", "reset");
});
