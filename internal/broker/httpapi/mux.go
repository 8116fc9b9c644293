// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/adminapi"
	"overdue/internal/listener"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/rights"
	"overdue/internal/servicebus/sas"
)

// newMux returns the handler of everything that comes over HTTP, but for AMQP over WebSocket.
func (s *Server) newMux() http.Handler {
	admin := adminapi.New(s.namespaceOf, adminapi.Options{Authorizer: adminGate{s}, NotApplied: s.cfg.NotApplied})
	runtime := newREST(s.namespaceOf, restOptions{Authorize: s.mayUse})
	control := s.managed(newControl(s.cfg))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := strings.TrimRight(r.URL.Path, "/"); {
		case r.URL.Path == "/" && r.URL.RawQuery == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
			s.serveAbout(w, r)
		case path == "/health" && r.URL.RawQuery == "": // one with api-version asks for a queue of that name
			s.serveHealth(w, r)
		case strings.HasPrefix(r.URL.Path, ControlPath):
			s.bounded(w, r, control)
		case isREST(r):
			s.bounded(w, r, runtime)
		default:
			s.bounded(w, r, admin)
		}
	})
}

// managed lets those use h who may manage the namespace. People show a key to their browser, which
// then sends it with every request, so what other sites make it send may change nothing. Where
// nobody needs a key, the listener sees to that.
func (s *Server) managed(h http.Handler) http.Handler {
	if s.cfg.Broker.Secured() {
		h = http.NewCrossOriginProtection().Handler(h)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.mayControl(r); err != nil {
			w.Header().Set("WWW-Authenticate", `Basic realm="the name of a key with the claim Manage, and the key", charset="UTF-8"`)
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// bounded lets h answer r, bounds the time for the body, and says what h no
// longer can when the server is being shut down.
func (s *Server) bounded(w http.ResponseWriter, r *http.Request, h http.Handler) {
	if r.Body != http.NoBody {
		control := http.NewResponseController(w)
		// A connection that has no deadlines is one of a test, and has no clients that stall.
		_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
		r.Body = &timedBody{r.Body, control}
	}
	answer := &watched{ResponseWriter: w}
	h.ServeHTTP(answer, r)
	if answer.status == 0 && s.draining.Load() && r.Context().Err() != nil {
		http.Error(answer, "The broker is shutting down.", http.StatusServiceUnavailable)
	}
	s.note(r, answer.status)
}

// note notes a request and how it was answered.
func (s *Server) note(r *http.Request, status int) {
	a := broker.Activity{
		Operation: broker.OnRequest,
		Path:      r.URL.Path,
		Detail:    r.Method,
		Client:    remote(r.RemoteAddr),
	}
	if status >= http.StatusBadRequest {
		a.Namespace = s.namespaceOf(r)
		a.Refusal = amqp.Errorf(amqp.Symbol("http:"+strconv.Itoa(status)), "%s", http.StatusText(status))
		if t, isREST := targetOf(r); isREST && status == refusedConditions[amqp.ErrCondNotFound] {
			a.Path, a.Refusal.Condition = t.need.Path, amqp.ErrCondNotFound
		}
	}
	s.cfg.Broker.Note(a)
}

// remote is the address of a client.
type remote string

func (r remote) String() string { return string(r) }

// A timedBody takes the deadline off when it has been read. It would end the
// request that now waits for a message.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.control.SetReadDeadline(time.Time{}) // as above
	}
	return n, err
}

// A watched answer knows how it has begun.
type watched struct {
	http.ResponseWriter
	status int // 0: it has not
}

func (w *watched) WriteHeader(status int) {
	w.status = cmp.Or(w.status, status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *watched) Write(b []byte) (int, error) {
	w.status = cmp.Or(w.status, http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// serveHealth answers as the official emulator does. It is true: 200 means that
// a client that connects now is served.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	if !forReading(w, r) {
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if s.draining.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"status":"unhealthy","message":"The broker is shutting down."}`+"\n")
		return
	}
	_, _ = io.WriteString(w, `{"status":"healthy","message":"The broker is serving."}`+"\n")
}

// serveAbout answers at the root of the namespace as the service does, with the
// feed of its public services, which lists none. A human who has found the port
// reads in the subtitle what it is.
func (s *Server) serveAbout(w http.ResponseWriter, r *http.Request) {
	version := s.cfg.Version
	if version == "" {
		version = "(unversioned)"
	}
	key := "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE"
	if s.cfg.Broker.Secured() {
		key = "SharedAccessKeyName=<its name>;SharedAccessKey=<one of the broker's keys>"
	}
	about := fmt.Sprintf(`Overdue %s: a broker that speaks Azure Service Bus.

This port takes
  AMQP 1.0                sb://%[2]s
  AMQP over WebSocket     %[2]s%[3]s
  REST and ATOM           http://%[2]s/{entity}
  all of them over TLS    %[4]s
  health                  http://%[2]s/health
  state, clock, faults    http://%[2]s%[5]s

A connection string for every SDK:
  Endpoint=sb://%[2]s;%[6]s;UseDevelopmentEmulator=true;
`, version, r.Host, listener.WebSocketPath, map[bool]string{true: "yes", false: "no: there is no certificate"}[s.cfg.TLS != nil], ControlPath, key)
	adminapi.WritePublicServices(w, r, about)
}

// forReading answers requests that want to change what can only be read.
func forReading(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	http.Error(w, "There is nothing to be changed here.", http.StatusMethodNotAllowed)
	return false
}

// namespaceOf returns the namespace that a request is for: see broker.NamespaceOf.
func (s *Server) namespaceOf(r *http.Request) *broker.Namespace {
	return s.cfg.Broker.NamespaceOf(r.Host, r.Header.Get("Authorization"))
}

// mayUse decides whether a request of the REST runtime API may go on.
func (s *Server) mayUse(r *http.Request, n rights.Need) error {
	return s.admit(r, s.namespaceOf(r).Keys().Authorize(r.Header.Get("Authorization"), n.Path, n.OneOf))
}

// admit passes on what became of a request's token. If the token is valid, the connection has no
// quota any more.
func (s *Server) admit(r *http.Request, err error) error {
	if err == nil {
		listener.Admit(r)
	}
	return err
}

// mayManage decides whether a request may go on that is about what is at path,
// not about its messages; "" is the namespace.
func (s *Server) mayManage(r *http.Request, path string) error {
	return s.admit(r, s.namespaceOf(r).Keys().Authorize(r.Header.Get("Authorization"), path, sas.Manage))
}

// mayControl is mayManage for the namespace, and for people too: a browser shows the name of a key
// and the key, as HTTP Basic has them.
func (s *Server) mayControl(r *http.Request) error {
	name, key, isBasic := r.BasicAuth()
	if !isBasic {
		return s.mayManage(r, "")
	}
	return s.admit(r, s.namespaceOf(r).Keys().AuthorizeKey(name, key, sas.Manage))
}

// adminGate decides whether a request of the administration API may go on. All
// its rights come with the claim Manage.
//
// A token has to be for the path of the request, not for the entity that it is about. The Go SDK
// signs the path of each request, down to a rule or a list. Where the request says that messages be
// forwarded, it has a token for that.
type adminGate struct{ s *Server }

func (g adminGate) Authorize(r *http.Request, path string, right adminapi.Right) error {
	needed := sas.Manage
	if right == adminapi.Forward {
		needed |= sas.Send
	} else {
		var plain error
		if path, plain = address.URLPath(r.URL.EscapedPath()); plain != nil {
			return plain // which the handler has found before
		}
	}
	return g.s.admit(r, g.s.namespaceOf(r).Keys().Authorize(r.Header.Get("Authorization"), path, needed))
}
