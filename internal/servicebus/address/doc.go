// SPDX-License-Identifier: Apache-2.0

// Package address is the one grammar of the names that clients and operators give to the parts of a
// namespace. These are addresses of AMQP links, paths of URLs, audiences of tokens, and names in
// configuration. All code that decides about such a name, or acts on it, reads it here, so that no
// two readings can differ.
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
// Everything else is refused with ErrNotPlain. This covers empty segments, segments of dots,
// percent signs, backslashes, characters that no name has, and names that are too long. It also
// covers segments that begin with a dollar sign and are none of the above. The characters of names
// are those of
// https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
// (Microsoft.ServiceBus) and the tilde. Whether the service takes the tilde was not found out, and
// refusing a name that exists would cut off its apps.
package address
