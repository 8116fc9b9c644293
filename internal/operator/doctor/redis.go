// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"overdue/internal/redisstore"
	"overdue/internal/servicebus/failure"
)

const (
	// oldestRedis is the oldest major version that has all commands that Overdue sends.
	oldestRedis = 6
	// redisAnswer is how long a notification waits for Redis.
	redisAnswer = 25 * time.Millisecond
)

// Redis is the store that the processes of a fleet share, and how they reach it.
type Redis struct {
	Hosts    []string // host:port each
	TLS      bool
	Password bool   // we have one
	User     string // "" = the default user
	Setting  string // that has the address
	Keeps    bool   // it keeps the companions
	// Keep checks that it keeps companions durably; nil unless it Keeps. See [KeepsCompanions].
	Keep func(context.Context) error
	// Ask asks for its state, and tries the commands that the program sends. An error means that it
	// does not answer, or refuses us. See [AskRedis].
	Ask func(context.Context) (*redisstore.Checkup, error)
}

// redis checks Redis. Deadlines do not depend on it unless it keeps the companions, so most
// findings are warnings.
func (x *examiner) redis(ctx context.Context) []Finding {
	r := x.cfg.Redis
	if r == nil {
		return nil
	}
	n := &notes{subject: "redis"}
	asking, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	state, err := r.Ask(asking)
	if err != nil {
		fix := fmt.Sprintf("check %s, and that firewalls let this machine reach it; without it deadlines are still met, at the cost of needless checks", r.Setting)
		if strings.Contains(err.Error(), "WRONGPASS") || strings.Contains(err.Error(), "AUTH") {
			fix = fmt.Sprintf("check user and password in %s; special characters must be percent-encoded (docs/operate/redis.md)", r.Setting)
		}
		severity := Warning
		if r.Keeps {
			severity, fix = Error, fmt.Sprintf("check %s, and that firewalls let this machine reach it, because it keeps the companions", r.Setting)
		}
		says := err.Error()
		if certificate, renew := failure.Certificate(err); certificate != "" {
			says, fix = certificate, renew
		}
		n.add(severity, "reachable", sentence(says), fix)
		return n.all
	}
	n.add(OK, "reachable", fmt.Sprintf("It answers (%s).", state.RoundTrip.Round(100*time.Microsecond)), "")
	r.judgeWay(n)
	r.judge(n, state)
	if r.Keep != nil {
		if err := r.Keep(asking); err != nil {
			n.add(Error, "companions", sentence(err.Error()), "see docs/operate/redis.md for the settings and rights that keeping companions takes")
		} else {
			n.add(OK, "companions", "It keeps companions durably.", "")
		}
	}
	return n.all
}

// judgeWay reports who could read what is sent to it, or connect to it.
func (r *Redis) judgeWay(n *notes) {
	if onThisMachine(r.Hosts) {
		return
	}
	if !r.TLS {
		n.add(Warning, "tls", "The connection crosses the network without TLS, so others can read message ids, and the password if there is one.",
			fmt.Sprintf("use rediss:// instead of redis:// in %s, with the TLS port; set redisAuthorityFile for a certificate authority of your own", r.Setting))
	}
	if !r.Password {
		n.add(Warning, "password", "It requires no password: anybody who reaches it can cancel companions, so that deadlines go unnoticed.",
			"create a user for Overdue with the line ACL SETUSER in docs/operate/redis.md")
	}
}

