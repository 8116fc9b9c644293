// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"overdue/internal/broker/queue"
)

// Status says what an entity does.
type Status int

// The states of an entity.
const (
	Active          Status = iota
	Disabled               // neither sends nor receives
	SendDisabled           // receives only
	ReceiveDisabled        // sends only
)

// statuses are the names of states, as the service has them.
var statuses = [...]string{
	Active:          "Active",
	Disabled:        "Disabled",
	SendDisabled:    "SendDisabled",
	ReceiveDisabled: "ReceiveDisabled",
}

func (s Status) String() string { return statuses[s] }

// MarshalText implements encoding.TextMarshaler.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Status) UnmarshalText(text []byte) error {
	i := slices.Index(statuses[:], string(text))
	if i < 0 {
		return fmt.Errorf("%w: it is none of %s", ErrInvalidConfig, strings.Join(statuses[:], ", "))
	}
	*s = Status(i)
	return nil
}

func (s Status) sends() bool    { return s == Active || s == ReceiveDisabled }
func (s Status) receives() bool { return s == Active || s == SendDisabled }

// An AuthorizationRule is a key pair and what it is good for.
type AuthorizationRule struct {
	KeyName      string    `json:"keyName"`
	PrimaryKey   string    `json:"primaryKey,omitempty"`
	SecondaryKey string    `json:"secondaryKey,omitempty"`
	Send         bool      `json:"send,omitempty"`
	Listen       bool      `json:"listen,omitempty"`
	Manage       bool      `json:"manage,omitempty"`
	CreatedAt    time.Time `json:"createdAt,omitzero"`
	ModifiedAt   time.Time `json:"modifiedAt,omitzero"`
}

// QueueConfig says how one queue behaves. The names are those of the service. The disk keeps it as
// JSON, see description: a name there stays, and the zero value means the default.
type QueueConfig struct {
	// Name is the path of the queue: letters, digits, '.', '-', '_' and '/', at
	// most 260 bytes. Names that differ only in case are one name.
	Name string `json:"name"`
	// LockDuration is how long a delivery, or a session, stays locked. 0 means one
	// minute.
	LockDuration time.Duration `json:"lockDuration,omitempty"`
	// MaxDeliveryCount is after how many failed deliveries a message is
	// dead-lettered. 0 means 10.
	MaxDeliveryCount int `json:"maxDeliveryCount,omitempty"`
	// DefaultMessageTimeToLive caps the time to live of every message. 0 means
	// no cap.
	DefaultMessageTimeToLive time.Duration `json:"defaultMessageTimeToLive,omitempty"`
	// DeadLetteringOnMessageExpiration moves expired messages to the dead-letter
	// queue. Otherwise they are dropped.
	DeadLetteringOnMessageExpiration bool `json:"deadLetteringOnMessageExpiration,omitempty"`
	// RequiresSession demands a session id of every message, and of receivers
	// that they take one session after the other. It cannot be changed.
	RequiresSession bool `json:"requiresSession,omitempty"`
	// RequiresDuplicateDetection drops a message whose message-id was seen within
	// the window. It cannot be changed.
	RequiresDuplicateDetection bool `json:"requiresDuplicateDetection,omitempty"`
	// DuplicateDetectionHistoryTimeWindow is for how long. 0 means ten minutes.
	DuplicateDetectionHistoryTimeWindow time.Duration `json:"duplicateDetectionHistoryTimeWindow,omitempty"`
	// EnablePartitioning gives the queue the sequence numbers of a partitioned
	// one, and bounds what one batch may hold. It cannot be changed.
	EnablePartitioning bool `json:"enablePartitioning,omitempty"`
	// MaxSize bounds the bytes held, the dead-letter queue included. 0 means no
	// bound.
	MaxSize int64 `json:"maxSize,omitempty"`
	// MaxMessageSize bounds a message in bytes. 0 means the namespace's.
	MaxMessageSize uint64 `json:"maxMessageSize,omitempty"`
	// ForwardTo is the path, or the URL, of the queue or topic that every message
	// is passed on to. Empty: none. A queue with sessions cannot forward.
	ForwardTo string `json:"forwardTo,omitempty"`
	// ForwardDeadLetteredMessagesTo is the same for dead letters.
	ForwardDeadLetteredMessagesTo string `json:"forwardDeadLetteredMessagesTo,omitempty"`
	// AutoDeleteOnIdle deletes the queue when it has not been used for this long.
	// 0 means never, and so does ForwardTo.
	AutoDeleteOnIdle time.Duration `json:"autoDeleteOnIdle,omitempty"`
	Status           Status        `json:"status,omitempty"`
	// The rest is kept for clients of the administration API.
	AuthorizationRules       []AuthorizationRule `json:"authorizationRules,omitempty"`
	UserMetadata             string              `json:"userMetadata,omitempty"`
	DisableBatchedOperations bool                `json:"disableBatchedOperations,omitempty"`
	EnableExpress            bool                `json:"enableExpress,omitempty"`
	Kept
}

