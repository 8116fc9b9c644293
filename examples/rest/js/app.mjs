// SPDX-License-Identifier: Apache-2.0

const answer = await fetch(`${process.argv[2]}/rest-orders/messages`, {
  method: "POST",
  headers: {
    BrokerProperties: JSON.stringify({ MessageId: "order-2", TimeToLive: 3600 }),
    "overdue-within": '"2s"', // a custom property: a string in quotation marks
  },
  body: "one tea",
});
console.log("order-2:", answer.status);
