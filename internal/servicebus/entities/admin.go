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

// Details is what an operator wants to know of an entity beyond Info. It is read each time, since
// it counts.
type Details struct {
	Info
	Status           string // Active, Disabled, SendDisabled, ReceiveDisabled; "" = not said
	MaxDeliveryCount int    // 0 = not said
	Counts           Counts

	// Subscriptions of a topic, in the order of Info.Subscriptions.
	Subscriptions []SubscriptionDetails
}

// SubscriptionDetails is Details of a subscription.
type SubscriptionDetails struct {
	Subscription
	Status           string
	MaxDeliveryCount int
	Counts           Counts
}

// Counts are messages, as the administration API counts them: expired ones that are still there
// count as active.
type Counts struct {
	Active, Scheduled, DeadLetter, TransferDeadLetter int64
}

// Describe is Read with what changes by itself.
func (a *Admin) Describe(ctx context.Context, name string) (Details, error) {
	answer, err := a.get(ctx, name, "", nil)
	if err != nil {
		return Details{}, fmt.Errorf("settings of %q: %w", name, err)
	}
	var d Details
	info, said, err := entityOf(answer)
	if err == nil {
		d = Details{Info: info, Status: said.Status, MaxDeliveryCount: int(said.MaxDeliveryCount), Counts: said.Counts}
		if d.Kind == Topic {
			d.Subscriptions, err = a.subscriptionDetails(ctx, name)
		}
	}
	if err != nil {
		return Details{}, fmt.Errorf("settings of %q: %w", name, err)
	}
	for _, s := range d.Subscriptions {
		d.Info.Subscriptions = append(d.Info.Subscriptions, s.Subscription)
	}
	return d, nil
}

// Tier is Basic, Standard or Premium. It needs the Manage right of the whole namespace.
func (a *Admin) Tier(ctx context.Context) (string, error) {
	answer, err := a.get(ctx, "$namespaceinfo", "", nil)
	if err != nil {
		return "", fmt.Errorf("tier of the namespace: %w", err)
	}
	for _, e := range answer.Entries {
		if d := e.Description; d != nil && d.Name.Local == "NamespaceInfo" && d.ChildText("MessagingSKU") != "" {
			return d.ChildText("MessagingSKU"), nil
		}
	}
	return "", errors.New("tier of the namespace: the answer does not say it")
}

// List names the queues or topics of the namespace, at most limit of them, in the order of their
// names; more reports that there are others.
func (a *Admin) List(ctx context.Context, kind Kind, limit int) (names []string, more bool, err error) {
	which := map[Kind]string{Queue: "Queues", Topic: "Topics"}[kind]
	for len(names) <= limit {
		answer, err := a.get(ctx, "$Resources/"+which, "", url.Values{
			"$skip": {strconv.Itoa(len(names))}, "$top": {strconv.Itoa(pageSize)},
		})
		if err != nil {
			return nil, false, fmt.Errorf("list of %s: %w", strings.ToLower(which), err)
		}
		for _, e := range answer.Entries {
			if e.Title == "" {
				return nil, false, fmt.Errorf("list of %s: the answer has an entry without a name", strings.ToLower(which))
			}
			names = append(names, e.Title)
		}
		if len(answer.Entries) < pageSize {
			break
		}
	}
	slices.Sort(names)
	if len(names) > limit {
		return names[:limit], true, nil
	}
	return names, false, nil
}

// Page returns one page of a list, with names and descriptions, from the entry at skip on: of
// "$Resources/Queues", "$Resources/Topics", "t/Subscriptions", or "t/Subscriptions/s/Rules". more
// says that others may follow.
func (a *Admin) Page(ctx context.Context, list string, skip int) (entries []atom.Entry, more bool, err error) {
	answer, err := a.get(ctx, list, "", url.Values{"$skip": {strconv.Itoa(skip)}, "$top": {strconv.Itoa(pageSize)}})
	if err != nil {
		return nil, false, fmt.Errorf("list %s: %w", list, err)
	}
	for _, e := range answer.Entries {
		if e.Title == "" || e.Description == nil {
			return nil, false, fmt.Errorf("list %s: the answer has an entry without a name or a description", list)
		}
	}
	return answer.Entries, len(answer.Entries) >= pageSize, nil
}

// Endpoint is the one of Endpoints that answered last, the first before any has.
func (a *Admin) Endpoint() string { return a.Endpoints[a.good.Load()] }

// InOrder makes a request of an SDK with do, its elements in the order of the service, and removes
// elements from the answer that do not hold. Otherwise the SDK for Go takes the forward and the
// metadata from a queue that it reads, changes and writes back. Or it puts settings in force that
// another client stated in vain.
func InOrder(r *http.Request, do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = atom.InOrder(body)
		r = r.Clone(r.Context())
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	resp, err := do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(atom.Holding(body)))
	return resp, nil
}
