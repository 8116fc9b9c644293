// SPDX-License-Identifier: Apache-2.0
// An NServiceBus endpoint whose commands have a deadline. Only the connection string is another than without Overdue.

using NServiceBus;

var connection = args[0]; // Endpoint=sb://127.0.0.1:5672;SharedAccessKeyName=any;SharedAccessKey=any;UseDevelopmentEmulator=true

var configuration = new EndpointConfiguration("sender");
configuration.SendOnly();
configuration.UseSerialization<SystemTextJsonSerializer>();
var transport = new AzureServiceBusTransport(connection, TopicTopology.Default);
configuration.UseTransport(transport).RouteToEndpoint(typeof(PlaceOrder), "nservicebus-orders");

var endpoint = await Endpoint.Start(configuration);
await endpoint.Send(new PlaceOrder("one coffee"));
Console.WriteLine("sent one order, which nobody receives");
await endpoint.Stop();

// NServiceBus makes a time to live of it, and Overdue keeps that as the deadline.
[TimeToBeReceived("00:00:02")]
public record PlaceOrder(string What) : ICommand;
