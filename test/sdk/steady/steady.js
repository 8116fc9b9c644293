// SPDX-License-Identifier: Apache-2.0

// An app that sends and receives all the time. It sends again what has failed, over the same client. It sends until its
// standard input ends, then waits until all that was accepted since the last line of it has come back. Prints
// `sends` with the first of them, and in the end `sent N` and `missing N`.

import { ServiceBusClient } from "@azure/service-bus";

const retryOptions = { maxRetries: 20, retryDelayInMs: 200, timeoutInMs: 10_000 };
const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING, { retryOptions });
const got = new Set();
// A send that times out while its link is being reopened ends in a TypeError in a timer of the SDK, and its promise never settles.
process.on("uncaughtException", (err) => console.error(`${err}`));
const bounded = (send) => Promise.race([send, new Promise((_, fail) => setTimeout(() => fail(new Error("the SDK did not report an outcome")), 15_000).unref())]);
client.createReceiver(process.argv[2]).subscribe({
  processMessage: async (m) => void got.add(m.body),
  processError: async () => {}, // the SDK reports what it recovers from
});

let stopping = false;
const sent = [];
process.stdin.on("end", () => (stopping = true));
process.stdin.on("data", () => (sent.length = 0));
const note = (id) => sent.push(id) === 1 && console.log("sends");
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const sender = client.createSender(process.argv[2]);
for (let n = 0; !stopping; n++) {
  try {
    await bounded(sender.sendMessages({ body: `m${n}`, messageId: `m${n}`, applicationProperties: { "overdue-within": "1h" } }));
    note(`m${n}`);
  } catch (err) {
    // This SDK does not try again when nobody listens.
    console.error(`${err}`);
    await sleep(100);
    n--;
  }
  await sleep(5);
}
const until = Date.now() + 60_000;
const missing = () => sent.filter((id) => !got.has(id));
while (missing().length > 0 && Date.now() < until) await sleep(100);
console.log(`sent ${sent.length}`);
console.log(`missing ${missing().length}`);
await client.close();
process.exit(0);
