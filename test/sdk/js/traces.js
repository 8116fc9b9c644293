// SPDX-License-Identifier: Apache-2.0

// Sends one message and a batch of two with the SDK's tracing on. The SDK puts the context of a span
// of its own into each message. The spans are made here, since the tracing packages of OpenTelemetry
// are too many for a test.

import { randomBytes } from "node:crypto";
import { ServiceBusClient } from "@azure/service-bus";
import { useInstrumenter } from "@azure/core-tracing";

const key = Symbol("span");
const id = (n) => randomBytes(n).toString("hex");

useInstrumenter({
  startSpan(_name, options) {
    const parent = options?.tracingContext?.getValue(key);
    const context = { trace: parent?.trace ?? id(16), span: id(8) };
    const span = {
      isRecording: () => true, setStatus() {}, setAttribute() {}, addEvent() {}, recordException() {}, end() {},
    };
    return { span, tracingContext: contextWith(options?.tracingContext, context) };
  },
  withContext: (_context, callback, ...args) => callback(...args),
  parseTraceparentHeader: () => undefined,
  createRequestHeaders(context) {
    const at = context?.getValue(key);
    return at ? { traceparent: `00-${at.trace}-${at.span}-01` } : {};
  },
});

function contextWith(parent, context) {
  const values = new Map([[key, context]]);
  return {
    getValue: (k) => values.get(k) ?? parent?.getValue(k),
    setValue(k, v) { values.set(k, v); return this; },
    deleteValue(k) { values.delete(k); return this; },
  };
}

const message = (messageId) => ({ body: "hello", messageId, timeToLive: 1000 });

const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);
const sender = client.createSender("orders");
await sender.sendMessages(message("single"));
const batch = await sender.createMessageBatch();
for (const name of ["first", "second"]) {
  if (!batch.tryAddMessage(message(name))) throw new Error(`no room for ${name}`);
}
await sender.sendMessages(batch);
await client.close();