// onThisMachine reports whether all hosts are loopback addresses.
func onThisMachine(hosts []string) bool {
	for _, h := range hosts {
		host, _, err := net.SplitHostPort(h)
		if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return true
}

// judge reports what is wrong with Redis itself. It may lose or evict data, unless it keeps the
// companions: that only costs needless checks.
func (r *Redis) judge(n *notes, s *redisstore.Checkup) {
	before := len(n.all)
	versions := ""
	for i := range s.Servers {
		versions = s.Servers[i].Version
		r.judgeServer(n, &s.Servers[i])
	}
	user := cmp.Or(r.User, "default")
	if len(s.Denied) > 0 {
		n.add(Warning, "rights", fmt.Sprintf("The user %s may not use %s, so monitors share less.", user, strings.Join(s.Denied, ", ")),
			fmt.Sprintf("ACL SETUSER %s +%s", user, strings.Join(s.Denied, " +")))
	}
	if s.KeyDenied {
		n.add(Warning, "rights", fmt.Sprintf("The user %s may not use keys that begin with overdue:, so monitors share nothing.", user), fmt.Sprintf("ACL SETUSER %s ~overdue:*", user))
	}
	// INFO says so, if the user may ask.
	if strings.HasPrefix(s.Refusal, "READONLY") || slices.ContainsFunc(s.Servers, func(v redisstore.Server) bool { return v.Replica }) {
		n.add(Warning, "role", "It is a replica, which accepts no writes, so monitors share nothing.",
			fmt.Sprintf("set the address of its master in %s, or better those of its Sentinels: redis+sentinel://host:26379,host2:26379/mymaster", r.Setting))
	}
	r.judgeRefusal(n, s.Refusal)
	if s.RoundTrip > redisAnswer {
		n.add(Warning, "round-trip", fmt.Sprintf("A round trip takes %s. Before a notification, monitors wait %s for Redis and then go on without it, so some events have two notifications.",
			s.RoundTrip.Round(time.Millisecond), redisAnswer), "use a Redis that is closer to the monitors, in the same region")
	}
	if len(n.all) > before {
		return
	}
	text := "It accepts every command that Overdue sends."
	if versions != "" {
		text = fmt.Sprintf("It is version %s, and accepts every command that Overdue sends.", versions)
	}
	if !r.Keeps {
		text += " It does not need persistence, and may evict keys."
	}
	n.add(OK, "rights", text, "")
}

func (r *Redis) judgeServer(n *notes, s *redisstore.Server) {
	text, _, _ := strings.Cut(s.Version, ".")
	if major, err := strconv.Atoi(text); err == nil && major < oldestRedis {
		n.add(Warning, "version", fmt.Sprintf("It is Redis %s. Overdue needs %d.0 or later.", s.Version, oldestRedis), fmt.Sprintf("upgrade Redis to %d.0 or later", oldestRedis))
	}
	fix := "CONFIG SET maxmemory-policy allkeys-lru if nothing else must stay in it, or raise maxmemory; docs/operate/redis.md says how much Overdue keeps there"
	if r.Keeps {
		fix = "raise maxmemory, and leave the policy alone, because it keeps the companions"
	}
	if s.Memory > 0 && s.Eviction == "noeviction" && s.UsedBytes > s.Memory/10*9 {
		n.add(Warning, "memory", fmt.Sprintf("It uses %d of %d MiB (maxmemory), and refuses writes when that is full (maxmemory-policy noeviction).", s.UsedBytes>>20, s.Memory>>20),
			fix)
	}
}

// judgeRefusal explains why Redis refused a permitted command.
func (r *Redis) judgeRefusal(n *notes, text string) {
	code, _, _ := strings.Cut(text, " ")
	switch code {
	case "", "READONLY": // a replica, see judge
	case "OOM":
		n.add(Warning, "memory", "It is full and refuses writes, so monitors share nothing.", "CONFIG SET maxmemory-policy allkeys-lru if nothing else must stay in it, or raise maxmemory")
	case "MISCONF":
		n.add(Warning, "persistence", "It cannot save to its disk and refuses writes until it can, so monitors share nothing.",
			"free space on its disk; or CONFIG SET stop-writes-on-bgsave-error no, since Overdue does not need saves")
	default:
		n.add(Warning, "writes", fmt.Sprintf("It refuses writes: %s.", text), "see the log of Redis")
	}
}

// AskRedis is [Redis.Ask] for a Redis that open opens.
func AskRedis(open func() (*redisstore.Store, error)) func(context.Context) (*redisstore.Checkup, error) {
	return func(ctx context.Context) (*redisstore.Checkup, error) {
		s, err := open()
		if err != nil {
			return nil, err
		}
		state, err := s.Checkup(ctx)
		return state, errors.Join(err, s.Close())
	}
}

// KeepsCompanions is [Redis.Keep] for a Redis that open opens.
func KeepsCompanions(open func() (*redisstore.Store, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		s, err := open()
		if err != nil {
			return err
		}
		companions := s.Companions()
		durability, err := companions.Inspect(ctx)
		if err == nil {
			err = companions.Try(ctx)
		}
		if problem, _ := durability.Problem(); err == nil && problem != "" {
			err = errors.New(problem)
		}
		return errors.Join(err, s.Close())
	}
}
