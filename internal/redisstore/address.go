// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"errors"
	"net"
	"net/url"
	"reflect"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
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

// IsServerOf reports whether b is the same but for user and password.
func (a Address) IsServerOf(b Address) bool {
	b.Username, b.Password = a.Username, a.Password
	return reflect.DeepEqual(a, b)
}

// The errors of ParseAddress show no part of the address: it may hold a password.
var (
	errForm = errors.New("the value is not the address of a Redis; write one like redis://localhost:6379, rediss://user:password@host:6380, " +
		"redis+cluster://host:6379,host2:6379 or redis+sentinel://host:26379,host2:26379/mymaster, and percent-encode special characters in user and password")
	errSeveral  = errors.New("there are several hosts; write redis+cluster:// or redis+sentinel:// before them")
	errDatabase = errors.New("a cluster has no databases; end the address after the hosts")
	errMaster   = errors.New("with redis+sentinel the name of the master follows the hosts, as in redis+sentinel://host:26379/mymaster")
	errQuery    = errors.New("the query of the address may have only sentinel_user and sentinel_password, and only with redis+sentinel")
)

// ParseAddress reads one of
//
//	redis://[user[:password]@]host[:port][/database]
//	redis+cluster://[user[:password]@]host[:port],…
//	redis+sentinel://[user[:password]@]host[:port],…/master[/database][?sentinel_user=…&sentinel_password=…]
//
// or the same with rediss, for TLS. go-redis reads each host with what is common to all.
func ParseAddress(text string) (Address, error) {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(text), "://")
	scheme, kind, _ := strings.Cut(strings.ToLower(scheme), "+")
	rest, query, _ := strings.Cut(rest, "?")
	rest, database, _ := strings.Cut(rest, "/")
	hostsAt := strings.LastIndexByte(rest, '@') + 1
	user, hosts := rest[:hostsAt], strings.Split(rest[hostsAt:], ",")
	a := Address{Cluster: kind == "cluster"}
	port := "6379"
	var err error
	switch {
	case scheme != "redis" && scheme != "rediss":
		return Address{}, errForm
	case kind == "" && len(hosts) > 1:
		return Address{}, errSeveral
	case a.Cluster && database != "":
		return Address{}, errDatabase
	case kind == "sentinel":
		port = "26379"
		var master string
		master, database, _ = strings.Cut(database, "/")
		if a.Master, err = url.PathUnescape(master); err != nil || a.Master == "" {
			return Address{}, errMaster
		}
	case kind != "" && !a.Cluster:
		return Address{}, errForm
	}
	for _, host := range hosts {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host += ":" + port
		}
		o, err := redis.ParseURL(scheme + "://" + user + host + "/" + database)
		if err != nil || o.DB < 0 || !isHostPort(host) {
			return Address{}, errForm
		}
		a.Hosts = append(a.Hosts, o.Addr)
		a.TLS, a.Username, a.Password, a.Database = o.TLSConfig != nil, o.Username, o.Password, o.DB
	}
	return a, a.readQuery(query)
}

// isHostPort reports whether text names a host and a port that can be dialled. redis.ParseURL takes
// an empty host for localhost, and any number for a port.
func isHostPort(text string) bool {
	host, port, err := net.SplitHostPort(text)
	number, portErr := strconv.ParseUint(port, 10, 16)
	return err == nil && portErr == nil && host != "" && number > 0
}

func (a *Address) readQuery(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errQuery
	}
	a.SentinelUsername, a.SentinelPassword = values.Get("sentinel_user"), values.Get("sentinel_password")
	values.Del("sentinel_user")
	values.Del("sentinel_password")
	if len(values) > 0 || query != "" && a.Master == "" {
		return errQuery
	}
	return nil
}
