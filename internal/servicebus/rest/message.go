// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"crypto/rand"
	"encoding/hex"
	"mime"
	"net/http"
	"strings"
)

// A Message is one message as a request carries it.
type Message struct {
	Body   []byte
	Broker BrokerProperties

	// Properties are the custom ones, the application properties of AMQP. A value is nil, a
	// bool, an int32, an int64, a float64, a string or a time.Time in UTC.
	Properties map[string]any
}

// ParseSend reads a request that sends, whose body has been read: one message, or a batch
// where the Content-Type says so. Errors are ErrBadRequest or ErrTooLarge.
func ParseSend(r *http.Request, body []byte, fixed func(property string) bool) (ms []*Message, batch bool, err error) {
	if err := CheckOnce(r.Header, r.URL.RawQuery); err != nil {
		return nil, false, err
	}
	if mediaType(r.Header.Get("Content-Type")) == BatchContentType {
		ms, err = ParseBatch(body)
		return ms, true, err
	}
	if ms, err = ParseSingle(r.Header, body); err == nil {
		KeepSpelling(r, ms[0].Properties, fixed)
	}
	return ms, false, err
}

// ParseSingle reads a request whose body is one message.
func ParseSingle(h http.Header, body []byte) ([]*Message, error) {
	m := &Message{Body: body}
	var err error
	if m.Broker, err = brokerPropertiesOf(h); err != nil {
		return nil, err
	}
	if m.Broker.ContentType == "" {
		m.Broker.ContentType = h.Get("Content-Type")
	}
	if m.Properties, err = CustomProperties(h); err != nil {
		return nil, err
	}
	return []*Message{m}, m.Broker.check()
}

// NewID is a random UUID, version 4.
func NewID() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // it never fails, says its contract
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	s := hex.EncodeToString(u[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// mediaType is the media type of a Content-Type header without its parameters.
func mediaType(header string) string {
	if t, _, err := mime.ParseMediaType(header); err == nil {
		return t
	}
	return strings.ToLower(strings.TrimSpace(header))
}
