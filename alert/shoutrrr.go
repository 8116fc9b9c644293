// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nicholas-fedor/shoutrrr/pkg/format"
	"github.com/nicholas-fedor/shoutrrr/pkg/router"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/ntfy"
	"github.com/nicholas-fedor/shoutrrr/pkg/types"

	"overdue/internal/httpclient"
)

const shoutrrrTimeout = 10 * time.Second

// shoutrrr delivers notifications through the library of that name, which has some twenty services.
type shoutrrr struct {
	name, service string
	secrets       *strings.Replacer
	text          Text
	sender        types.Service
	titled        bool // the service takes titles
}

// NewShoutrrr makes a Notifier for a shoutrrr URL, such as ntfy://ntfy.sh/topic. The URL is a
// secret.
func NewShoutrrr(name, rawURL string, text Text) (Notifier, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme == "" {
		return nil, errors.New("alert: shoutrrr needs a URL such as ntfy://host/topic")
	}
	text.mentions = true // the services send texts as they are
	// Services put keys into any part of the URL.
	secrets := slices.Concat(secretsOf(u, rawURL), []string{u.Host}, strings.Split(u.Path, "/"))
	a := &shoutrrr{name: cmp.Or(name, "shoutrrr"), service: u.Scheme, secrets: hiding(secrets), text: text}
	if a.sender, err = newService(u); err != nil {
		return nil, fmt.Errorf("alert: shoutrrr: %w", a.redacted(err))
	}
	settings := format.NewPropKeyResolver(format.GetServiceConfig(a.sender))
	_, err = settings.Get(types.TitleKey)
	a.titled = err == nil
	return a, nil
}

// sinkFor names the sink to use in place of a service: one that follows no redirects, sends no
// password in the clear, and is there without configuration.
var sinkFor = map[string]string{"generic": "webhook", "smtp": "email", "logger": "log"}

// newService returns the service that a URL names. A scheme such as bark+https marks a URL of the
// service itself, which the library converts to one of its own.
func newService(u *url.URL) (types.Service, error) {
	scheme, _, custom := strings.Cut(u.Scheme, "+")
	if sink := sinkFor[scheme]; sink != "" {
		return nil, fmt.Errorf("the service %s is not supported; use the sink %s", scheme, sink)
	}
	library := &router.ServiceRouter{}
	s, err := library.NewService(scheme)
	if err != nil {
		names := slices.DeleteFunc(library.ListServices(), func(name string) bool { return sinkFor[name] != "" })
		slices.Sort(names)
		return nil, fmt.Errorf("there is no service %s; use one of %s", scheme, strings.Join(names, ", "))
	}
	if custom {
		c, ok := s.(types.CustomURLService)
		if !ok {
			return nil, fmt.Errorf("the service %s takes no URL of the form %s+https://", scheme, scheme)
		}
		if u, err = c.GetConfigURLFromCustom(u); err != nil {
			return nil, err
		}
	}
	if err := s.Initialize(u, log.New(io.Discard, "", 0)); err != nil {
		return nil, err
	}
	refuseRedirects(s)
	return s, nil
}

// refuseRedirects changes services that have a transport of their own. Package httpclient changes
// the default client, which the other services use. TestShoutrrrServicesFollowNoRedirect lists
// them.
func refuseRedirects(s types.Service) {
	switch s := s.(type) {
	case *ntfy.Service:
		transport := httpclient.Transport()
		transport.TLSClientConfig = &tls.Config{
			MinVersion: tls.VersionTLS12, InsecureSkipVerify: s.Config.DisableTLSVerification, // as its URL says
		}
		s.SetHTTPClient(httpclient.New(transport, ntfy.HTTPTimeout*time.Second))
	case interface{ GetHTTPClient() *http.Client }: // gotify, mattermost
		s.GetHTTPClient().CheckRedirect = httpclient.Refuse
	}
}

func (a *shoutrrr) Name() string { return a.name }

// Notify waits for the service for at most shoutrrrTimeout: the library takes no context.
func (a *shoutrrr) Notify(_ context.Context, p Notification) error {
	p, title, text, err := a.text.render(p)
	if err != nil {
		return err
	}
	title, text = a.fitting(&p, title, text)
	params := types.Params{}
	if a.titled { // other services leave a title out, or fail
		params.SetTitle(title)
	}
	sent := make(chan error, 1)
	go func() { sent <- a.sender.Send(text, &params) }()
	late := time.NewTimer(shoutrrrTimeout)
	defer late.Stop()
	select {
	case err = <-sent:
	case <-late.C:
		err = fmt.Errorf("no answer within %v", shoutrrrTimeout)
	}
	if err != nil {
		return fmt.Errorf("alert: %s: %w", a.service, a.redacted(err))
	}
	return nil
}

// fitting returns a title and a text, with its links, that the service takes. The text of a service
// without titles begins with the title.
func (a *shoutrrr) fitting(p *Notification, title, text string) (string, string) {
	kind, _, _ := strings.Cut(a.service, "+")
	most := shoutrrrLimits[kind]
	if most.title > 0 {
		title = fit(title, most.title, func(s string) int { return len(s) })
	}
	if !a.titled {
		text = strings.TrimSpace(title + "\n" + text)
	}
	text = cmp.Or(text, title)
	if most.text > 0 {
		if len(p.withLinks("")) >= most.text {
			p.Dashboard, p.Runbook = "", "" // a part of a link would lead elsewhere
		}
		text = fit(text, most.text, func(s string) int { return len(p.withLinks(s)) })
	}
	return title, p.withLinks(text)
}

// redacted returns err without the parts of the URL, which errors of the library quote.
func (a *shoutrrr) redacted(err error) error {
	return errors.New(a.secrets.Replace(err.Error()))
}
