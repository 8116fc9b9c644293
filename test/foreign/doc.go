// SPDX-License-Identifier: Apache-2.0

// Package foreign puts internal/amqp/relay before brokers that are not Service Bus and share no
// code with ours. They are RabbitMQ with its AMQP 1.0 plugin, and a small broker on proton-c
// (broker.py). Plain AMQP 1.0 clients, go-amqp and proton (client.py), do the same things directly
// and through the relay, with a tap on every connection. Both ways have to agree, and the relay may
// not change a byte of a delivery.
//
// `make sdks` installs the brokers.
package foreign
