// SPDX-License-Identifier: Apache-2.0

package entities

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"overdue/internal/servicebus/atom"
)

const (
	// apiVersion is the first that says how large messages may be.
	apiVersion = "2021-05"
	// maxAnswer bounds what is read of one answer: a page of subscriptions has some 150 KiB.
	maxAnswer = 4 << 20
	pageSize  = 100
	maxPages  = 50 // of subscriptions; a topic has 2,000 at most
)

// Admin is the administration API of a namespace as a Source: Atom over HTTP. The SDK's client is
// not used for it, for three reasons. It needs two requests to tell a topic from a queue. It speaks
// HTTPS to the port of HTTPS alone, which emulators do not have. It panics on an entry without
// content.
type Admin struct {
	// Endpoints are where the API may be, such as https://contoso.servicebus.windows.net. The first
	// that answers in HTTP is taken; at least one is needed.
	Endpoints []string
	// Authorize returns the value of the header Authorization for an audience, which is an endpoint:
	// the Manage right is one for the namespace. nil: there is no such header.
	Authorize func(ctx context.Context, audience string) (string, error)
	// Client makes the requests. It should not follow redirects.
	Client *http.Client
	// UserAgent names the program; "" = that of net/http.
	UserAgent string

	good atomic.Int32 // the endpoint that answered last
}

// Read asks for the queue or topic of that name, and for the subscriptions of a topic.
func (a *Admin) Read(ctx context.Context, name string) (Info, error) {
	answer, err := a.get(ctx, name, "", nil)
	if err != nil {
		return Info{}, fmt.Errorf("settings of %q: %w", name, err)
	}
	info, _, err := entityOf(answer)
	if err == nil && info.Kind == Topic {
		info.Subscriptions, err = a.subscriptions(ctx, name)
	}
	if err != nil {
		return Info{}, fmt.Errorf("settings of %q: %w", name, err)
	}
	return info, nil
}

// subscriptions is how those of a topic were made.
func (a *Admin) subscriptions(ctx context.Context, topic string) ([]Subscription, error) {
	details, err := a.subscriptionDetails(ctx, topic)
	if err != nil || len(details) == 0 {
		return nil, err
	}
	all := make([]Subscription, len(details))
	for i := range details {
		all[i] = details[i].Subscription
	}
	return all, nil
}

// subscriptionDetails reads all pages.
func (a *Admin) subscriptionDetails(ctx context.Context, topic string) ([]SubscriptionDetails, error) {
	var all []SubscriptionDetails
	for page := range maxPages {
		answer, err := a.get(ctx, topic, "/Subscriptions", url.Values{
			"$skip": {strconv.Itoa(page * pageSize)}, "$top": {strconv.Itoa(pageSize)},
		})
		if err != nil {
			return nil, err
		}
		for _, e := range answer.Entries {
			s, err := subscriptionOf(e)
			if err != nil {
				return nil, err
			}
			all = append(all, s)
		}
		if len(answer.Entries) < pageSize {
			break
		}
	}
	slices.SortFunc(all, func(x, y SubscriptionDetails) int {
		return cmp.Compare(strings.ToLower(x.Name), strings.ToLower(y.Name))
	})
	return all, nil
}

// get asks for the path below an entity at the endpoint that answered last, and at the others if it
// does not. Any answer counts, whatever its status.
func (a *Admin) get(ctx context.Context, entity, below string, query url.Values) (atom.Answer, error) {
	var errs []error
	first := int(a.good.Load())
	for i := range a.Endpoints {
		at := (first + i) % len(a.Endpoints)
		resp, err := a.do(ctx, a.Endpoints[at], entity, below, query)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		a.good.Store(int32(at))
		defer resp.Body.Close()
		return read(resp)
	}
	return atom.Answer{}, errors.Join(errs...)
}

func (a *Admin) do(ctx context.Context, endpoint, entity, below string, query url.Values) (*http.Response, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	u.Path = "/"
	audience := u.String()
	u.Path += entity + below
	q := url.Values{"api-version": {apiVersion}}
	for k, v := range query {
		q[k] = v
	}
	u.RawQuery = q.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	if a.UserAgent != "" {
		r.Header.Set("User-Agent", a.UserAgent)
	}
	if a.Authorize != nil {
		token, err := a.Authorize(ctx, audience)
		if err != nil {
			return nil, fmt.Errorf("sign in: %w", err)
		}
		// A JWT stands there without the word Bearer, as the SDKs send it.
		r.Header.Set("Authorization", token)
	}
	return a.Client.Do(r)
}

// A busyError is an answer that tells to come back later.
type busyError struct {
	error
	after time.Duration // 0 = it does not say when
}

// RetryAfter is how long the namespace wants to be left alone.
func (e *busyError) RetryAfter() time.Duration { return e.after }

// read takes an answer apart.
func read(resp *http.Response) (atom.Answer, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return atom.Answer{}, fmt.Errorf("the answer broke off: %w", err)
	case len(body) > maxAnswer:
		return atom.Answer{}, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	why, ours := failure(resp, body)
	switch code := resp.StatusCode; {
	case code == http.StatusOK:
		return parse(body)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return atom.Answer{}, fmt.Errorf("%w: %s", ErrNoRight, why)
	case ours && (code == http.StatusNotFound || code == http.StatusGone):
		// A 404 in other words comes from another server, such as an emulator without this API. Sends
		// there must not report each time that the entity does not exist.
		return atom.Answer{}, fmt.Errorf("%w: %s", ErrNotFound, why)
	}
	after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || after < 0 || after > 1<<20 {
		after = 0
	}
	return atom.Answer{}, &busyError{errors.New(why), time.Duration(after) * time.Second}
}

// failure is what an answer says went wrong, in one line. ours is false when it does not say it as
// the administration API does.
func failure(resp *http.Response, body []byte) (line string, ours bool) {
	detail := strings.Join(strings.Fields(atom.ErrorDetail(bytes.NewReader(body))), " ")
	if detail == "" {
		return "status " + strconv.Itoa(resp.StatusCode), false
	}
	if r := []rune(detail); len(r) > 300 {
		detail = string(r[:300]) + "…"
	}
	return fmt.Sprintf("status %d: %s", resp.StatusCode, detail), true
}
