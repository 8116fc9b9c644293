// SPDX-License-Identifier: Apache-2.0

// Locks: kept, renewed by the SDK itself, and lost.

import assert from "node:assert/strict";
import { failsWith, receive, receiveNothing, scenario, sleep } from "./harness.js";

scenario("renew-lock", async (scene) => {
  await scene.sender().sendMessages({ body: "mine" });
  const receiver = scene.receiver({ maxAutoLockRenewalDurationInMs: 0 });
  const [m] = await receive(receiver, 1);
  const first = m.lockedUntilUtc;
  await sleep(8000);
  const renewed = await receiver.renewMessageLock(m);
  assert.ok(renewed.getTime() >= first.getTime() + 7900, `renewed to ${renewed.toISOString()} from ${first.toISOString()}`);
  await sleep(first.getTime() - Date.now() + 500); // past the first lock
  await receiver.completeMessage(m);
  await receiveNothing(scene.receiver());
});

scenario("auto-renew", async (scene) => {
  await scene.sender().sendMessages({ body: "mine" });
  const receiver = scene.receiver({ maxAutoLockRenewalDurationInMs: 60_000 });
  await new Promise((resolve, reject) => {
    receiver.subscribe(
      {
        processMessage: async (m) => {
          const first = m.lockedUntilUtc;
          await sleep(first.getTime() - Date.now() + 1500);
          await receiver.completeMessage(m);
          resolve();
        },
        processError: async (args) => reject(args.error),
      },
      { autoCompleteMessages: false },
    );
  });
  await receiveNothing(scene.receiver());
});

scenario("lock-lost", async (scene) => {
  await scene.sender().sendMessages({ body: "slow" });
  const receiver = scene.receiver({ maxAutoLockRenewalDurationInMs: 0 });
  const [m] = await receive(receiver, 1);
  await sleep(m.lockedUntilUtc.getTime() - Date.now() + 300);
  await failsWith("MessageLockLost", () => receiver.completeMessage(m));
  await failsWith("MessageLockLost", () => receiver.renewMessageLock(m));
  const [again] = await receive(receiver, 1);
  assert.equal(again.deliveryCount, 1);
  await receiver.completeMessage(again);
});

scenario("settle-over-management", async (scene) => {
  await scene.sender().sendMessages([{ body: "a" }, { body: "b" }]);
  const closed = scene.receiver();
  const [a, b] = await receive(closed, 2);
  await closed.close();
  // The link of the delivery is gone: the SDK settles by lock token.
  const receiver = scene.receiver();
  await receiver.completeMessage(a);
  await receiver.deadLetterMessage(b, { deadLetterReason: "Late" });
  const dead = scene.receiver({ subQueueType: "deadLetter" });
  const [d] = await receive(dead, 1);
  assert.equal(d.deadLetterReason, "Late");
  await dead.completeMessage(d);
});
