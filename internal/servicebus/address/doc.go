// SPDX-License-Identifier: Apache-2.0

// Package address is the one grammar of the names that clients and operators give to what is in a
// namespace: addresses of AMQP links, paths of URLs, audiences of tokens, names in configuration.
// Whatever decides about such a name, or acts on it, reads it here, so that no two of them can read
// it differently.
//
//	address      = [ scheme "://" host ] [ "/" ] path [ "/" ]
//	path         = "" | "$cbs" | entity [ sub-queue ] [ "/$management" ]
//	entity       = name [ "/Subscriptions/" subscription ]
//	sub-queue    = [ "/$Transfer" ] "/$DeadLetterQueue"
//	name         = segment *( "/" segment )
//
// Scheme, host, one slash at either end, and case make no difference. The SDKs of Go and JavaScript
// send the bare path, .NET puts a slash in front, Python sends a whole URI. URLs are often written
// with a slash at their end.
//
// Everything else is refused with ErrNotPlain: empty segments, segments of dots, percent signs,
// backslashes, characters that no name has, segments that begin with a dollar sign and are none of
// the above, names that are too long. The characters of names are those of
// https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
// (Microsoft.ServiceBus) and the tilde: whether the service takes it was not found out, and
// refusing a name that exists would cut off its apps.
package address
