// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/sas"
)

// A Call is what a request over HTTP asks for.
type Call uint8

// The calls.
const (
	Administer       Call = iota // read, make, change or delete an entity, or list some
	SendMessages                 // POST   {path}/messages
	PeekLock                     // POST   {path}/messages/head
	ReceiveAndDelete             // DELETE {path}/messages/head
	Unlock                       // PUT    {path}/messages/{message-id or sequence number}/{lock token}
	Complete                     // DELETE the same
	RenewLock                    // POST   the same
)

// A Request is a request over HTTP as everybody has to read it.
type Request struct {
	Call    Call
	Address address.Address // whose messages it is about; of Administer the entity, zero for lists and the namespace
	Need    Need
	Token   string // of Unlock, Complete and RenewLock: the lock token, a UUID unless the last one has another

	// Twofold reports that a server that undoes escapes before it splits at slashes reads the
	// message-id, and so the request, in another way. The broker does not mind, since it knows the
	// message by its lock token. A proxy refuses the request.
	Twofold bool

	behind string // what stands behind the entity in the URL, as it was sent
}

// Errors of OfHTTP besides address.ErrNotPlain. Their texts are for the sender of the request.
var (
	// ErrUnlisted is wrapped for a request that is in no table.
	ErrUnlisted = errors.New("there is no such request")
	// ErrNoMessages is wrapped for a send to what takes no messages, or a receive from what has none.
	ErrNoMessages = errors.New("it is not possible")
	// ErrBody is returned for a settlement with a body, which might be meant to describe an entity of
	// that name.
	ErrBody = errors.New("a settlement has no body")
)

// calls is the table of requests that are about messages.
var calls = [...]struct {
	method string
	shape  shape
	call   Call
	oneOf  sas.Rights
}{
	{http.MethodPost, toMessages, SendMessages, sas.Send},
	{http.MethodPost, toHead, PeekLock, sas.Listen},
	{http.MethodDelete, toHead, ReceiveAndDelete, sas.Listen},
	{http.MethodPut, toLocked, Unlock, sas.Listen},
	{http.MethodDelete, toLocked, Complete, sas.Listen},
	{http.MethodPost, toLocked, RenewLock, sas.Listen},
	{http.MethodPost, toUnlocked, RenewLock, sas.Listen}, // a POST is about nothing but messages; the namespace refuses the token
}

// A shape is what stands behind the path of an entity.
type shape uint8

const (
	toAny      shape = iota
	toMessages       // /messages
	toHead           // /messages/head
	toLocked         // /messages/{id}/{lock token}
	toUnlocked       // /messages/{id}/{something else}
)

// segments is how many segments a shape has.
var segments = map[shape]int{toMessages: 1, toHead: 2, toLocked: 3, toUnlocked: 3}