// Kept is what a description states and no field holds. The maps are read-only.
type Kept struct {
	// Stated has the text of elements, by their names: of those that are not among the fields, and of
	// spans that a Duration cannot hold.
	Stated map[string]string `json:"stated,omitempty"`
	// Unapplied has the XML of elements that the service does not apply, by the name of the element
	// that they stand behind.
	Unapplied map[string]string `json:"unapplied,omitempty"`
}

// TopicConfig says how one topic behaves. Fields as in QueueConfig.
type TopicConfig struct {
	Name                                string              `json:"name"`
	DefaultMessageTimeToLive            time.Duration       `json:"defaultMessageTimeToLive,omitempty"`
	RequiresDuplicateDetection          bool                `json:"requiresDuplicateDetection,omitempty"`
	DuplicateDetectionHistoryTimeWindow time.Duration       `json:"duplicateDetectionHistoryTimeWindow,omitempty"`
	EnablePartitioning                  bool                `json:"enablePartitioning,omitempty"`
	MaxSize                             int64               `json:"maxSize,omitempty"` // of the topic and all its subscriptions
	MaxMessageSize                      uint64              `json:"maxMessageSize,omitempty"`
	AutoDeleteOnIdle                    time.Duration       `json:"autoDeleteOnIdle,omitempty"`
	Status                              Status              `json:"status,omitempty"`
	AuthorizationRules                  []AuthorizationRule `json:"authorizationRules,omitempty"`
	UserMetadata                        string              `json:"userMetadata,omitempty"`
	DisableBatchedOperations            bool                `json:"disableBatchedOperations,omitempty"`
	EnableExpress                       bool                `json:"enableExpress,omitempty"`
	Kept
}

// SubscriptionConfig says how one subscription behaves. Fields as in
// QueueConfig.
type SubscriptionConfig struct {
	Name                             string        `json:"name"` // within its topic: at most 50 bytes, no '/'
	LockDuration                     time.Duration `json:"lockDuration,omitempty"`
	MaxDeliveryCount                 int           `json:"maxDeliveryCount,omitempty"`
	DefaultMessageTimeToLive         time.Duration `json:"defaultMessageTimeToLive,omitempty"`
	DeadLetteringOnMessageExpiration bool          `json:"deadLetteringOnMessageExpiration,omitempty"`
	// IgnoreFilterEvaluationExceptions: a message that a filter or an action fails
	// on does not match. Otherwise it is dead-lettered. The opposite of the
	// service's DeadLetteringOnFilterEvaluationExceptions, which is true unless
	// stated, says the JavaScript SDK's live test of createSubscription.
	IgnoreFilterEvaluationExceptions bool          `json:"ignoreFilterEvaluationExceptions,omitempty"`
	RequiresSession                  bool          `json:"requiresSession,omitempty"`
	ForwardTo                        string        `json:"forwardTo,omitempty"`
	ForwardDeadLetteredMessagesTo    string        `json:"forwardDeadLetteredMessagesTo,omitempty"`
	AutoDeleteOnIdle                 time.Duration `json:"autoDeleteOnIdle,omitempty"`
	Status                           Status        `json:"status,omitempty"`
	UserMetadata                     string        `json:"userMetadata,omitempty"`
	DisableBatchedOperations         bool          `json:"disableBatchedOperations,omitempty"`
	Kept
}

// TopicSetup is a topic with what hangs on it.
type TopicSetup struct {
	TopicConfig
	Subscriptions []SubscriptionSetup
}

// SubscriptionSetup is a subscription with its rules. Without rules it gets
// everything.
type SubscriptionSetup struct {
	SubscriptionConfig
	Rules []RuleConfig
}

// check returns what is wrong with c, all of it. The service has narrower
// bounds, which the administration API keeps; tests want locks of a second.
func (c *QueueConfig) check() error {
	p := problems{what: fmt.Sprintf("queue %.300q", c.Name)}
	p.want(validName(c.Name), "the name: letters, digits, '.', '-', '_' and '/', at most %d", maxNameLength)
	p.durations(map[string]time.Duration{
		"LockDuration":                        c.LockDuration,
		"DefaultMessageTimeToLive":            c.DefaultMessageTimeToLive,
		"DuplicateDetectionHistoryTimeWindow": c.DuplicateDetectionHistoryTimeWindow,
		"AutoDeleteOnIdle":                    c.AutoDeleteOnIdle,
	})
	p.counts(c.MaxDeliveryCount, c.MaxSize)
	p.size(c.MaxMessageSize)
	p.status(c.Status)
	p.forwards(c.RequiresSession, c.ForwardTo, c.ForwardDeadLetteredMessagesTo)
	return p.err()
}

// checkNew is check for a queue that is yet to be made.
func (c *QueueConfig) checkNew() error {
	p := problems{what: fmt.Sprintf("queue %.300q", c.Name)}
	p.circle(c.Name, map[string]string{"ForwardTo": c.ForwardTo, "ForwardDeadLetteredMessagesTo": c.ForwardDeadLetteredMessagesTo})
	return errors.Join(c.check(), p.err())
}

