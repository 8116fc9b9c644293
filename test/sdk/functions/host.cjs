// SPDX-License-Identifier: Apache-2.0
// Stands for Azure Functions Core Tools: `func start` in the folder of the functions is the host, for one message. The
// functions register with the library that they import; the host gives it the module @azure/functions-core, as the real one does.

const assert = require("node:assert/strict");
const fs = require("node:fs");
const Module = require("node:module");
const path = require("node:path");
const { ServiceBusClient } = require("@azure/service-bus");

assert.deepEqual(process.argv.slice(2), ["start"]);
const folder = process.cwd();
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
  assert.equal(trigger.connection, returned.connection);
  const [queue, sub] = trigger.queueName.split("/");
  assert.equal(sub, "$DeadLetterQueue");

  const client = new ServiceBusClient(settings[trigger.connection]);
  const receiver = client.createReceiver(queue, { subQueueType: "deadLetter" });
  const [message] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 600000 });
  const context = {
    log: console.log,
    triggerMetadata: { messageId: message.messageId, applicationProperties: camel(message._rawAmqpMessage.applicationProperties) },
  };
  const result = await handler(message.body, context);
  await client.createSender(returned.queueName).sendMessages({ body: result });
  await receiver.completeMessage(message);
  const [moved] = await client.createReceiver(returned.queueName).receiveMessages(1, { maxWaitTimeInMs: 60000 });
  assert.equal(String(moved.body), "one coffee");
  await client.close();
}

main();
