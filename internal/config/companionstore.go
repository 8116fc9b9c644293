// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
)

// The values of companionStore.
const (
	StoreQueue = "monitorQueue"
	StoreRedis = "redis"
)

// CompanionsInRedis reports whether Redis keeps the companions.
func (c *Config) CompanionsInRedis() bool { return c.CompanionStore == StoreRedis }

// checkStore refuses to keep companions nowhere.
func (c *Config) checkStore() error {
	if c.CompanionsInRedis() && c.Redis == "" {
		return fmt.Errorf("%s is redis, and there is no Redis to keep companions in; give its address with redis or redisFile", c.At("companionStore"))
	}
	if c.CompanionsInRedis() && c.MonitorQueues > 1 {
		return fmt.Errorf("%s is %d, but with companionStore: redis no companion is on a monitor queue; remove it", c.At("monitorQueues"), c.MonitorQueues)
	}
	return nil
}
