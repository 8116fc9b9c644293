// SPDX-License-Identifier: Apache-2.0

// Package redisstore is what the processes of one fleet share by way of Redis. A fleet is who works
// with one monitor queue of one namespace.
//
// Redis is never the truth. What is kept here can be lost at any instant, all or part of it, and
// costs operations then, or a page more. Companions are the exception: they stand in for the
// monitor queue where an operator wants that.
//
// Each use has a circuit of its own: once Redis has failed it, it is not asked for a while, and its
// caller goes on alone. Again but for Companions, without which nobody goes on. Every call is
// bounded in time. commands*.go have all that is ever sent to Redis.
package redisstore
