// SPDX-License-Identifier: Apache-2.0

// What is refused, and what is survived.

import assert from "node:assert/strict";
import { cutURL, failsWith, forwardedConnectionString, scenario, Scene, sleep } from "./harness.js";

scenario("entity-not-found", async (scene) => {
  const code = "MessagingEntityNotFound";
  await failsWith(code, () => scene.sender("nowhere").sendMessages({ body: "x" }));
  await failsWith(code, () => scene.client.createReceiver("nowhere").receiveMessages(1, { maxWaitTimeInMs: 1000 }));
  await failsWith(code, () => scene.client.createReceiver("nowhere").peekMessages(1));
});

scenario("reconnect", async (scene) => {
  const cut = new Scene(scene.queue, { connectionString: forwardedConnectionString });
  try {
    const got = new Set();
    const sender = cut.sender();
    cut.receiver().subscribe({
      processMessage: async (m) => void got.add(m.body),
      processError: async () => {}, // the SDK reports the cut, and goes on
    });
    const arrived = async (body) => {
      for (const end = Date.now() + 120_000; !got.has(body); await sleep(20)) {
        assert.ok(Date.now() < end, `${body} has not arrived; ${[...got]} have`);
      }
    };
    await sender.sendMessages({ body: "before" });
    await arrived("before");
    for (const round of ["first", "second"]) {
      const answer = await fetch(cutURL, { method: "POST" });
      assert.equal(answer.status, 204, "nothing was cut");
      await sender.sendMessages({ body: `after the ${round}` });
      await arrived(`after the ${round}`);
    }
  } finally {
    await cut.close();
  }
});
