// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/x509"
	"fmt"

	"overdue/internal/redisstore"
)

// readRedis puts what the files of Redis hold in its place, and checks it there. No error shows a value.
func (c *Config) readRedis() error {
	key := "redis"
	if c.RedisFile != "" {
		if c.Redis != "" {
			return fmt.Errorf("%s and %s are both given; keep one", c.At("redis"), c.At("redisFile"))
		}
		key = "redisFile"
		var err error
		if c.Redis, err = readSecret(c.RedisFile, "the address of a Redis"); err != nil {
			return fmt.Errorf("%s: %w", c.At(key), err)
		}
	}
	if c.Redis == "" {
		if c.RedisAuthorityFile != "" {
			return fmt.Errorf("%s is given, and no redis; give both or none", c.At("redisAuthorityFile"))
		}
		return nil
	}
	address, err := redisstore.ParseAddress(c.Redis)
	if err = orTextFault(c.Redis, err); err != nil {
		return fmt.Errorf("%s: %w", c.At(key), err)
	}
	if c.RedisAuthorityFile == "" {
		c.RedisAddress = address
		return nil
	}
	if !address.TLS {
		return fmt.Errorf("%s is given, and the address in %s is not of the form rediss://; write that for TLS", c.At("redisAuthorityFile"), key)
	}
	pem, err := ReadBounded(c.RedisAuthorityFile, maxCAFile)
	if err != nil {
		return fmt.Errorf("%s: %w", c.At("redisAuthorityFile"), err)
	}
	c.RedisRoots = x509.NewCertPool()
	if !c.RedisRoots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s: %s holds no certificate in PEM", c.At("redisAuthorityFile"), c.RedisAuthorityFile)
	}
	c.RedisAddress = address
	return nil
}

// maxCAFile bounds a redisAuthorityFile: a bundle of every public authority has some 250 KiB.
const maxCAFile = 1 << 20
