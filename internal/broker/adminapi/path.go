// SPDX-License-Identifier: Apache-2.0

package adminapi

import "overdue/internal/servicebus/address"

// parseTarget reads the path of a URL as it was sent: clients escape the slashes
// of a name, or do not. Errors: address.ErrNotPlain.
func parseTarget(escaped string) (address.Target, error) {
	path, err := address.URLPath(escaped)
	if err != nil {
		return address.Target{Path: escaped}, badRequest("The path %v.", err)
	}
	return address.TargetAt(path), nil
}
