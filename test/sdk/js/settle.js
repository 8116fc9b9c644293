// SPDX-License-Identifier: Apache-2.0

// The four settlements, and what each leaves behind.

import assert from "node:assert/strict";
import { failsWith, receive, receiveNothing, scenario } from "./harness.js";

scenario("complete", async (scene) => {
  await scene.sender().sendMessages({ body: "done" });
  const receiver = scene.receiver();
  const [m] = await receive(receiver, 1);
  await receiver.completeMessage(m);
  assert.deepEqual(await receiver.peekMessages(1, { fromSequenceNumber: m.sequenceNumber }), []);
});

scenario("abandon", async (scene) => {
  await scene.sender().sendMessages({ body: "again", applicationProperties: { kept: 1 } });
  const receiver = scene.receiver();
  const [m] = await receive(receiver, 1);
  await receiver.abandonMessage(m, { attempt: "second" });
  const [again] = await receive(receiver, 1);
  assert.equal(again.deliveryCount, 1);
  assert.deepEqual(again.applicationProperties, { kept: 1, attempt: "second" });
  assert.ok(again.sequenceNumber.equals(m.sequenceNumber));
  await receiver.completeMessage(again);
});

scenario("max-delivery-count", async (scene) => {
  await scene.sender().sendMessages({ body: "poison" });
  const receiver = scene.receiver();
  for (let i = 0; i < 3; i++) {
    const [m] = await receive(receiver, 1);
    assert.equal(m.deliveryCount, i);
    await receiver.abandonMessage(m);
  }
  const dead = scene.receiver({ subQueueType: "deadLetter" });
  const [m] = await receive(dead, 1);
  assert.equal(m.deadLetterReason, "MaxDeliveryCountExceeded");
  await dead.completeMessage(m);
});

scenario("defer", async (scene) => {
  await scene.sender().sendMessages([{ body: "later" }, { body: "now" }]);
  const receiver = scene.receiver();
  const [later, now] = await receive(receiver, 2);
  await receiver.deferMessage(later, { deferred: true });
  await receiver.completeMessage(now);
  await receiveNothing(receiver);
  const [peeked] = await scene.receiver().peekMessages(1);
  assert.equal(peeked.state, "deferred");
  const [m] = await receiver.receiveDeferredMessages(later.sequenceNumber);
  assert.equal(m.body, "later");
  assert.deepEqual(m.applicationProperties, { deferred: true });
  await receiver.completeMessage(m);
  await failsWith("MessageNotFound", () => receiver.receiveDeferredMessages(later.sequenceNumber));
});

scenario("dead-letter", async (scene) => {
  await scene.sender().sendMessages({ body: "bad", messageId: "m-bad", applicationProperties: { kept: "yes" } });
  const receiver = scene.receiver();
  const [m] = await receive(receiver, 1);
  await receiver.deadLetterMessage(m, {
    deadLetterReason: "Unreadable",
    deadLetterErrorDescription: "It has no head.",
    seen: 1,
  });
  await receiveNothing(receiver);
  const dead = scene.receiver({ subQueueType: "deadLetter" });
  const [d] = await receive(dead, 1);
  assert.equal(d.messageId, "m-bad");
  assert.equal(d.deadLetterReason, "Unreadable");
  assert.equal(d.deadLetterErrorDescription, "It has no head.");
  assert.equal(d.applicationProperties.kept, "yes");
  assert.equal(d.applicationProperties.seen, 1);
  assert.ok(d.sequenceNumber.equals(m.sequenceNumber));
  await dead.completeMessage(d);
  assert.deepEqual(await scene.receiver({ subQueueType: "deadLetter" }).peekMessages(1), []);
});

scenario("expire", async (scene) => {
  await scene.sender().sendMessages({ body: "stale", timeToLive: 100 });
  await new Promise((resolve) => setTimeout(resolve, 150));
  await receiveNothing(scene.receiver());
  const dead = scene.receiver({ subQueueType: "deadLetter" });
  const [d] = await receive(dead, 1);
  assert.equal(d.deadLetterReason, "TTLExpiredException");
  await dead.completeMessage(d);
});
