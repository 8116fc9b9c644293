// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"overdue/internal/config"
	"overdue/internal/servicebus/entities"
)

// maxNotices bounds the lines that are remembered: the names in them come from outside.
const maxNotices = 1000

// notices remembers which lines about an entity have been written, so that each is written once.
type notices struct {
	mu    sync.Mutex
	lines map[string]bool // by lower-case name and what the line is about
}

// once reports whether this line about the entity is new; last, that there is no room to
// remember another.
func (n *notices) once(name, what string) (first, last bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := what + " " + strings.ToLower(name)
	if n.lines[key] || len(n.lines) >= maxNotices {
		return false, false
	}
	if n.lines == nil {
		n.lines = map[string]bool{}
	}
	n.lines[key] = true
	return true, len(n.lines) == maxNotices
}

// forget has every line written once more, for another configuration.
func (n *notices) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = nil
}

// onRead is called with what is known of an entity after each read, see entities.Config.
func (k *Catalog) onRead(name string, info entities.Info, err error) {
	w := k.current.Load()
	if w.excluded(name) {
		return // its companions are older than the list
	}
	if f := k.described.Load(); f != nil && err == nil {
		(*f)(name, &info)
	}
	e, i := w.Entity(name)
	switch {
	case err == nil:
		if e != nil {
			k.subscriptions.Store(strings.ToLower(name), subscriptions(&info))
			k.compare(w, e, i, info)
		}
		k.limits(name, info)
	case errors.Is(err, entities.ErrNotFound):
		if e != nil {
			k.warn(name, "missing", "monitored entity does not exist", zap.String("next", "create it in the namespace, or take it out of monitor.entities"))
		}
	case errors.Is(err, entities.ErrNoRight):
		k.lacks(w, name, i, err, "give the key or the identity the Manage right, or ")
	default:
		k.lacks(w, name, i, err, "let this process reach the administration API over HTTPS (see namespaceAdmin), or ")
	}
}

// limits logs what cannot be watched where messages are sent to, and where they are watched
// instead.
func (k *Catalog) limits(name string, info entities.Info) {
	if info.ForwardTo != "" {
		k.note(zap.InfoLevel, name, "forwards", "what is sent here moves on; its deadlines are watched where it ends", zap.String("forwards_to", info.ForwardTo))
	}
	if info.Partitioned {
		k.note(zap.InfoLevel, name, "partitioned", "a partitioned entity is read from its beginning to find a message: checks cost more, the more messages it holds")
	}
}

// lacks logs that an entity's settings cannot be had, and what to write where that is not written
// already.
func (k *Catalog) lacks(w *View, name string, i int, err error, cure string) {
	e, _ := w.Entity(name)
	missing := w.missing(e, i)
	if len(missing) == 0 {
		k.log.Debug("settings of the configuration are used", zap.String("work_queue", name), zap.Error(err))
		return
	}
	kind := "queue"
	if e != nil && e.Topic != "" {
		kind = "topic"
	}
	line := fmt.Sprintf("say in monitor.entities how it was made: {%s: %s, %s: …}", kind, name, strings.Join(missing, ": …, "))
	if len(w.listed) == 0 {
		line += ", with all others that are to be monitored"
	}
	k.warn(name, "unknown", "settings of an entity are not known; deadlines that only they give are missed unseen",
		zap.Error(err), zap.String("next", cure+line))
}

// missing are the keys that nobody has given of those that say how an entity was made.
func (w *View) missing(e *config.Entity, i int) (keys []string) {
	all := []string{"defaultMessageTimeToLive", "requiresSession", "deadLetteringOnMessageExpiration"}
	if e != nil && e.Topic != "" {
		all = []string{"defaultMessageTimeToLive", "subscriptions"}
	}
	for _, key := range all {
		if e == nil || !w.gives(e, i, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// gives reports whether the configuration has the key of the i-th entity.
func (w *View) gives(e *config.Entity, i int, key string) bool {
	if key == "subscriptions" {
		return len(e.Subscriptions) > 0
	}
	return w.cfg.Given(fmt.Sprintf("monitor.entities[%d].%s", i, key))
}

// compare logs what the namespace says of an entity other than the configuration does. The
// namespace knows better.
func (k *Catalog) compare(w *View, e *config.Entity, i int, info entities.Info) {
	if wrong := w.Contradictions(e, i, info); len(wrong) > 0 {
		k.warn(e.Name(), "contradiction", "the namespace contradicts monitor.entities, and its settings apply", zap.Strings("in_the_namespace", wrong),
			zap.String("next", "correct monitor.entities, or leave out what the namespace says"))
	}
}

// Contradictions is what the namespace says of an entity that the configuration says otherwise.
func (w *View) Contradictions(e *config.Entity, i int, info entities.Info) (wrong []string) {
	is := w.assumed[i]
	note := func(key string, differ bool, theirs any) {
		if differ {
			wrong = append(wrong, fmt.Sprintf("%s is %v", key, theirs))
		}
	}
	note("kind", is.Kind != info.Kind, info.Kind)
	note("defaultMessageTimeToLive", w.gives(e, i, "defaultMessageTimeToLive") && is.DefaultMessageTimeToLive != info.DefaultMessageTimeToLive, info.DefaultMessageTimeToLive)
	if info.Kind == entities.Queue {
		note("requiresSession", w.gives(e, i, "requiresSession") && is.RequiresSession != info.RequiresSession, info.RequiresSession)
		note("deadLetteringOnMessageExpiration", w.gives(e, i, "deadLetteringOnMessageExpiration") &&
			is.DeadLetteringOnMessageExpiration != info.DeadLetteringOnMessageExpiration, info.DeadLetteringOnMessageExpiration)
	}
	for _, s := range is.Subscriptions {
		at := func(key string) string { return "subscription " + s.Name + ": " + key }
		i := slices.IndexFunc(info.Subscriptions, func(theirs entities.Subscription) bool { return strings.EqualFold(theirs.Name, s.Name) })
		if note(at("it"), i < 0, "missing"); i >= 0 {
			theirs := &info.Subscriptions[i]
			note(at("defaultMessageTimeToLive"), s.DefaultMessageTimeToLive != theirs.DefaultMessageTimeToLive, theirs.DefaultMessageTimeToLive)
			note(at("requiresSession"), s.RequiresSession != theirs.RequiresSession, theirs.RequiresSession)
			note(at("deadLetteringOnMessageExpiration"), s.DeadLetteringOnMessageExpiration != theirs.DeadLetteringOnMessageExpiration, theirs.DeadLetteringOnMessageExpiration)
		}
	}
	return wrong
}

func (k *Catalog) warn(name, what, line string, fields ...zap.Field) {
	k.note(zap.WarnLevel, name, what, line, fields...)
}

// note writes a line about an entity, once.
func (k *Catalog) note(level zapcore.Level, name, what, line string, fields ...zap.Field) {
	first, last := k.noticed.once(name, what)
	if !first {
		return
	}
	k.log.Log(level, line, append([]zap.Field{zap.String("work_queue", name)}, fields...)...)
	if last {
		k.log.Warn("further lines about entities are left out", zap.Int("lines", maxNotices))
	}
}
