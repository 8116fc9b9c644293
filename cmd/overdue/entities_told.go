// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"go.uber.org/zap"

	"overdue/internal/config"
	"overdue/internal/servicebus/entities"
)

// maxTold bounds the names of which it is remembered what has been told: they come from outside.
const maxTold = 1000

// told remembers which lines about an entity have been written, so that each is once.
type told struct {
	mu    sync.Mutex
	lines map[string]bool // by lower-case name and what it is about
}

// once reports whether nobody was told this of the entity yet; last, that there is no room to
// remember more.
func (t *told) once(name, what string) (first, last bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := what + " " + strings.ToLower(name)
	if t.lines[key] || len(t.lines) >= maxTold {
		return false, false
	}
	if t.lines == nil {
		t.lines = map[string]bool{}
	}
	t.lines[key] = true
	return true, len(t.lines) == maxTold
}

// forget has everything told once more, of a configuration that is another one now.
func (t *told) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = nil
}

// first is once for who has nothing to say of the last.
func (t *told) first(name, what string) bool {
	first, _ := t.once(name, what)
	return first
}

// heard is called with what is held of an entity after each read, see entities.Config.
func (k *knowledge) heard(name string, info entities.Info, err error) {
	w := k.wanted.Load()
	if w.excluded(name) {
		return // its companions are older than the list
	}
	e, i := w.entity(name)
	switch {
	case err == nil:
		if e != nil {
			k.compare(w, e, i, info)
		}
		k.limits(name, info)
	case errors.Is(err, entities.ErrNotFound):
		if e != nil {
			k.warn(name, "missing", "monitored entity does not exist", zap.String("next", "create it in the namespace, or take it out of monitor.entities"))
		}
	case errors.Is(err, entities.ErrNoRight):
		k.lacks(w, name, i, err, "give the key or the identity the right Manage, or ")
	default:
		k.lacks(w, name, i, err, "let this process reach the administration API over HTTPS (see namespaceAdmin), or ")
	}
}

// limits tells what cannot be watched where messages are sent to, and where they are watched instead.
func (k *knowledge) limits(name string, info entities.Info) {
	if info.ForwardTo != "" && k.told.first(name, "forwards") {
		k.log.Info("what is sent here moves on; its deadlines are watched where it ends", zap.String("work_queue", name), zap.String("forwards_to", info.ForwardTo))
	}
	if info.Partitioned && k.told.first(name, "partitioned") {
		k.log.Info("a partitioned entity is read from its beginning to find a message: looks cost more, the more there is in it", zap.String("work_queue", name))
	}
}

// lacks tells that an entity's settings cannot be had, and what to write where that is not written already.
func (k *knowledge) lacks(w *wishes, name string, i int, err error, cure string) {
	e, _ := w.entity(name)
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
func (w *wishes) missing(e *config.Entity, i int) (keys []string) {
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
func (w *wishes) gives(e *config.Entity, i int, key string) bool {
	if key == "subscriptions" {
		return len(e.Subscriptions) > 0
	}
	return w.cfg.Given(fmt.Sprintf("monitor.entities[%d].%s", i, key))
}

// compare tells what the configuration says of an entity and the namespace says otherwise. The namespace
// knows better.
func (k *knowledge) compare(w *wishes, e *config.Entity, i int, info entities.Info) {
	if wrong := w.contradictions(e, i, info); len(wrong) > 0 {
		k.warn(e.Name(), "contradiction", "the namespace contradicts monitor.entities, and counts", zap.Strings("in_the_namespace", wrong),
			zap.String("next", "correct monitor.entities, or leave out what the namespace tells"))
	}
}

// contradictions is what the namespace says of an entity that the configuration says otherwise.
func (w *wishes) contradictions(e *config.Entity, i int, info entities.Info) (wrong []string) {
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
		theirs, ok := subscriptionOf(info, s.Name)
		if note(at("it"), !ok, "missing"); ok {
			note(at("defaultMessageTimeToLive"), s.DefaultMessageTimeToLive != theirs.DefaultMessageTimeToLive, theirs.DefaultMessageTimeToLive)
			note(at("requiresSession"), s.RequiresSession != theirs.RequiresSession, theirs.RequiresSession)
			note(at("deadLetteringOnMessageExpiration"), s.DeadLetteringOnMessageExpiration != theirs.DeadLetteringOnMessageExpiration, theirs.DeadLetteringOnMessageExpiration)
		}
	}
	return wrong
}

func subscriptionOf(info entities.Info, name string) (entities.Subscription, bool) {
	for _, s := range info.Subscriptions {
		if strings.EqualFold(s.Name, name) {
			return s, true
		}
	}
	return entities.Subscription{}, false
}

// warn writes a line about an entity, once.
func (k *knowledge) warn(name, what, line string, fields ...zap.Field) {
	first, last := k.told.once(name, what)
	if !first {
		return
	}
	k.log.Warn(line, append([]zap.Field{zap.String("work_queue", name)}, fields...)...)
	if last {
		k.log.Warn("no more of this: too many entities", zap.Int("lines", maxTold))
	}
}
