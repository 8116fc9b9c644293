// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"overdue/internal/broker"
	"overdue/internal/config"
	"overdue/internal/httpclient"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
)

// emulatorAdminPort is where the official emulator has its administration API. Others have it at the port that
// they have for AMQP.
const emulatorAdminPort = "5300"

// adminEndpoints are where the administration API of a namespace may be. taken are addresses of this process,
// where it cannot be.
func (n *namespace) adminEndpoints(taken ...string) []string {
	host, port, err := net.SplitHostPort(n.Host)
	if err != nil {
		host, port = n.Host, ""
	}
	scheme, ports := "https", []string{"443"}
	if n.Plain {
		scheme, ports = "http", []string{emulatorAdminPort}
	}
	if port != "" && port != ports[0] {
		ports = []string{port, ports[0]}
	}
	var all []string
	for _, p := range ports {
		at := net.JoinHostPort(host, p)
		if !slices.ContainsFunc(taken, func(t string) bool { return sameAddress(t, at) }) {
			all = append(all, scheme+"://"+at)
		}
	}
	return all
}

// sameAddress reports whether a listener of this machine answers at an address.
func sameAddress(listener, addr string) bool {
	lh, lp, err := net.SplitHostPort(listener)
	if err != nil {
		return false
	}
	h, p, err := net.SplitHostPort(addr)
	if err != nil || lp != p {
		return false
	}
	return h == lh || config.OnLoopback(h) && (config.OnLoopback(lh) || net.ParseIP(lh).IsUnspecified())
}

// adminSource asks the administration API of a namespace as who we are there. Our own doors are not it.
func (p *process) adminSource(ns *namespace, tokens link.TokenSource, doors []net.Listener) (entities.Source, *http.Client, error) {
	var taken []string
	for _, ln := range doors {
		taken = append(taken, ln.Addr().String())
	}
	api, err := adminAPI(p.cfg, ns, tokens, taken...)
	if err != nil {
		return nil, nil, err
	}
	if len(api.Endpoints) == 0 {
		return nowhere{}, api.Client, nil
	}
	return api, api.Client, nil
}

// adminAPI is the administration API of a namespace. It has no endpoint where the only ones that it could have are taken.
func adminAPI(c *config.Config, ns *namespace, tokens link.TokenSource, taken ...string) (*entities.Admin, error) {
	endpoints := ns.adminEndpoints(taken...)
	if text := c.AdminURL; text != "" {
		u, err := url.Parse(text)
		if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" {
			return nil, &config.Error{Err: fmt.Errorf("%s is not of the form https://host:port", c.At("namespaceAdmin"))}
		}
		if u.Scheme == "http" && !ns.Plain && !config.OnLoopback(u.Hostname()) {
			return nil, &config.Error{Err: fmt.Errorf("%s is not HTTPS, and tokens would be sent over the network in the clear", c.At("namespaceAdmin"))}
		}
		endpoints = []string{u.Scheme + "://" + u.Host}
	}
	transport := httpclient.Transport()
	transport.DialContext = (&net.Dialer{Timeout: dialTimeout / 2}).DialContext
	transport.TLSHandshakeTimeout = dialTimeout / 2
	client := httpclient.New(transport, 0) // a token is for who was asked
	return &entities.Admin{
		Endpoints: endpoints, Client: client, UserAgent: "overdue/" + version(),
		Authorize: func(ctx context.Context, audience string) (string, error) {
			t, err := tokens.Token(ctx, audience)
			return t.Value, err
		},
	}, nil
}

// nowhere is the source of an emulator whose only port we have taken.
type nowhere struct{}

const nowhereToAsk = "the port of the emulator's administration API is one of this process; set namespaceAdmin"

func (nowhere) Read(context.Context, string) (entities.Info, error) {
	return entities.Info{}, errors.New(nowhereToAsk)
}

// embeddedSource looks behind the protocol of the embedded broker.
type embeddedSource struct {
	ns *broker.Namespace
	// made is how a queue will be made that is not there; nil: none is.
	made *entities.Info
}

// newEmbeddedSource is the source of b, for which a queue exists as soon as it is named if autoCreate says so.
func newEmbeddedSource(b *broker.Broker, autoCreate bool) *embeddedSource {
	s := &embeddedSource{ns: b.Default()}
	if autoCreate {
		info := queueInfo(onDemand)
		s.made = &info
	}
	return s
}

func (s *embeddedSource) Read(_ context.Context, name string) (entities.Info, error) {
	if q, err := s.ns.QueueInfo(name); err == nil {
		info := queueInfo(q.Config)
		info.CreatedAt, info.UpdatedAt = q.CreatedAt, q.UpdatedAt
		return info, nil
	}
	t, err := s.ns.TopicInfo(name)
	if err != nil {
		if s.made != nil {
			return *s.made, nil
		}
		return entities.Info{}, entities.ErrNotFound
	}
	info := entities.Info{
		Kind: entities.Topic, DefaultMessageTimeToLive: limited(t.Config.DefaultMessageTimeToLive), AutoDeleteOnIdle: limited(t.Config.AutoDeleteOnIdle),
		RequiresDuplicateDetection: t.Config.RequiresDuplicateDetection, Partitioned: t.Config.EnablePartitioning,
		MaxMessageSize: int64(t.Config.MaxMessageSize), CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt,
	}
	subscriptions, err := s.ns.Subscriptions(name)
	if err != nil {
		return entities.Info{}, entities.ErrNotFound // deleted just now
	}
	for _, sub := range subscriptions {
		c := sub.Config
		info.Subscriptions = append(info.Subscriptions, entities.Subscription{
			Name: c.Name, CreatedAt: sub.CreatedAt, UpdatedAt: sub.UpdatedAt,
			DefaultMessageTimeToLive: limited(c.DefaultMessageTimeToLive), LockDuration: c.LockDuration, AutoDeleteOnIdle: limited(c.AutoDeleteOnIdle),
			RequiresSession: c.RequiresSession, DeadLetteringOnMessageExpiration: c.DeadLetteringOnMessageExpiration,
			ForwardTo: entities.Target(c.ForwardTo), ForwardDeadLetteredMessagesTo: entities.Target(c.ForwardDeadLetteredMessagesTo),
		})
	}
	return info, nil
}

func queueInfo(c broker.QueueConfig) entities.Info {
	return entities.Info{
		Kind: entities.Queue, DefaultMessageTimeToLive: limited(c.DefaultMessageTimeToLive), LockDuration: c.LockDuration, AutoDeleteOnIdle: limited(c.AutoDeleteOnIdle),
		RequiresSession: c.RequiresSession, RequiresDuplicateDetection: c.RequiresDuplicateDetection,
		DeadLetteringOnMessageExpiration: c.DeadLetteringOnMessageExpiration, Partitioned: c.EnablePartitioning,
		ForwardTo: entities.Target(c.ForwardTo), ForwardDeadLetteredMessagesTo: entities.Target(c.ForwardDeadLetteredMessagesTo),
		MaxMessageSize: int64(c.MaxMessageSize),
	}
}

// limited is a span that ends; what is longer than a century is 0, as in the configuration.
func limited(d time.Duration) time.Duration {
	if d > config.Unlimited {
		return 0
	}
	return d
}
