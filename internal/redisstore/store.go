// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Config says where Redis is and whose keys are ours. Address and Fleet are needed.
type Config struct {
	Address Address
	Fleet   []string       // what names the fleet: namespace and monitor queue, in any case
	Roots   *x509.CertPool // who may vouch for Redis, with TLS; nil = those of the machine

	// Asked is called with every question: what it was for, how it ended, and whether that is news.
	// May be nil.
	Asked func(use string, err error, news bool)

	Slack       float64 // stretches the bounds of all questions, for a Redis that is far away; 0 = 1
	Connections int     // to each server at most; 0 = 8, which is enough since all uses ask in batches
}

// A Store is what one process has of Redis. It is safe for concurrent use.
type Store struct {
	cfg    Config
	access atomic.Pointer[access]
	client redis.UniversalClient
	fleet  string
	closed atomic.Bool

	circuits sync.Map // by use
}

// access is what a connection needs that is opened now.
type access struct {
	username, password string
	dial               dialer
}

// Try asks Redis whether it accepts other credentials, or other authorities.
func (s *Store) Try(ctx context.Context, a Address, roots *x509.CertPool) error {
	cfg := s.cfg
	cfg.Address, cfg.Roots, cfg.Asked = a, roots, nil
	other, err := Open(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = other.Close() }() // it was opened for the asking
	return other.Ping(ctx)
}

// Use opens connections with other credentials and authorities from now on. Those that are open stay:
// Redis asks for credentials once on each.
func (s *Store) Use(a Address, roots *x509.CertPool) {
	o := &redis.Options{DialTimeout: dialTimeout}
	if a.TLS {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	}
	s.access.Store(&access{
		username: a.Username,
		password: a.Password,
		dial:     boundedDial(redis.NewDialer(o)),
	})
}

const (
	callMost    = 30 * time.Second // bounds what no context does
	dialTimeout = 2 * time.Second  // of a connection, TLS included
)

// Open makes a Store. It does not dial yet.
func Open(cfg Config) (*Store, error) {
	if len(cfg.Address.Hosts) == 0 || len(cfg.Fleet) == 0 {
		return nil, errors.New("redisstore: an address and what names the fleet are needed")
	}
	if cfg.Slack == 0 {
		cfg.Slack = 1
	}
	if cfg.Connections == 0 {
		cfg.Connections = 8
	}
	silenceOnce.Do(func() { redis.SetLogger(silence{}) })
	h := sha256.New()
	for _, name := range cfg.Fleet {
		fmt.Fprintf(h, "%s\x00", strings.ToLower(name))
	}
	s := &Store{cfg: cfg, fleet: hex.EncodeToString(h.Sum(nil)[:6])}
	a := cfg.Address
	s.Use(a, cfg.Roots)
	options := &redis.UniversalOptions{
		Addrs:            a.Hosts,
		DB:               a.Database,
		MasterName:       a.Master,
		IsClusterMode:    a.Cluster,
		SentinelUsername: a.SentinelUsername,
		SentinelPassword: a.SentinelPassword,
		CredentialsProvider: func() (username, password string) {
			now := s.access.Load()
			return now.username, now.password
		},
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return s.access.Load().dial(ctx, network, addr)
		},

		Protocol:                 2, // which takes the fewest rights
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		MaxRetries:               -1, // the circuit knows better when to ask again

		DialTimeout:           dialTimeout,
		ContextTimeoutEnabled: true, // contexts bound what is asked
		ReadTimeout:           callMost,
		WriteTimeout:          callMost,
		PoolTimeout:           callMost,
		PoolSize:              cfg.Connections,
		MaxIdleConns:          cfg.Connections,
		ConnMaxIdleTime:       5 * time.Minute,
	}
	switch {
	case a.Cluster:
		o := options.Cluster()
		o.MaxRedirects = 3 // -1 would be none, and a slot that moves is no failure
		s.client = redis.NewClusterClient(o)
	case a.Master != "":
		s.client = redis.NewFailoverClient(options.Failover())
	default:
		s.client = redis.NewClient(options.Simple())
	}
	return s, nil
}

// silenceOnce keeps go-redis from writing to stderr by itself; what matters comes as errors.
var silenceOnce sync.Once

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// Close ends the connections and the trials.
func (s *Store) Close() error {
	s.closed.Store(true)
	return s.client.Close()
}

// Hosts names the servers that were configured.
func (s *Store) Hosts() string { return strings.Join(s.cfg.Address.Hosts, ",") }

// Ping asks whether Redis is there, circuit or not.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.bound(2*time.Second))
	defer cancel()
	if err := ping(ctx, s.client); err != nil {
		return fmt.Errorf("redis at %s does not answer: %w", s.Hosts(), err)
	}
	return nil
}

// circuit is that of a use, with the bound of its questions. Its trial has the commands of the use, on
// keys that begin with key.
func (s *Store) circuit(use string, bound time.Duration, key string, commands ...string) *circuit {
	var trial []question
	for _, t := range trials(key) {
		if slices.Contains(commands, t.command) {
			trial = append(trial, func(ctx context.Context) error { return try(ctx, s.client, t) })
		}
	}
	c, _ := s.circuits.LoadOrStore(use, &circuit{s: s, use: use, bound: s.bound(bound), trial: trial})
	return c.(*circuit)
}

func (s *Store) asked(use string, err error, news bool) {
	if s.cfg.Asked != nil {
		s.cfg.Asked(use, err, news)
	}
}

// bound is d, stretched by the slack.
func (s *Store) bound(d time.Duration) time.Duration { return time.Duration(float64(d) * s.cfg.Slack) }

// key is one of ours. Keys that a script or a transaction takes together have a tag in common, by
// which a cluster keeps them on one server.
func (s *Store) key(parts ...string) string {
	return "overdue:" + s.fleet + ":" + strings.Join(parts, ":")
}
