// SPDX-License-Identifier: Apache-2.0
// Sends an order that nobody receives, and reads it from the dead-letter queue.

using Azure.Messaging.ServiceBus;

await using var client = new ServiceBusClient(args[0]);

await using var sender = client.CreateSender("sidecar-orders");
await sender.SendMessageAsync(new ServiceBusMessage("one coffee") { MessageId = "order-1", TimeToLive = TimeSpan.FromSeconds(2) });
Console.WriteLine("sent order-1");

await using var receiver = client.CreateReceiver("sidecar-orders", new ServiceBusReceiverOptions { SubQueue = SubQueue.DeadLetter });
foreach (var message in await receiver.ReceiveMessagesAsync(1, TimeSpan.FromSeconds(10)))
{
    Console.WriteLine($"{message.MessageId} {message.Body} {message.DeadLetterReason}");
    await receiver.CompleteMessageAsync(message);
}
