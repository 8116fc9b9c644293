// SPDX-License-Identifier: Apache-2.0

// Messages for later.

import assert from "node:assert/strict";
import { bodies, failsWith, receive, scenario } from "./harness.js";

const inMs = (ms) => new Date(Date.now() + ms);

/** Schedules two messages and peeks them, for a time that has not come by then: a machine may be busy. */
async function scheduleAndPeek(scene) {
  const receiver = scene.receiver();
  for (let ms = 1500; ; ms *= 2) {
    const at = inMs(ms);
    const numbers = await scene.sender().scheduleMessages([{ body: "a" }, { body: "b" }], at);
    const peeked = await receiver.peekMessages(10);
    if (Date.now() < at.getTime()) {
      return { at, numbers, peeked };
    }
    for (const m of await receive(receiver, 2)) {
      await receiver.completeMessage(m);
    }
  }
}

scenario("schedule", async (scene) => {
  const { at, numbers, peeked } = await scheduleAndPeek(scene);
  assert.equal(numbers.length, 2);
  assert.deepEqual(peeked.map((m) => [m.body, m.state]), [["a", "scheduled"], ["b", "scheduled"]]);
  assert.deepEqual(peeked.map((m) => m.sequenceNumber.toString()), numbers.map(String));
  const receiver = scene.receiver();
  const got = await receive(receiver, 2);
  assert.ok(Date.now() >= at.getTime() - 50, "came before its time");
  assert.deepEqual(bodies(got).sort(), ["a", "b"]);
  for (const m of got) {
    assert.equal(m.scheduledEnqueueTimeUtc.getTime(), at.getTime());
    await receiver.completeMessage(m);
  }
});

scenario("schedule-by-property", async (scene) => {
  const at = inMs(1000);
  await scene.sender().sendMessages({ body: "later", scheduledEnqueueTimeUtc: at });
  const receiver = scene.receiver();
  const [m] = await receive(receiver, 1);
  assert.ok(Date.now() >= at.getTime() - 50, "came before its time");
  await receiver.completeMessage(m);
});

scenario("cancel", async (scene) => {
  const sender = scene.sender();
  const at = inMs(60_000);
  const numbers = await sender.scheduleMessages([{ body: "a" }, { body: "b" }, { body: "c" }], at);
  await sender.cancelScheduledMessages([numbers[0], numbers[2]]);
  assert.deepEqual(bodies(await scene.receiver().peekMessages(10)), ["b"]);
  await sender.cancelScheduledMessages(numbers[1]);
  assert.deepEqual(await scene.receiver().peekMessages(10), []);
  await failsWith("MessageNotFound", () => sender.cancelScheduledMessages(numbers[1]));
});
