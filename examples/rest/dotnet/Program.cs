// SPDX-License-Identifier: Apache-2.0
// Sends an order over REST. It needs no SDK.

using var client = new HttpClient();
using var request = new HttpRequestMessage(HttpMethod.Post, args[0] + "/rest-orders/messages") { Content = new StringContent("one tea") };
request.Headers.Add("BrokerProperties", """{"MessageId": "order-2", "TimeToLive": 3600}""");
request.Headers.Add("overdue-within", "\"2s\""); // a custom property: a string in quotation marks

using var answer = await client.SendAsync(request);
Console.WriteLine($"order-2: {(int)answer.StatusCode}");
