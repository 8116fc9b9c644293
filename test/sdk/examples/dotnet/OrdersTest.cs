// SPDX-License-Identifier: Apache-2.0

using System.Diagnostics;
using System.Net.Http.Json;
using System.Runtime.CompilerServices;
using System.Text.Json;
using Azure.Messaging.ServiceBus;
using Xunit;

// One broker for all tests of the class, on any free port.
public sealed class Broker : IAsyncLifetime
{
    Process? overdue;
    public string Address { get; private set; } = ""; // host:port
    public readonly HttpClient Http = new();

    public async Task InitializeAsync()
    {
        string[] arguments = ["broker", "--broker-listen", "127.0.0.1:0", "--isolate", "--broker-expiry", "eager", "--log-level", "warn", "--stop-with-stdin"];
        overdue = Process.Start(new ProcessStartInfo("overdue", arguments) { RedirectStandardInput = true, RedirectStandardOutput = true })!;
        const string start = "Endpoint=sb://";
        while (await overdue.StandardOutput.ReadLineAsync() is { } line)
        {
            if (line.StartsWith(start)) { Address = line[start.Length..].Split(';')[0]; return; }
        }
        throw new InvalidOperationException("overdue broker did not start");
    }

    public async Task DisposeAsync()
    {
        overdue!.StandardInput.Close(); // the broker ends with this pipe, even if the runner is killed
        await overdue.WaitForExitAsync();
    }
}

public class OrdersTest(Broker broker) : IClassFixture<Broker>
{
    // A client of a namespace for this test alone. The broker creates its queues on first use.
    ServiceBusClient Connect([CallerMemberName] string test = "") => new(
        $"Endpoint=sb://{broker.Address};SharedAccessKeyName={test};SharedAccessKey=any;UseDevelopmentEmulator=true",
        new ServiceBusClientOptions { RetryOptions = new() { MaxRetries = 0 } });

    // Reads or changes the state of the broker over HTTP.
    async Task<JsonElement> Control(HttpMethod method, string path, object? body = null, [CallerMemberName] string test = "")
    {
        using var request = new HttpRequestMessage(method, $"http://{broker.Address}/_overdue/{path}?namespace={test}") { Content = body is null ? null : JsonContent.Create(body) };
        using var response = await broker.Http.SendAsync(request);
        var text = await response.Content.ReadAsStringAsync();
        Assert.True(response.IsSuccessStatusCode, $"{path}: {response.StatusCode} {text}");
        return text == "" ? default : JsonDocument.Parse(text).RootElement;
    }

    [Fact]
    public async Task OrderIsReceived()
    {
        await using var client = Connect();
        await client.CreateSender("orders").SendMessageAsync(new("one coffee"));
        await using var receiver = client.CreateReceiver("orders");
        var message = await receiver.ReceiveMessageAsync();
        Assert.Equal("one coffee", message.Body.ToString());
        await receiver.CompleteMessageAsync(message);
        Assert.Equal(0, (await Control(HttpMethod.Get, "messages/orders")).GetArrayLength());
    }

    [Fact]
    public async Task OrderExpiresAfterAnHour()
    {
        await using var client = Connect();
        await client.CreateSender("orders").SendMessageAsync(new("one coffee") { TimeToLive = TimeSpan.FromHours(1) });
        await Control(HttpMethod.Post, "clock", new { advance = "2h" });
        var dead = (await Control(HttpMethod.Get, "messages/orders/$DeadLetterQueue"))[0];
        Assert.Equal("TTLExpiredException", dead.GetProperty("deadLetterReason").GetString());
    }

    [Fact]
    public async Task FullQueueIsAnError()
    {
        await using var client = Connect();
        var sender = client.CreateSender("orders");
        await Control(HttpMethod.Post, "faults", new { entity = "orders", operation = "send", error = "full", times = 1 });
        var e = await Assert.ThrowsAsync<ServiceBusException>(() => sender.SendMessageAsync(new("one coffee")));
        Assert.Equal(ServiceBusFailureReason.QuotaExceeded, e.Reason);
        await sender.SendMessageAsync(new("one coffee"));
    }
}
