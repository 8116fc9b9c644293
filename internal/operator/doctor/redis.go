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

	"overdue/internal/plural"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/failure"
)

const (
	// oldestRedis is the oldest major version that has all commands that Overdue sends.
	oldestRedis = 6
	// redisAnswer is how long a notification waits for Redis.
	redisAnswer = 25 * time.Millisecond
	// maxNamed is how many processes of a fleet one finding names.
	maxNamed = 5
)

// Redis is the store that the processes of a fleet share, and how they reach it.
type Redis struct {
	Hosts    []string // host:port each
	TLS      bool
	Password bool   // we have one
	User     string // "" = the default user
	Setting  string // that has the address
	Keeps    bool   // it keeps the companions
	Open     func() (*redisstore.Store, error)
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
	s, err := r.Open()
	if err != nil {
		r.judgeFailure(n, err)
		return n.all
	}
	defer func() { _ = s.Close() }() // what was tried on it lives for seconds
	state, err := s.Checkup(asking)
	if err != nil {
		r.judgeFailure(n, err)
		return n.all
	}
	r.judge(n, state)
	if r.Keeps {
		if err := keepsCompanions(asking, s.Companions()); err != nil {
			n.add(Error, "companions", sentence(err.Error()), "see docs/operate/redis.md for the settings and rights that keeping companions takes")
		} else {
			n.add(OK, "companions", "It keeps companions durably.", "")
		}
	}
	fleet, err := s.View().Read(asking)
	if err != nil {
		n.add(Unknown, "fleet", fmt.Sprintf("It is unknown which processes report to it: %v.", err), "")
	} else {
		n.addFleet(&fleet)
	}
	return n.all
}

// judgeFailure reports that it does not answer, or refuses us.
func (r *Redis) judgeFailure(n *notes, err error) {
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
}

// keepsCompanions returns an error unless Redis keeps companions durably.
func keepsCompanions(ctx context.Context, c *redisstore.Companions) error {
	durability, err := c.Inspect(ctx)
	if err == nil {
		err = c.Try(ctx)
	}
	if problem, _ := durability.Problem(); err == nil && problem != "" {
		return errors.New(problem)
	}
	return err
}

// addFleet reports the processes that share the Redis.
func (n *notes) addFleet(f *redisstore.Fleet) {
	proxies := 0
	var wrong []string
	for i := range f.Processes {
		p := &f.Processes[i]
		switch {
		case p.Gone:
			wrong = append(wrong, fmt.Sprintf("%s (%s) has been gone since %s", p.Place(), p.Role, p.Seen.Format("2006-01-02 15:04:05Z")))
			continue
		case p.NotReady != "":
			wrong = append(wrong, fmt.Sprintf("%s (%s) is not ready: %s", p.Place(), p.Role, p.NotReady))
		}
		if p.Role != "monitor" {
			proxies++
		}
	}
	text := fmt.Sprintf("%s and %s report to it", plural.Of(proxies, "proxy", "proxies"), plural.Of(f.Monitors(), "monitor", "monitors"))
	if len(wrong) == 0 {
		n.add(OK, "fleet", text+".", "")
		return
	}
	if more := len(wrong) - maxNamed; more > 0 {
		wrong = append(wrong[:maxNamed], fmt.Sprintf("%d more are gone or not ready", more))
	}
	n.add(Warning, "fleet", fmt.Sprintf("%s; %s.", text, strings.Join(wrong, "; ")), "look at these processes; overdue history fleet lists all of them")
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
	n.add(OK, "reachable", fmt.Sprintf("It answers (%s).", s.RoundTrip.Round(100*time.Microsecond)), "")
	r.judgeWay(n)
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
