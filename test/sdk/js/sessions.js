// SPDX-License-Identifier: Apache-2.0

// Sessions: one holder at a time, in order, with a state.

import assert from "node:assert/strict";
import { bodies, failsWith, receive, receiveNothing, scenario, sleep } from "./harness.js";

const inSession = (sessionId, ...texts) => texts.map((body) => ({ body, sessionId }));

scenario("session", async (scene) => {
  await scene.sender().sendMessages([...inSession("a", "a1", "a2", "a3"), ...inSession("b", "b1")]);
  const session = await scene.client.acceptSession(scene.queue, "a");
  assert.equal(session.sessionId, "a");
  assert.ok(session.sessionLockedUntilUtc.getTime() > Date.now(), `locked until ${session.sessionLockedUntilUtc}`);
  assert.deepEqual(bodies(await session.peekMessages(10)), ["a1", "a2", "a3"]);
  const got = await receive(session, 3);
  assert.deepEqual(got.map((m) => [m.body, m.sessionId]), [["a1", "a"], ["a2", "a"], ["a3", "a"]]);
  await session.completeMessage(got[0]);
  await session.deferMessage(got[1]);
  await session.deadLetterMessage(got[2], { deadLetterReason: "Bad" });
  await receiveNothing(session);
  const [deferred] = await session.receiveDeferredMessages(got[1].sequenceNumber);
  assert.equal(deferred.body, "a2");
  await session.completeMessage(deferred);

  assert.equal(await session.getSessionState(), null);
  await session.setSessionState({ step: 2 });
  assert.deepEqual(await session.getSessionState(), { step: 2 });
  await failsWith("SessionCannotBeLocked", () => scene.client.acceptSession(scene.queue, "a"));
  await session.close();
  const again = await scene.client.acceptSession(scene.queue, "a");
  assert.deepEqual(await again.getSessionState(), { step: 2 });
  await again.close();

  const dead = scene.receiver({ subQueueType: "deadLetter" });
  const [d] = await receive(dead, 1);
  assert.deepEqual([d.body, d.sessionId], ["a3", "a"]);
  await dead.completeMessage(d);
});

scenario("session-next", async (scene) => {
  await scene.sender().sendMessages([...inSession("a", "a1"), ...inSession("b", "b1")]);
  const first = await scene.client.acceptNextSession(scene.queue);
  const second = await scene.client.acceptNextSession(scene.queue);
  assert.deepEqual([first.sessionId, second.sessionId].sort(), ["a", "b"]);
  for (const session of [first, second]) {
    const [m] = await receive(session, 1);
    assert.equal(m.body, `${session.sessionId}1`);
    await session.completeMessage(m);
    await session.close();
  }
  await failsWith("ServiceTimeout", () => scene.client.acceptNextSession(scene.queue));
});

scenario("session-renew", async (scene) => {
  await scene.sender().sendMessages(inSession("a", "a1"));
  const session = await scene.client.acceptSession(scene.queue, "a", { maxAutoLockRenewalDurationInMs: 0 });
  const [m] = await receive(session, 1);
  const first = session.sessionLockedUntilUtc;
  await sleep(8000);
  const renewed = await session.renewSessionLock();
  assert.ok(renewed.getTime() >= first.getTime() + 7900, `renewed to ${renewed.toISOString()} from ${first.toISOString()}`);
  await sleep(first.getTime() - Date.now() + 500); // past the first lock
  await session.completeMessage(m);
  await session.close();
});

scenario("session-lock-lost", async (scene) => {
  await scene.sender().sendMessages(inSession("a", "a1"));
  const session = await scene.client.acceptSession(scene.queue, "a", { maxAutoLockRenewalDurationInMs: 0 });
  const [m] = await receive(session, 1);
  await sleep(session.sessionLockedUntilUtc.getTime() - Date.now() + 1000); // it holds half a second longer
  await failsWith("SessionLockLost", () => session.completeMessage(m));
  const again = await scene.client.acceptSession(scene.queue, "a");
  const [n] = await receive(again, 1);
  assert.equal(n.deliveryCount, 1);
  await again.completeMessage(n);
});

scenario("session-topic", async (scene) => {
  await scene.sender().sendMessages([...inSession("a", "a1"), { body: "none" }]);
  const session = await scene.client.acceptNextSession(scene.queue, "s");
  assert.equal(session.sessionId, "a");
  const [m] = await receive(session, 1);
  assert.equal(m.body, "a1");
  await session.completeMessage(m);
  const dead = scene.subscription("s", { subQueueType: "deadLetter" });
  const [d] = await receive(dead, 1);
  assert.deepEqual([d.body, d.deadLetterReason], ["none", "Session id is null."]);
  await dead.completeMessage(d);
});
