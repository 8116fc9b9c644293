// SPDX-License-Identifier: Apache-2.0

package adminapi

// The bounds of the service that hold for other ways to set an entity up, too.
const (
	MinLockDuration = minLockDuration
	MaxLockDuration = maxLockDuration
	MinTimeToLive   = minTimeToLive
	MinWindow       = minWindow
	MaxWindow       = maxWindow
)
