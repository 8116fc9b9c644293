// SPDX-License-Identifier: Apache-2.0

package address

import "strconv"

// MessageName names a message of an entity: by its message-id, or by # and its sequence number if
// it has none.
func MessageName(messageID string, number int64) string {
	if messageID != "" {
		return messageID
	}
	return "#" + strconv.FormatInt(number, 10)
}

// Names reports whether name names a message: it is its message-id, or # and its sequence number.
func Names(name, messageID string, number int64) bool {
	return name == messageID || name == MessageName("", number)
}
