// SPDX-License-Identifier: Apache-2.0

// The other ways in: TLS, WebSocket, and the administration API over HTTPS.

import assert from "node:assert/strict";
import { webcrypto } from "node:crypto";
import { ServiceBusAdministrationClient } from "@azure/service-bus";
import WebSocket from "ws";
import { adminConnectionString, receive, scenario, Scene, tlsConnectionString } from "./harness.js";

// The SDK counts on it; Node 18, that of Debian 12, has it only here.
globalThis.crypto ??= webcrypto;

async function sendAndReceive(scene) {
  await scene.sender().sendMessages([{ body: "a" }, { body: Buffer.alloc(200_000, "b") }]);
  const receiver = scene.receiver();
  for (const m of await receive(receiver, 2)) {
    await receiver.completeMessage(m);
  }
}

scenario("tls", async ({ queue }) => {
  const scene = new Scene(queue, { connectionString: tlsConnectionString });
  try {
    await sendAndReceive(scene);
  } finally {
    await scene.close();
  }
});

scenario("websocket", async ({ queue }) => {
  const scene = new Scene(queue, { connectionString: tlsConnectionString, webSocketOptions: { webSocket: WebSocket } });
  try {
    await sendAndReceive(scene);
  } finally {
    await scene.close();
  }
});

// The connection string is that of a namespace elsewhere, and so is the audience of every token.
scenario("custom-endpoint", async ({ queue }) => {
  const [endpoint, ...rest] = tlsConnectionString.split(";");
  const connectionString = ["Endpoint=sb://contoso.servicebus.windows.net/", ...rest].join(";");
  const customEndpointAddress = endpoint.replace("Endpoint=", "");
  for (const options of [{}, { webSocketOptions: { webSocket: WebSocket } }]) {
    const scene = new Scene(queue, { connectionString, customEndpointAddress, ...options });
    try {
      await sendAndReceive(scene);
    } finally {
      await scene.close();
    }
  }
  const wrong = connectionString.replace(/SharedAccessKey=.*/, "SharedAccessKey=d3Jvbmc=");
  const scene = new Scene(queue, { connectionString: wrong, customEndpointAddress });
  try {
    // This SDK tries again, and fails with what came of each try.
    await assert.rejects(scene.sender().sendMessages({ body: "a" }), (err) =>
      (err.errors ?? [err]).every((e) => /InvalidSignature/.test(e.message)),
    );
  } finally {
    await scene.close();
  }
});

// An app that signs in with Entra ID has the name of its namespace and a credential. Its token is for
// Service Bus, and passes the endpoint.
scenario("entra", async ({ queue }) => {
  const credential = {
    async getToken(scope) {
      assert.equal(String(scope), "https://servicebus.azure.net//.default");
      return { token: "eyJhbGciOiJub25lIn0.e30.", expiresOnTimestamp: Date.now() + 3_600_000 };
    },
  };
  const customEndpointAddress = tlsConnectionString.split(";")[0].replace("Endpoint=", "");
  for (const options of [{}, { webSocketOptions: { webSocket: WebSocket } }]) {
    const scene = new Scene(queue, { credential, customEndpointAddress, ...options });
    try {
      await sendAndReceive(scene);
    } finally {
      await scene.close();
    }
  }
});

scenario("administration", async (scene) => {
  const admin = new ServiceBusAdministrationClient(adminConnectionString);

  const created = await admin.createQueue("made-queue", {
    lockDuration: "PT45S",
    maxDeliveryCount: 7,
    requiresSession: true,
    deadLetteringOnMessageExpiration: true,
    defaultMessageTimeToLive: "PT2H",
    userMetadata: "<made & marked>",
  });
  assert.equal(created.lockDuration, "PT45S");
  assert.equal(created.requiresSession, true);
  const queue = await admin.getQueue("made-queue");
  assert.equal(queue.maxDeliveryCount, 7);
  assert.equal(queue.defaultMessageTimeToLive, "PT2H");
  assert.equal(queue.userMetadata, "<made & marked>");
  queue.maxDeliveryCount = 9;
  assert.equal((await admin.updateQueue(queue)).maxDeliveryCount, 9);
  const names = [];
  for await (const q of admin.listQueues()) {
    names.push(q.name);
  }
  assert.ok(names.includes("made-queue") && names.includes(scene.queue), `queues ${names}`);
  await assert.rejects(admin.createQueue("made-queue"), { code: "MessageEntityAlreadyExistsError" });

  await scene.sender().sendMessages([{ body: "a" }, { body: "b" }]);
  await scene.sender().scheduleMessages({ body: "c" }, new Date(Date.now() + 60_000));
  const runtime = await admin.getQueueRuntimeProperties(scene.queue);
  assert.equal(runtime.activeMessageCount, 2);
  assert.equal(runtime.scheduledMessageCount, 1);
  assert.equal(runtime.totalMessageCount, 3);

  await admin.createTopic("made-topic");
  await admin.createSubscription("made-topic", "s", { defaultRuleOptions: { name: "r", filter: { sqlExpression: "a = 1" } } });
  await admin.createRule("made-topic", "s", "c", { correlationId: "x", applicationProperties: { n: 1 } }, { sqlExpression: "SET b = 2" });
  const rules = [];
  for await (const rule of admin.listRules("made-topic", "s")) {
    rules.push(rule.name);
  }
  assert.deepEqual(rules.sort(), ["c", "r"]);
  const rule = await admin.getRule("made-topic", "s", "c");
  assert.equal(rule.filter.correlationId, "x");
  assert.deepEqual(rule.filter.applicationProperties, { n: 1 });
  assert.equal(rule.action.sqlExpression, "SET b = 2");
  await scene.sender("made-topic").sendMessages([{ body: "in", applicationProperties: { a: 1 } }, { body: "out" }]);
  const receiver = scene.client.createReceiver("made-topic", "s");
  const [m] = await receive(receiver, 1);
  assert.equal(m.body, "in");
  await receiver.completeMessage(m);
  assert.equal((await admin.getSubscriptionRuntimeProperties("made-topic", "s")).totalMessageCount, 0);

  await admin.deleteRule("made-topic", "s", "c");
  await admin.deleteSubscription("made-topic", "s");
  await admin.deleteTopic("made-topic");
  await admin.deleteQueue("made-queue");
  assert.equal(await admin.queueExists("made-queue"), false);
  assert.equal(await admin.topicExists("made-topic"), false);
  assert.ok((await admin.getNamespaceProperties()).name, "the namespace has no name");
});
