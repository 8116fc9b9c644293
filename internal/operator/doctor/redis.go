// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

const (
	// oldestRedis is the oldest major version whose commands are what we send.
	oldestRedis = 6
	// redisAnswer is what the telling of a missed deadline waits for, at most.
	redisAnswer = 25 * time.Millisecond
)

// Redis is what the processes of a fleet share, and how it is reached.
type Redis struct {
	Hosts    []string // host:port each
	TLS      bool
	Password bool   // whether one is shown
	User     string // "" = that which is there by default
	Setting  string // that says where it is
	Keeps    bool   // it keeps the companions
	// Keep asks whether it does so for good, where it Keeps.
	Keep func(context.Context) error
	// Ask asks it. An error means that it does not answer, or lets nobody in.
	Ask func(context.Context) (RedisState, error)
}

// RedisState is what a Redis has told of itself, and which commands it took.
type RedisState struct {
	RoundTrip time.Duration
	Servers   []RedisServer // none where it is not told
	Denied    []string      // commands of ours that the user may not send
	KeyDenied bool          // our keys are not the user's
	Refusal   string        // why it refused something else; "" = it did not
}

// RedisServer is one of its servers.
type RedisServer struct {
	Version           string
	Replica           bool
	UsedBytes, Memory int64 // Memory is the bound; 0 = none
	Eviction          string
}

// redis looks at what is shared. Deadlines do not depend on it, so nothing there is worse than a warning.
func (x *examiner) redis(ctx context.Context) []Finding {
	r := x.cfg.Redis
	if r == nil {
		return nil
	}
	n := &notes{subject: "redis"}
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	state, err := r.Ask(asking)
	if err != nil {
		fix := fmt.Sprintf("check %s, and that firewalls let this machine reach it; without it deadlines are kept all the same, with more looks for nothing", r.Setting)
		if strings.Contains(err.Error(), "WRONGPASS") || strings.Contains(err.Error(), "AUTH") {
			fix = fmt.Sprintf("check user and password in %s, percent-encoded where they have special characters (docs/operate/redis.md)", r.Setting)
		}
		severity := Warning
		if r.Keeps {
			severity, fix = Error, fmt.Sprintf("check %s, and that firewalls let this machine reach it: it keeps the companions", r.Setting)
		}
		n.add(severity, "reachable", sentence(err.Error()), fix)
		return n.all
	}
	n.add(OK, "reachable", fmt.Sprintf("It answers (%s).", state.RoundTrip.Round(100*time.Microsecond)), "")
	r.judgeWay(n)
	r.judge(n, &state)
	if r.Keep != nil {
		if err := r.Keep(asking); err != nil {
			n.add(Error, "companions", sentence(err.Error()), "docs/operate/redis.md says what a Redis has to be like that keeps companions, and which rights it takes")
		} else {
			n.add(OK, "companions", "It keeps companions beyond its own end.", "")
		}
	}
	return n.all
}

// judgeWay says who can read or take part on the way to it.
func (r *Redis) judgeWay(n *notes) {
	if onThisMachine(r.Hosts) {
		return
	}
	if !r.TLS {
		n.add(Warning, "tls", "It is reached over the network without TLS: message-ids, and the password if there is one, can be read on the way.",
			fmt.Sprintf("write rediss:// in the place of redis:// in %s, with the port that speaks TLS; redisAuthorityFile names an authority of your own", r.Setting))
	}
	if !r.Password {
		n.add(Warning, "password", "It asks nobody for a password: who reaches it can have companions cancelled, and so keep deadlines from being noticed.",
			"give Overdue a user of its own: the line ACL SETUSER in docs/operate/redis.md")
	}
}

