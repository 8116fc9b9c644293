// SPDX-License-Identifier: Apache-2.0

// An app whose broker is killed again and again. It sends to two sessions and receives from them, one message at a time, until
// its standard input ends. A send of which nothing is known is made again, with the same message-id. Prints what the broker has
// acknowledged: `sent SESSION N` and `done SESSION N`; and before it completes a message, `got SESSION N SEQUENCE-NUMBER`.

import { ServiceBusClient } from "@azure/service-bus";

const queue = process.argv[2];
const retryOptions = { maxRetries: 0, retryDelayInMs: 10, timeoutInMs: 2_000 };
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
// What fails in timers of the SDK is of clients that have been given up.
process.on("uncaughtException", (err) => console.error(`${err}`));
const AHEAD = 20; // messages that are sent before the first of them is received
const latest = { a: 0, b: 0 };
let over = false;
process.stdin.on("end", () => (over = true)).resume();

// The SDK does not report every outcome when a connection is cut.
const bounded = (promise) => Promise.race([promise, new Promise((_, fail) => setTimeout(() => fail(new Error("no outcome")), 3_000).unref())]);

/** Does work with a new client each time, until the end. */
async function again(work) {
  while (!over) {
    const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING, { retryOptions });
    try {
      await work(client);
    } catch (err) {
      console.error(`${err}`); // nobody listens, or the connection is cut
      await sleep(20);
    }
    client.close().catch(() => {});
  }
}

async function send(session) {
  let n = 1;
  await again(async (client) => {
    const sender = client.createSender(queue);
    while (!over) {
      await bounded(sender.sendMessages({ body: `${session} ${n}`, messageId: `${session}-${n}`, sessionId: session }));
      console.log(`sent ${session} ${n++}`);
      do await sleep(10);
      while (n > latest[session] + AHEAD && !over);
    }
  });
}

async function receive(session) {
  await again(async (client) => {
    const receiver = await bounded(client.acceptSession(queue, session));
    while (!over) {
      for (const m of await bounded(receiver.receiveMessages(1, { maxWaitTimeInMs: 1_000 }))) {
        latest[session] = Number(m.body.split(" ")[1]);
        console.log(`got ${m.body} ${m.sequenceNumber}`);
        await bounded(receiver.completeMessage(m));
        console.log(`done ${m.body}`);
      }
    }
  });
}

await Promise.all(["a", "b"].flatMap((session) => [send(session), receive(session)]));
process.exit(0);
