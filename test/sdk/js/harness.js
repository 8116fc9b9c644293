// SPDX-License-Identifier: Apache-2.0

// Runs scenarios a few at a time, each with a client of its own on the queue that has its name, and
// prints `ok NAME` or `FAIL NAME: why` for each.

import { ServiceBusClient, ServiceBusError } from "@azure/service-bus";

export const connectionString = required("SERVICEBUS_CONNECTION_STRING");
// The same namespace through a forwarder, whose connections a POST to cutURL cuts.
export const forwardedConnectionString = required("SERVICEBUS_FORWARDED_CONNECTION_STRING");
export const cutURL = required("SERVICEBUS_CUT_URL");
// The same over TLS, to an authority that NODE_EXTRA_CA_CERTS names.
export const tlsConnectionString = required("SERVICEBUS_TLS_CONNECTION_STRING");
// Its administration API, likewise.
export const adminConnectionString = required("SERVICEBUS_ADMIN_CONNECTION_STRING");

// The defaults wait 30 s before a retry: longer than any scenario may take.
export const retryOptions = { maxRetries: 3, retryDelayInMs: 200, timeoutInMs: 10_000 };

const CONCURRENCY = 10;
const PATIENCE_MS = 240_000;

const scenarios = [];

/** Adds a scenario. fn is given a Scene. */
export function scenario(name, fn) {
  scenarios.push({ name, fn });
}

/** What a scenario works with: a client, closed behind it, and the queue or topic of its name. */
export class Scene {
  constructor(name, options = {}) {
    this.queue = name;
    const { connectionString: to = connectionString, credential, ...others } = options;
    const clientOptions = { retryOptions, ...others };
    this.client = credential ? new ServiceBusClient("contoso.servicebus.windows.net", credential, clientOptions) : new ServiceBusClient(to, clientOptions);
  }
  sender(entity = this.queue) {
    return this.client.createSender(entity);
  }
  receiver(options) {
    return this.client.createReceiver(this.queue, options);
  }
  subscription(name, options) {
    return this.client.createReceiver(this.queue, name, options);
  }
  close() {
    return this.client.close();
  }
}

/** Receives exactly count messages, in one or more calls. */
export async function receive(receiver, count) {
  const got = [];
  while (got.length < count) {
    const some = await receiver.receiveMessages(count - got.length, { maxWaitTimeInMs: 60_000 });
    if (some.length === 0) {
      throw new Error(`received ${got.length} messages in time, want ${count}`);
    }
    got.push(...some);
  }
  return got;
}

/** Fails unless nothing arrives within the time. */
export async function receiveNothing(receiver, ms = 300) {
  const got = await receiver.receiveMessages(1, { maxWaitTimeInMs: ms });
  if (got.length !== 0) {
    throw new Error(`received ${JSON.stringify(got[0].body)}, want nothing`);
  }
}

/** Runs fn, which has to fail with that code of ServiceBusError. */
export async function failsWith(code, fn) {
  try {
    await fn();
  } catch (err) {
    if (err instanceof ServiceBusError && err.code === code) {
      return err;
    }
    throw new Error(`failed with ${err.name} ${err.code}: ${err.message}, want ${code}`);
  }
  throw new Error(`succeeded, want ${code}`);
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export const bodies = (messages) => messages.map((m) => m.body);

/** Runs what was added; the exit code says whether all of it passed. */
export async function run(only) {
  const waiting = scenarios.filter((s) => only.length === 0 || only.includes(s.name));
  let passed = 0;
  let failed = 0;
  const worker = async () => {
    for (let s = waiting.shift(); s; s = waiting.shift()) {
      const scene = new Scene(s.name);
      try {
        await within(PATIENCE_MS, s.fn(scene));
        console.log(`ok ${s.name}`);
        passed++;
      } catch (err) {
        const why = String(err?.stack ?? err).replaceAll(/\s*\n\s*/g, " | ");
        console.log(`FAIL ${s.name}: ${why}`);
        failed++;
      } finally {
        await within(5_000, scene.close()).catch((err) => console.error(`${s.name}: closing: ${err}`));
      }
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, worker));
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed === 0 && passed > 0 ? 0 : 1);
}

function within(ms, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${ms} ms`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

function required(name) {
  const value = process.env[name];
  if (!value) {
    console.error(`${name} is not set`);
    process.exit(2);
  }
  return value;
}
