// SPDX-License-Identifier: Apache-2.0

using System.Diagnostics;
using System.Net.Http.Json;
using System.Text.Json;
using Xunit;

// The broker at BROKER_ADDRESS, such as a container. Without that variable: a process on any free port.
public sealed class Broker : IAsyncLifetime
{
    static readonly string Config = Path.Combine(AppContext.BaseDirectory, "Config.json");
    readonly HttpClient http = new();
    string? address = Environment.GetEnvironmentVariable("BROKER_ADDRESS"); // host:port
    Process? overdue;

    public async Task InitializeAsync()
    {
        if (!string.IsNullOrEmpty(address))
        {
            using var tooLate = new CancellationTokenSource(TimeSpan.FromMinutes(1));
            while (!await Healthy(tooLate.Token)) { await Task.Delay(100, tooLate.Token); }
            return;
        }
        string[] arguments = ["broker", "--broker-listen", "127.0.0.1:0", "--broker-emulator-config", Config, "--broker-auto-create=false",
            "--broker-isolate", "--broker-expiry", "eager", "--log-level", "warn", "--stop-with-stdin"];
        overdue = Process.Start(new ProcessStartInfo("overdue", arguments) { RedirectStandardInput = true, RedirectStandardOutput = true })!;
        const string start = "Endpoint=sb://";
        while (await overdue.StandardOutput.ReadLineAsync() is { } line)
        {
            if (line.StartsWith(start)) { address = line[start.Length..].Split(';')[0]; return; }
        }
        throw new InvalidOperationException("overdue broker did not start");
    }

    async Task<bool> Healthy(CancellationToken cancel)
    {
        try { using var response = await http.GetAsync($"http://{address}/health", cancel); return response.IsSuccessStatusCode; }
        catch (HttpRequestException) { return false; } // it does not listen yet
    }

    // Each name, such as that of a test, is a namespace of its own with the queues of the configuration.
    public string ConnectionString(string name) =>
        $"Endpoint=sb://{address};SharedAccessKeyName={name};SharedAccessKey=any;UseDevelopmentEmulator=true";

    // Reads or changes the state of a namespace over HTTP.
    public async Task<JsonElement> Control(string name, HttpMethod method, string path, object? body = null)
    {
        using var request = new HttpRequestMessage(method, $"http://{address}/_overdue/{path}?namespace={name}") { Content = body is null ? null : JsonContent.Create(body) };
        using var response = await http.SendAsync(request);
        var text = await response.Content.ReadAsStringAsync();
        if (!response.IsSuccessStatusCode) { throw new HttpRequestException($"{path}: {response.StatusCode} {text}"); }
        return text == "" ? default : JsonDocument.Parse(text).RootElement;
    }

    public async Task DisposeAsync()
    {
        if (overdue is null) { return; }
        overdue.StandardInput.Close(); // it also ends when this process is killed
        await overdue.WaitForExitAsync();
    }
}