// lockToken is the form of a lock token, a UUID with dashes or without.
var lockToken = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-?[0-9A-Fa-f]{4}){3}-?[0-9A-Fa-f]{12}$`)

// shapeOf tells the shape by the last segments.
func shapeOf(path []string) shape {
	is := func(fromEnd int, word string) bool {
		i := len(path) - fromEnd
		return i > 0 && strings.EqualFold(path[i], word)
	}
	switch {
	case is(1, "messages"):
		return toMessages
	case is(2, "messages") && is(1, "head"):
		return toHead
	case is(3, "messages") && lockToken.MatchString(path[len(path)-1]):
		return toLocked
	case is(3, "messages"):
		return toUnlocked
	}
	return toAny
}

// OfHTTP says what a request asks for and which rights that needs, by its method and the path of
// its URL as it was sent (net/url: EscapedPath). hasBody says whether it has a body, or may have.
// Names of entities may contain slashes, so the path alone does not tell: what is not certain to
// be about messages is about an entity. Errors: ErrUnlisted, ErrNoMessages, ErrBody,
// address.ErrNotPlain.
func OfHTTP(method, escaped string, hasBody bool) (Request, error) {
	path := strings.Split(strings.TrimSuffix(strings.TrimPrefix(escaped, "/"), "/"), "/")
	at := shapeOf(path)
	// Others may undo the escapes before they look for slashes. Escapes in the place of a message-id
	// are checked separately.
	plain := path
	if at == toLocked || at == toUnlocked {
		plain = slices.Clone(path)
		plain[len(path)-2] = "id"
	}
	other, err := url.PathUnescape(strings.Join(plain, "/"))
	if err != nil || shapeOf(strings.Split(other, "/")) != at {
		return Request{}, &twofold{escaped}
	}
	for _, row := range calls {
		if row.method == method && row.shape == at {
			return about(row.call, row.oneOf, path, segments[at], hasBody)
		}
	}
	if method == http.MethodPost {
		return Request{}, unlistedCall(method, escaped)
	}
	return administration(method, escaped)
}

// A twofold path can be read in two ways.
type twofold struct{ path string }

func (e *twofold) Error() string { return fmt.Sprintf("%.300q can be read in two ways", e.path) }

func (e *twofold) Unwrap() error { return address.ErrNotPlain }

// about is a request about the messages of the entity before the last segments of a path.
func about(call Call, oneOf sas.Rights, path []string, behind int, hasBody bool) (Request, error) {
	q := Request{Call: call, behind: strings.Join(path[len(path)-behind:], "/")}
	if behind == segments[toLocked] {
		if hasBody {
			return Request{}, ErrBody
		}
		for _, segment := range path[len(path)-2:] {
			text, err := url.PathUnescape(segment)
			q.Twofold = q.Twofold || err != nil || address.OpaqueFault(text) != ""
		}
		q.Token = path[len(path)-1]
		q.behind = "messages/" + path[len(path)-2] + "/" + q.Token
	} else {
		q.behind = strings.ToLower(q.behind)
	}
	entity, err := address.URLPath("/" + strings.Join(path[:len(path)-behind], "/") + "/") // so that it has no slash more
	if err != nil {
		return Request{}, err
	}
	if q.Address, err = address.OfPath(entity); err != nil {
		return Request{}, err
	}
	switch {
	case q.Address.Node != address.Messages, q.Address.Name == "":
		return Request{}, fmt.Errorf("%w to send to %q or to receive from it", ErrNoMessages, entity)
	case call == SendMessages && !q.Address.TakesMessages():
		return Request{}, fmt.Errorf("%w to send to %q", ErrNoMessages, entity)
	}
	q.Need = Need{q.Address.String(), oneOf}
	return q, nil
}

// URLPath is the path of the URL of q, escaped, in the form that everybody reads alike. It is ""
// for Administer.
func (q *Request) URLPath() string {
	if q.Call == Administer {
		return ""
	}
	return "/" + q.Address.String() + "/" + q.behind
}

// administration is a request about entities. It needs Manage, at the path that it names: SDKs sign
// the URL that they call.
func administration(method, escaped string) (Request, error) {
	path, err := address.URLPath(escaped)
	if err != nil {
		return Request{}, err
	}
	q := Request{Call: Administer, Need: Need{path, sas.Manage}}
	reads := method == http.MethodGet || method == http.MethodHead
	if !reads && method != http.MethodPut && method != http.MethodDelete {
		return Request{}, unlistedCall(method, escaped)
	}
	target := address.TargetAt(path)
	list := false
	switch target.Kind {
	case address.Root, address.NamespaceInfo, address.QueueList, address.TopicList:
		if reads || target.Kind == address.Root && method == http.MethodPut { // which names nothing
			return q, nil
		}
		return Request{}, unlistedCall(method, escaped)
	case address.SubscriptionList, address.RuleList:
		list = true
	}
	at, err := address.OfPath(target.Entity())
	switch ordinary := err == nil && at.SubQueue == address.Main && at.Node == address.Messages; {
	case ordinary && (!list || method != http.MethodDelete):
		q.Address = at
		return q, nil
	case reads: // that there is no such entity is for the namespace to say
		return q, nil
	case err != nil:
		return Request{}, err
	}
	return Request{}, unlistedCall(method, escaped)
}

func unlistedCall(method, escaped string) error {
	return fmt.Errorf("%w: %.20q %.300q", ErrUnlisted, method, escaped)
}
