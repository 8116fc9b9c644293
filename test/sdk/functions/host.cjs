// SPDX-License-Identifier: Apache-2.0
// Plays the host of Azure Functions for one message: node host.cjs FOLDER CONNECTION-STRING. The functions register
// with the library that they import; the host gives it the module @azure/functions-core, as the real one does.

const assert = require("node:assert/strict");
const fs = require("node:fs");
const Module = require("node:module");
const path = require("node:path");
const { ServiceBusClient } = require("@azure/service-bus");

const [folder, connection] = process.argv.slice(2);
const read = (name) => JSON.parse(fs.readFileSync(path.join(folder, name), "utf8"));
const settings = read("local.settings.json").Values;
const registered = [];
const core = {
  setProgrammingModel() {},
  registerFunction: (metadata, handler) => registered.push({ metadata, handler }),
  log() {},
};
const load = Module._load;
Module._load = function (name, ...rest) {
  return name === "@azure/functions-core" ? core : load.call(this, name, ...rest);
};

// The host gives functions the properties of a message in camel case.
const camel = (properties) => Object.fromEntries(Object.entries(properties ?? {}).map(([k, v]) => [k[0].toLowerCase() + k.slice(1), v]));

async function main() {
  assert.equal(read("host.json").version, "2.0");
  const main = read("package.json").main;
  for (const file of fs.readdirSync(path.join(folder, path.dirname(main)))) {
    require(path.join(folder, path.dirname(main), file));
  }
  assert.equal(registered.length, 1);
  const [{ metadata, handler }] = registered;
  const bindings = Object.values(metadata.bindings);
  const trigger = bindings.find((b) => b.type === "serviceBusTrigger");
  const returned = bindings.find((b) => b.type === "serviceBus" && b.direction === "out");
  for (const b of [trigger, returned]) {
    assert.match(settings[b.connection], /^Endpoint=sb:\/\/127\.0\.0\.1:5672;/); // of which connection is the test's
  }
  const [queue, sub] = trigger.queueName.split("/");
  assert.equal(sub, "$DeadLetterQueue");

  const client = new ServiceBusClient(connection);
  await client.createSender(queue).sendMessages({ messageId: "order-1", body: "one coffee", timeToLive: 2000 });
  const receiver = client.createReceiver(queue, { subQueueType: "deadLetter" });
  const [message] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 60000 });
  const context = {
    log: console.log,
    triggerMetadata: { messageId: message.messageId, applicationProperties: camel(message._rawAmqpMessage.applicationProperties) },
  };
  const result = await handler(message.body, context);
  await client.createSender(returned.queueName).sendMessages({ body: result });
  await receiver.completeMessage(message);
  const [moved] = await client.createReceiver(returned.queueName).receiveMessages(1, { maxWaitTimeInMs: 60000 });
  assert.equal(moved.body, "one coffee");
  await client.close();
}

main();
