// SPDX-License-Identifier: Apache-2.0
// Handles the dead letters of a queue: orders that came too late go to one queue, orders that consumers could not
// handle go to another.

using Azure.Messaging.ServiceBus;

string[] late = ["TTLExpiredException", "DeadlineExceeded"];

await using var client = new ServiceBusClient(args[0]);
await using var lateOrders = client.CreateSender("late-orders");
await using var failedOrders = client.CreateSender("failed-orders");
await using var processor = client.CreateProcessor("handled-orders", new ServiceBusProcessorOptions { SubQueue = SubQueue.DeadLetter, AutoCompleteMessages = false });

processor.ProcessMessageAsync += async context =>
{
    var message = context.Message;
    var sender = late.Contains(message.DeadLetterReason) ? lateOrders : failedOrders;
    // The copy keeps the message-id, so that a second copy after a crash can be recognised.
    await sender.SendMessageAsync(new ServiceBusMessage(message.Body) { MessageId = message.MessageId });
    await context.CompleteMessageAsync(message);
    Console.WriteLine($"{message.MessageId}: {message.DeadLetterReason}, now in {sender.EntityPath}");
};
processor.ProcessErrorAsync += context =>
{
    Console.Error.WriteLine(context.Exception.Message);
    return Task.CompletedTask;
};
await processor.StartProcessingAsync();
await Task.Delay(Timeout.Infinite);
