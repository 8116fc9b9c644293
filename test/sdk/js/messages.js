// SPDX-License-Identifier: Apache-2.0

// What is sent comes out as it went in.

import assert from "node:assert/strict";
import { bodies, failsWith, receive, receiveNothing, scenario } from "./harness.js";

scenario("send-receive", async (scene) => {
  const sent = {
    body: { order: 1, lines: ["a", "b"], note: "žluťoučký kůň" },
    messageId: "m-1",
    subject: "created",
    contentType: "application/json",
    correlationId: "c-1",
    to: "there",
    replyTo: "back",
    timeToLive: 60_000,
    applicationProperties: { kind: "test" },
  };
  const before = Date.now();
  await scene.sender().sendMessages(sent);
  const receiver = scene.receiver();
  const [m] = await receive(receiver, 1);
  for (const field of Object.keys(sent)) {
    assert.deepEqual(m[field], sent[field], field);
  }
  assert.equal(m.deliveryCount, 0);
  assert.equal(m.state, "active");
  assert.ok(m.sequenceNumber.toNumber() > 0, `sequence number ${m.sequenceNumber}`);
  assert.ok(m.enqueuedTimeUtc.getTime() >= before - 1000, `enqueued ${m.enqueuedTimeUtc.toISOString()}`);
  assert.equal(m.expiresAtUtc.getTime(), m.enqueuedTimeUtc.getTime() + 60_000);
  assert.ok(m.lockedUntilUtc.getTime() > Date.now(), `locked until ${m.lockedUntilUtc.toISOString()}`);
  assert.match(m.lockToken, /^[0-9a-f-]{36}$/);
  await receiver.completeMessage(m);
});

scenario("property-types", async (scene) => {
  const properties = {
    text: "a",
    empty: "",
    int: 7,
    negative: -1,
    big: 2 ** 40,
    double: 1.5,
    yes: true,
    no: false,
    nothing: null,
    when: new Date("2026-01-02T03:04:05.678Z"),
  };
  await scene.sender().sendMessages({ body: "x", applicationProperties: properties });
  const receiver = scene.receiver();
  const [m] = await receive(receiver, 1);
  // The SDK hands timestamps out as numbers or as dates, depending on its release.
  const got = { ...m.applicationProperties, when: new Date(m.applicationProperties.when) };
  assert.deepEqual(got, properties);
  await receiver.completeMessage(m);
});

scenario("body-types", async (scene) => {
  const sent = [
    { bodyType: "data", body: Buffer.from([0, 1, 254, 255]) },
    { bodyType: "value", body: "text" },
    { bodyType: "value", body: 42 },
    { bodyType: "sequence", body: [["a", 1], ["b", 2]] },
  ];
  await scene.sender().sendMessages(sent);
  const receiver = scene.receiver();
  const got = await receive(receiver, sent.length);
  for (const [i, m] of got.entries()) {
    const raw = m._rawAmqpMessage;
    assert.equal(raw.bodyType, sent[i].bodyType);
    assert.deepEqual(m.body, sent[i].body);
    await receiver.completeMessage(m);
  }
});

scenario("batch", async (scene) => {
  const sender = scene.sender();
  const batch = await sender.createMessageBatch();
  const body = Buffer.alloc(10_000, "x");
  while (batch.tryAddMessage({ body, messageId: `m-${batch.count}` })) {
    assert.ok(batch.count <= 100, "the batch takes more than its size");
  }
  assert.ok(batch.count >= 20, `the batch took ${batch.count} messages of 10,000 bytes`);
  await sender.sendMessages(batch);
  const receiver = scene.receiver();
  const got = await receive(receiver, batch.count);
  assert.deepEqual(
    got.map((m) => m.messageId),
    Array.from({ length: batch.count }, (_, i) => `m-${i}`),
  );
  for (const m of got) {
    await receiver.completeMessage(m);
  }
  await receiveNothing(receiver);
});

scenario("receive-and-delete", async (scene) => {
  await scene.sender().sendMessages([{ body: "a" }, { body: "b" }, { body: "c" }]);
  const receiver = scene.receiver({ receiveMode: "receiveAndDelete" });
  assert.deepEqual(bodies(await receive(receiver, 3)), ["a", "b", "c"]);
  assert.deepEqual(await scene.receiver().peekMessages(1), []);
});

scenario("peek", async (scene) => {
  await scene.sender().sendMessages(Array.from({ length: 5 }, (_, i) => ({ body: i })));
  const receiver = scene.receiver();
  const [locked] = await receive(receiver, 1);
  const peeker = scene.receiver();
  const first = await peeker.peekMessages(2);
  const rest = await peeker.peekMessages(10);
  assert.deepEqual(bodies([...first, ...rest]), [0, 1, 2, 3, 4]);
  assert.equal(first[0].lockToken, undefined);
  const from = await peeker.peekMessages(10, { fromSequenceNumber: first[0].sequenceNumber.add(3) });
  assert.deepEqual(bodies(from), [3, 4]);
  await receiver.completeMessage(locked);
});

scenario("large-message", async (scene) => {
  const body = Buffer.alloc(255 * 1024);
  for (let i = 0; i < body.length; i++) {
    body[i] = (i * 31) & 0xff;
  }
  await scene.sender().sendMessages({ body });
  const receiver = scene.receiver();
  const [m] = await receive(receiver, 1);
  assert.ok(body.equals(m.body), "the body has changed");
  await receiver.completeMessage(m);
});

scenario("message-too-large", async (scene) => {
  const sender = scene.sender();
  await failsWith("MessageSizeExceeded", () => sender.sendMessages({ body: Buffer.alloc(257 * 1024) }));
  await sender.sendMessages({ body: "small" });
  const receiver = scene.receiver();
  const [m] = await receive(receiver, 1);
  assert.equal(m.body, "small");
  await receiver.completeMessage(m);
});

scenario("subscribe", async (scene) => {
  const count = 50;
  const got = [];
  const receiver = scene.receiver();
  await new Promise((resolve, reject) => {
    receiver.subscribe(
      {
        processMessage: async (m) => {
          got.push(m.body);
          if (got.length === count) {
            resolve();
          }
        },
        processError: async (args) => reject(args.error),
      },
      { maxConcurrentCalls: 5 },
    );
    const messages = Array.from({ length: count }, (_, i) => ({ body: i }));
    scene.sender().sendMessages(messages).catch(reject);
  });
  await receiver.close(); // waits for the completions
  assert.deepEqual([...got].sort((a, b) => a - b), Array.from({ length: count }, (_, i) => i));
  await receiveNothing(scene.receiver());
});

scenario("send-again", async (scene) => {
  const sender = scene.sender();
  const receiver = scene.receiver();
  await sender.sendMessages({ body: "again", partitionKey: "p-1" });
  for (let i = 0; i < 3; i++) {
    const [m] = await receive(receiver, 1);
    assert.deepEqual([m.body, m.partitionKey], ["again", "p-1"]);
    if (i < 2) {
      await sender.sendMessages(m);
    }
    await receiver.completeMessage(m);
  }
});
