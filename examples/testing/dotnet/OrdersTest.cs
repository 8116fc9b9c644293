// SPDX-License-Identifier: Apache-2.0

using System.Runtime.CompilerServices;
using Azure.Messaging.ServiceBus;
using Xunit;

public class OrdersTest(Broker broker) : IClassFixture<Broker>
{
    // A client of a namespace for this test alone.
    ServiceBusClient Connect([CallerMemberName] string test = "") =>
        new(broker.ConnectionString(test), new ServiceBusClientOptions { RetryOptions = new() { MaxRetries = 0 } });

    [Fact]
    public async Task OrderIsReceived()
    {
        await using var client = Connect();
        await client.CreateSender("test-orders").SendMessageAsync(new("one coffee"));
        await using var receiver = client.CreateReceiver("test-orders");
        var message = await receiver.ReceiveMessageAsync();
        Assert.Equal("one coffee", message.Body.ToString());
        await receiver.CompleteMessageAsync(message);
        Assert.Equal(0, (await broker.Control(nameof(OrderIsReceived), HttpMethod.Get, "messages/test-orders")).GetArrayLength());
    }

    [Fact]
    public async Task OrderExpiresAfterAnHour()
    {
        await using var client = Connect();
        await client.CreateSender("test-orders").SendMessageAsync(new("one coffee") { TimeToLive = TimeSpan.FromHours(1) });
        await broker.Control(nameof(OrderExpiresAfterAnHour), HttpMethod.Post, "clock", new { advance = "2h" });
        var dead = (await broker.Control(nameof(OrderExpiresAfterAnHour), HttpMethod.Get, "messages/test-orders/$DeadLetterQueue"))[0];
        Assert.Equal("TTLExpiredException", dead.GetProperty("deadLetterReason").GetString());
    }

    [Fact]
    public async Task FullQueueIsAnError()
    {
        await using var client = Connect();
        var sender = client.CreateSender("test-orders");
        await broker.Control(nameof(FullQueueIsAnError), HttpMethod.Post, "faults", new { entity = "test-orders", operation = "send", error = "full", times = 1 });
        var e = await Assert.ThrowsAsync<ServiceBusException>(() => sender.SendMessageAsync(new("one coffee")));
        Assert.Equal(ServiceBusFailureReason.QuotaExceeded, e.Reason);
        await sender.SendMessageAsync(new("one coffee"));
    }

    [Fact]
    public async Task MisspeltQueueIsAnError()
    {
        await using var client = Connect();
        var e = await Assert.ThrowsAsync<ServiceBusException>(() => client.CreateSender("test-order").SendMessageAsync(new("one coffee")));
        Assert.Equal(ServiceBusFailureReason.MessagingEntityNotFound, e.Reason);
    }
}
