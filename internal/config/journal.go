// SPDX-License-Identifier: Apache-2.0

package config

// What onMonitorDown says.
const (
	OnMonitorDownPass   = "pass"
	OnMonitorDownRefuse = "refuse"
)