// onThisMachine reports whether all hosts are on loopback.
func onThisMachine(hosts []string) bool {
	for _, h := range hosts {
		host, _, err := net.SplitHostPort(h)
		if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return true
}

// judge says what is wrong with it itself. That it keeps nothing over a restart, or evicts, is not: what it forgets costs looks.
func (r *Redis) judge(n *notes, s *RedisState) {
	before := len(n.all)
	versions := ""
	for i := range s.Servers {
		versions = s.Servers[i].Version
		r.judgeServer(n, &s.Servers[i])
	}
	user := r.User
	if user == "" {
		user = "default"
	}
	if len(s.Denied) > 0 {
		n.add(Warning, "rights", fmt.Sprintf("The user %s may not send %s: what they are for is not shared.", user, strings.Join(s.Denied, ", ")),
			fmt.Sprintf("ACL SETUSER %s +%s", user, strings.Join(s.Denied, " +")))
	}
	if s.KeyDenied {
		n.add(Warning, "rights", fmt.Sprintf("The user %s may not touch keys that begin with overdue:, so nothing is shared.", user), fmt.Sprintf("ACL SETUSER %s ~overdue:*", user))
	}
	r.judgeRefusal(n, s.Refusal)
	if s.RoundTrip > redisAnswer {
		n.add(Warning, "round-trip", fmt.Sprintf("An answer takes %s. Monitors wait %s for one before they tell of a missed deadline, and then tell alone: some are told twice.",
			s.RoundTrip.Round(time.Millisecond), redisAnswer), "use a Redis that is nearer to the monitors, in the same region")
	}
	if len(n.all) > before {
		return
	}
	text := "It takes every command that Overdue sends."
	if versions != "" {
		text = fmt.Sprintf("It is version %s, and takes every command that Overdue sends.", versions)
	}
	if !r.Keeps {
		text += " It need not persist anything, and may evict."
	}
	n.add(OK, "rights", text, "")
}

func (r *Redis) judgeServer(n *notes, s *RedisServer) {
	text, _, _ := strings.Cut(s.Version, ".")
	if major, err := strconv.Atoi(text); err == nil && major < oldestRedis {
		n.add(Warning, "version", fmt.Sprintf("It is Redis %s; Overdue is made for %d.0 and later.", s.Version, oldestRedis), fmt.Sprintf("use a Redis of version %d.0 or later", oldestRedis))
	}
	if s.Replica {
		n.add(Warning, "role", "It is a replica, which takes no writes: nothing is shared.",
			fmt.Sprintf("name its master in %s, or better the Sentinels that know it: redis+sentinel://host:26379,host2:26379/mymaster", r.Setting))
	}
	cure := "CONFIG SET maxmemory-policy allkeys-lru where nothing else in it has to stay, or a higher maxmemory; docs/operate/redis.md says how much Overdue keeps there"
	if r.Keeps {
		cure = "CONFIG SET maxmemory, higher, and leave its policy: it keeps the companions"
	}
	if s.Memory > 0 && s.Eviction == "noeviction" && s.UsedBytes > s.Memory/10*9 {
		n.add(Warning, "memory", fmt.Sprintf("It uses %d MiB of the %d MiB that it may (maxmemory), and refuses writes when they are full (maxmemory-policy noeviction).", s.UsedBytes>>20, s.Memory>>20),
			cure)
	}
}

// judgeRefusal explains why a command that is permitted was refused.
func (r *Redis) judgeRefusal(n *notes, text string) {
	code, _, _ := strings.Cut(text, " ")
	switch code {
	case "":
	case "READONLY": // a replica, of which INFO tells where it may be asked
		if len(n.all) == 0 || n.all[len(n.all)-1].Check != "role" {
			n.add(Warning, "role", "It is a replica, which takes no writes: nothing is shared.", fmt.Sprintf("name its master in %s, or its Sentinels", r.Setting))
		}
	case "OOM":
		n.add(Warning, "memory", "It is full and refuses writes: nothing is shared.", "CONFIG SET maxmemory-policy allkeys-lru where nothing else in it has to stay, or a higher maxmemory")
	case "MISCONF":
		n.add(Warning, "persistence", "It cannot save to its disk, and refuses writes until it can: nothing is shared.",
			"give it room on its disk; or CONFIG SET stop-writes-on-bgsave-error no, since Overdue needs nothing saved")
	default:
		n.add(Warning, "writes", fmt.Sprintf("It refuses writes: %s.", text), "see the log of Redis")
	}
}
