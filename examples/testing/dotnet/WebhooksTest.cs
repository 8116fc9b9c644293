// SPDX-License-Identifier: Apache-2.0

using System.Security.Cryptography;
using System.Text;
using Xunit;

public class WebhooksTest
{
    [Fact]
    public void OnlyTheSignedBodyPasses()
    {
        var key = RandomNumberGenerator.GetBytes(32);
        var now = DateTimeOffset.UtcNow.ToUnixTimeSeconds().ToString();
        var old = (DateTimeOffset.UtcNow.ToUnixTimeSeconds() - 600).ToString();
        string Sign(string time) => "v1," + Convert.ToBase64String(HMACSHA256.HashData(key, Encoding.UTF8.GetBytes($"event-1.{time}.late")));
        bool Verify(string? time, string? signatures, string body) =>
            Webhooks.Verify("whsec_" + Convert.ToBase64String(key), "event-1", time, signatures, Encoding.UTF8.GetBytes(body));

        Assert.True(Verify(now, Sign(now), "late"));
        Assert.True(Verify(now, "v1,AAAA " + Sign(now), "late"));
        Assert.False(Verify(now, Sign(now), "LATE"));
        Assert.False(Verify(old, Sign(old), "late"));
        Assert.False(Verify(null, Sign(now), "late"));
        Assert.False(Verify(now, null, "late"));
    }
}