func (c *TopicConfig) check() error {
	p := problems{what: fmt.Sprintf("topic %.300q", c.Name)}
	p.want(validName(c.Name), "the name: letters, digits, '.', '-', '_' and '/', at most %d", maxNameLength)
	p.durations(map[string]time.Duration{
		"DefaultMessageTimeToLive":            c.DefaultMessageTimeToLive,
		"DuplicateDetectionHistoryTimeWindow": c.DuplicateDetectionHistoryTimeWindow,
		"AutoDeleteOnIdle":                    c.AutoDeleteOnIdle,
	})
	p.counts(0, c.MaxSize)
	p.size(c.MaxMessageSize)
	p.status(c.Status)
	return p.err()
}

func (c *SubscriptionConfig) check(topic string) error {
	p := problems{what: fmt.Sprintf("subscription %.300q of topic %.300q", c.Name, topic)}
	p.want(validShortName(c.Name), "the name: letters, digits, '.', '-' and '_', at most %d", maxShortName)
	p.durations(map[string]time.Duration{
		"LockDuration":             c.LockDuration,
		"DefaultMessageTimeToLive": c.DefaultMessageTimeToLive,
		"AutoDeleteOnIdle":         c.AutoDeleteOnIdle,
	})
	p.counts(c.MaxDeliveryCount, 0)
	p.status(c.Status)
	p.forwards(c.RequiresSession, c.ForwardTo, c.ForwardDeadLetteredMessagesTo)
	return p.err()
}

// checkNew is check for a subscription that is yet to be made. Every message that
// it forwards to its topic would come back to all subscriptions.
func (c *SubscriptionConfig) checkNew(topic string) error {
	p := problems{what: fmt.Sprintf("subscription %.300q of topic %.300q", c.Name, topic)}
	p.circle(topic, map[string]string{"ForwardTo": c.ForwardTo})
	return errors.Join(c.check(topic), p.err())
}

// problems collects what is wrong with one entity.
type problems struct {
	what string
	errs []error
}

func (p *problems) want(good bool, format string, args ...any) {
	if !good {
		p.errs = append(p.errs, fmt.Errorf("%w: %s: %s", ErrInvalidConfig, p.what, fmt.Sprintf(format, args...)))
	}
}

func (p *problems) durations(ds map[string]time.Duration) {
	for name, d := range ds {
		p.want(d >= 0, "%s %v is negative", name, d)
	}
}

func (p *problems) counts(maxDelivery int, maxSize int64) {
	p.want(maxDelivery >= 0 && maxDelivery <= MaxMaxDeliveryCount, "MaxDeliveryCount %d is not within 0 and %d", maxDelivery, MaxMaxDeliveryCount)
	p.want(maxSize >= 0, "MaxSize %d is negative", maxSize)
}

func (p *problems) size(n uint64) {
	p.want(n == 0 || n >= minMaxMessageSize && n <= maxMaxMessageSize,
		"MaxMessageSize %d is not within %d and %d bytes", n, minMaxMessageSize, maxMaxMessageSize)
}

func (p *problems) status(s Status) {
	p.want(s >= Active && s <= ReceiveDisabled, "Status %d does not exist", s)
}

func (p *problems) forwards(sessions bool, to, deadLettersTo string) {
	p.want(!sessions || to == "", "an entity that requires sessions cannot forward")
	for field, to := range map[string]string{"ForwardTo": to, "ForwardDeadLetteredMessagesTo": deadLettersTo} {
		p.want(to == "" || validName(parseAddress(to).Entity()), "%s %.300q is no path of a queue or topic", field, to)
	}
}

// circle refuses what forwards to itself, or a subscription that forwards to its
// topic. It is for new entities alone: an update may state such a forward, has
// Python's test_mgmt_queue_update_success, and then the hops bound it.
func (p *problems) circle(self string, forwards map[string]string) {
	for field, to := range forwards {
		p.want(to == "" || key(parseAddress(to).Entity()) != key(self), "%s leads to itself", field)
	}
}

func (p *problems) err() error { return errors.Join(p.errs...) }

func (c QueueConfig) withDefaults() QueueConfig {
	c.LockDuration, c.MaxDeliveryCount = lockDefaults(c.LockDuration, c.MaxDeliveryCount)
	c.DuplicateDetectionHistoryTimeWindow = cmp.Or(c.DuplicateDetectionHistoryTimeWindow, DefaultDuplicateDetectionWindow)
	if c.ForwardTo != "" {
		c.AutoDeleteOnIdle = 0
	}
	return c
}

func (c TopicConfig) withDefaults() TopicConfig {
	c.DuplicateDetectionHistoryTimeWindow = cmp.Or(c.DuplicateDetectionHistoryTimeWindow, DefaultDuplicateDetectionWindow)
	return c
}

func (c SubscriptionConfig) withDefaults() SubscriptionConfig {
	c.LockDuration, c.MaxDeliveryCount = lockDefaults(c.LockDuration, c.MaxDeliveryCount)
	if c.ForwardTo != "" {
		c.AutoDeleteOnIdle = 0
	}
	return c
}

func lockDefaults(lock time.Duration, deliveries int) (time.Duration, int) {
	return cmp.Or(lock, queue.DefaultLockDuration), cmp.Or(deliveries, queue.DefaultMaxDeliveryCount)
}
