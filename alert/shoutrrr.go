// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/url"
	"slices"
	"strings"

	"github.com/nicholas-fedor/shoutrrr/pkg/router"
	"github.com/nicholas-fedor/shoutrrr/pkg/types"
)

// shoutrrr hands pages to the library of that name, which knows a good twenty services more.
type shoutrrr struct {
	name, service string
	secrets       []string
	text          Text
	router        *router.ServiceRouter
}

// NewShoutrrr makes a Pager for a URL of shoutrrr's, such as ntfy://ntfy.sh/topic. The URL is a secret.
func NewShoutrrr(name, rawURL string, text Text) (Pager, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme == "" {
		return nil, errors.New("alert: shoutrrr needs a URL such as ntfy://host/topic")
	}
	a := &shoutrrr{name: cmp.Or(name, "shoutrrr"), service: u.Scheme, secrets: secretsOf(u, rawURL), text: text}
	a.router, err = router.New(log.New(io.Discard, "", 0), rawURL)
	if err != nil {
		return nil, fmt.Errorf("alert: shoutrrr: %w", a.redacted(err))
	}
	return a, nil
}

func (a *shoutrrr) Name() string { return a.name }

// Page waits for the service, or ten seconds: the library knows no context.
func (a *shoutrrr) Page(_ context.Context, p Page) error {
	title, text, err := a.text.of(p)
	if err != nil {
		return err
	}
	if text == "" {
		text = title
	}
	params := types.Params{}
	params.SetTitle(title)
	if err := errors.Join(a.router.Send(text, &params)...); err != nil {
		return fmt.Errorf("alert: %s: %w", a.service, a.redacted(err))
	}
	return nil
}

// secretsOf is every part of the URL that may be one, the longest first. Services put keys wherever there is room.
func secretsOf(u *url.URL, rawURL string) []string {
	parts := []string{rawURL, u.User.String(), u.User.Username(), u.Host, u.Path, u.RawQuery}
	if password, ok := u.User.Password(); ok {
		parts = append(parts, password)
	}
	parts = append(parts, strings.Split(u.Path, "/")...)
	for _, values := range u.Query() {
		parts = append(parts, values...)
	}
	parts = slices.DeleteFunc(parts, func(s string) bool { return len(s) < 4 })
	slices.SortFunc(parts, func(a, b string) int { return len(b) - len(a) })
	return parts
}

// redacted is err without the parts of the URL, which the library's errors quote.
func (a *shoutrrr) redacted(err error) error {
	text := err.Error()
	for _, secret := range a.secrets {
		text = strings.ReplaceAll(text, secret, "(hidden)")
		text = strings.ReplaceAll(text, url.QueryEscape(secret), "(hidden)")
	}
	return errors.New(text)
}
