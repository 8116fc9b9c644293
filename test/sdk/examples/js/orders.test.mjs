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

// A client of a namespace that only this test has. Its queues are made when they are named.
function connect(t) {
  const client = new ServiceBusClient(
    `Endpoint=sb://${broker};SharedAccessKeyName=${t.name};SharedAccessKey=any;UseDevelopmentEmulator=true`,
    { retryOptions: { maxRetries: 0 } },
  );
  t.after(() => client.close());
  return client;
}

// Looks behind the protocol, or changes what is there.
async function behind(t, method, path, body) {
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
  assert.deepEqual(await behind(t, "GET", "messages/orders"), []);
});

test("order-expires-after-an-hour", async (t) => {
  await connect(t).createSender("orders").sendMessages({ body: "one coffee", timeToLive: 3_600_000 });
  await behind(t, "POST", "clock", { advance: "2h" });
  t.after(() => behind(t, "POST", "clock", { offset: "0s" }));
  const [dead] = await behind(t, "GET", "messages/orders/$DeadLetterQueue");
  assert.equal(dead.deadLetterReason, "TTLExpiredException");
});

test("full-queue-is-an-error", async (t) => {
  const sender = connect(t).createSender("orders");
  await behind(t, "POST", "faults", { entity: "orders", operation: "send", error: "full", times: 1 });
  await assert.rejects(sender.sendMessages({ body: "one coffee" }), { code: "QuotaExceeded" });
  await sender.sendMessages({ body: "one coffee" });
  await behind(t, "POST", "reset");
});
