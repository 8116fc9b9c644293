// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// An Address is where Redis is and who we are to it. It holds secrets: nothing but Hosts may be
// shown.
type Address struct {
	Hosts   []string // host:port each
	TLS     bool
	Cluster bool
	Master  string // the name that Sentinel knows it by; "" = there is no Sentinel

	Username, Password                 string
	SentinelUsername, SentinelPassword string
	Database                           int
}

// maxHosts bounds the addresses to begin with.
const maxHosts = 64

// ParseAddress reads one of
//
//	redis://[user[:password]@]host[:port][/database]
//	redis+cluster://[user[:password]@]host[:port],…
//	redis+sentinel://[user[:password]@]host[:port],…/master[/database][?sentinel_user=…&sentinel_password=…]
//
// or the same with rediss, for TLS. What is special in a user, a password or a master is
// percent-encoded. Its errors never show a value.
func ParseAddress(text string) (Address, error) {
	scheme, rest, ok := strings.Cut(strings.TrimSpace(text), "://")
	if !ok {
		return Address{}, errForm
	}
	var a Address
	scheme, kind, _ := strings.Cut(strings.ToLower(scheme), "+")
	switch scheme {
	case "redis":
	case "rediss":
		a.TLS = true
	default:
		return Address{}, errForm
	}
	rest, query, _ := strings.Cut(rest, "?")
	rest, path, _ := strings.Cut(rest, "/")
	hosts := rest
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		hosts = rest[i+1:]
		user, password, _ := strings.Cut(rest[:i], ":")
		var err, err2 error
		a.Username, err = url.PathUnescape(user)
		a.Password, err2 = url.PathUnescape(password)
		if err != nil || err2 != nil {
			return Address{}, errors.New("user or password holds a % that begins no percent-encoded character; write %25 for it")
		}
	}
	port := "6379"
	switch kind {
	case "":
		if strings.Contains(hosts, ",") {
			return Address{}, errors.New("there are several hosts; write redis+cluster:// or redis+sentinel:// before them")
		}
	case "cluster":
		a.Cluster = true
		if path != "" {
			return Address{}, errors.New("a cluster has no databases; end the address after the hosts")
		}
	case "sentinel":
		port = "26379"
		master, database, _ := strings.Cut(path, "/")
		var err error
		if a.Master, err = url.PathUnescape(master); err != nil || a.Master == "" {
			return Address{}, errors.New("with redis+sentinel the name of the master follows the hosts, as in redis+sentinel://host:26379/mymaster")
		}
		path = database
	default:
		return Address{}, errForm
	}
	if path != "" {
		n, err := strconv.Atoi(path)
		if err != nil || n < 0 || n > 1<<16 {
			return Address{}, errors.New("the part after the hosts is not the number of a database")
		}
		a.Database = n
	}
	if err := a.readQuery(query); err != nil {
		return Address{}, err
	}
	return a, a.readHosts(hosts, port)
}

var errForm = errors.New("the value is not the address of a Redis; write one like redis://localhost:6379, rediss://user:password@host:6380, redis+cluster://host:6379,host2:6379 or redis+sentinel://host:26379,host2:26379/mymaster")

func (a *Address) readQuery(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("the query of the address, after the ?, cannot be read")
	}
	for name := range values {
		switch {
		case name == "sentinel_user" && a.Master != "":
			a.SentinelUsername = values.Get(name)
		case name == "sentinel_password" && a.Master != "":
			a.SentinelPassword = values.Get(name)
		default:
			return errors.New("the query of the address may have only sentinel_user and sentinel_password, and only with redis+sentinel")
		}
	}
	return nil
}

func (a *Address) readHosts(hosts, port string) error {
	all := strings.Split(hosts, ",")
	if len(all) > maxHosts {
		return fmt.Errorf("the address names %d hosts; a few are enough to begin with, %d are allowed", len(all), maxHosts)
	}
	for i, h := range all {
		if !strings.Contains(h, ":") || strings.HasSuffix(h, "]") {
			h = net.JoinHostPort(strings.Trim(h, "[]"), port)
		}
		host, p, err := net.SplitHostPort(h)
		n, numErr := strconv.ParseUint(p, 10, 16)
		if err != nil || numErr != nil || n == 0 || host == "" || strings.ContainsAny(host, " @/\\") {
			return fmt.Errorf("host %d of the address is not of the form host:port", i+1)
		}
		a.Hosts = append(a.Hosts, h)
	}
	return nil
}
