// SPDX-License-Identifier: Apache-2.0

// Topics: who gets what, and rules over AMQP.

import assert from "node:assert/strict";
import { failsWith, receive, receiveNothing, scenario } from "./harness.js";

scenario("topic", async (scene) => {
  const order = (body, subject, applicationProperties) => ({ body, subject, applicationProperties });
  await scene.sender().sendMessages([
    order("small-red", "order", { color: "red", amount: 5 }),
    order("large-red", "order", { color: "red", amount: 20, secret: "x" }),
    order("blue", "order", { color: "blue", amount: 1 }),
    order("blue-note", "note", { color: "blue", amount: 1 }),
    order("vip", "vip-order", { amount: 1 }),
  ]);
  const want = {
    all: ["small-red", "large-red", "blue", "blue-note", "vip"],
    none: [],
    sql: ["large-red", "vip"],
    correlation: ["blue"],
  };
  for (const [subscription, bodies] of Object.entries(want)) {
    const receiver = scene.subscription(subscription);
    const got = await receive(receiver, bodies.length);
    assert.deepEqual(got.map((m) => m.body), bodies, subscription);
    if (subscription === "sql") {
      // An action leaves its rule's name on the copy.
      const want = { color: "red", amount: 20, seen: 21, RuleName: "large-red" };
      assert.deepEqual(got[0].applicationProperties, want, "after the action");
    }
    for (const m of got) {
      await receiver.completeMessage(m);
    }
    await receiveNothing(receiver);
  }
  const receiver = scene.subscription("all");
  await scene.sender().sendMessages({ body: "bad" });
  const [m] = await receive(receiver, 1);
  await receiver.deadLetterMessage(m, { deadLetterReason: "Bad" });
  const dead = scene.subscription("all", { subQueueType: "deadLetter" });
  const [d] = await receive(dead, 1);
  assert.equal(d.deadLetterReason, "Bad");
  await dead.completeMessage(d);
});

scenario("topic-schedule", async (scene) => {
  const sender = scene.sender();
  const at = new Date(Date.now() + 15_000); // a busy machine cancels late
  const [cancelled] = await sender.scheduleMessages([{ body: "never" }], at);
  await sender.scheduleMessages([{ body: "later" }], at);
  await sender.cancelScheduledMessages(cancelled);
  const receiver = scene.subscription("all");
  const [m] = await receive(receiver, 1);
  assert.ok(Date.now() >= at.getTime() - 50, "came before its time");
  assert.equal(m.body, "later");
  await receiver.completeMessage(m);
});

scenario("rule-manager", async (scene) => {
  const manager = scene.client.createRuleManager(scene.queue, "some");
  const rules = async () => {
    const all = [];
    for await (const rule of manager.listRules()) {
      all.push(rule);
    }
    return all.sort((a, b) => a.name.localeCompare(b.name));
  };
  const [standard, ...none] = await rules();
  assert.equal(standard.name, "$Default");
  assert.deepEqual(standard.filter, { sqlExpression: "1=1" });
  assert.deepEqual(none, []);
  await manager.deleteRule("$Default");
  await manager.createRule("large", { sqlExpression: "amount > 10" }, { sqlExpression: "SET big = true" });
  await manager.createRule("urgent", { subject: "urgent", applicationProperties: { grade: 1, note: "n" } });
  await failsWith("MessagingEntityAlreadyExists", () => manager.createRule("large", { sqlExpression: "1=1" }));
  await failsWith("MessagingEntityNotFound", () => manager.deleteRule("$Default"));
  const [large, urgent] = await rules();
  assert.equal(large.name, "large");
  assert.deepEqual(large.filter, { sqlExpression: "amount > 10" });
  assert.deepEqual(large.action, { sqlExpression: "SET big = true" });
  assert.equal(urgent.name, "urgent");
  assert.equal(urgent.filter.subject, "urgent");
  assert.deepEqual(urgent.filter.applicationProperties, { grade: 1, note: "n" });

  await scene.sender().sendMessages([
    { body: "small", applicationProperties: { amount: 1 } },
    { body: "large", applicationProperties: { amount: 11 } },
    { body: "urgent", subject: "urgent", applicationProperties: { grade: 1, note: "n" } },
  ]);
  const receiver = scene.subscription("some");
  const got = await receive(receiver, 2);
  assert.deepEqual(got.map((m) => [m.body, m.applicationProperties.big]), [["large", true], ["urgent", undefined]]);
  for (const m of got) {
    await receiver.completeMessage(m);
  }
  await receiveNothing(receiver);
});

scenario("duplicate", async (scene) => {
  const sender = scene.sender();
  for (const body of ["first", "second"]) {
    await sender.sendMessages({ body, messageId: "same" });
  }
  await sender.sendMessages({ body: "other", messageId: "other" });
  const receiver = scene.receiver();
  const got = await receive(receiver, 2);
  assert.deepEqual(got.map((m) => m.body), ["first", "other"]);
  for (const m of got) {
    await receiver.completeMessage(m);
  }
});

scenario("forward", async (scene) => {
  await scene.sender().sendMessages({ body: "passed on" });
  const receiver = scene.client.createReceiver("forward-to");
  const [m] = await receive(receiver, 1);
  assert.equal(m.body, "passed on");
  assert.ok(m.enqueuedSequenceNumber > 0, `enqueued sequence number ${m.enqueuedSequenceNumber}`);
  await receiver.completeMessage(m);
});
