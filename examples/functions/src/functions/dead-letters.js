// SPDX-License-Identifier: Apache-2.0

const { app, output } = require("@azure/functions");

// Orders that came too late go to late-function-orders. Overdue dead-letters each at its deadline, so the function runs then, too.
app.serviceBusQueue("lateOrders", {
  connection: "ServiceBusConnection",
  queueName: "function-orders/$DeadLetterQueue",
  return: output.serviceBusQueue({ connection: "ServiceBusConnection", queueName: "late-function-orders" }),
  handler(order, context) {
    const { messageId, applicationProperties } = context.triggerMetadata;
    context.log(`${messageId}: ${applicationProperties.deadLetterReason}, now in late-function-orders`);
    return order;
  },
});
