// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/protobuf/encoding/protowire"

	"overdue/internal/escape"
	"overdue/internal/httpclient"
)

const (
	maxAnswer     = 64 << 10 // of an answer, in bytes
	maxQuote      = 200      // of an answer in an error, in characters
	maxRetryAfter = 60       // seconds that a receiver can ask to wait
)

// A partialError says that the receiver has refused some spans for good.
type partialError struct {
	rejected int64
	text     string
}

func (e *partialError) Error() string {
	return fmt.Sprintf("the receiver refused some spans (%d): %s", e.rejected, quote(e.text))
}

// poster posts to one receiver. gRPC is HTTP/2 with a length before each message and a status
// after them.
type poster struct {
	cfg    Config
	agent  string
	client *http.Client
}

func newPoster(cfg Config, version string) (func(context.Context, []byte) error, error) {
	transport := httpclient.Transport()
	transport.MaxIdleConnsPerHost, transport.MaxConnsPerHost = 1, 1
	transport.MaxResponseHeaderBytes = 32 << 10
	if cfg.Protocol == protocolGRPC {
		transport.Protocols = &http.Protocols{}
		transport.Protocols.SetHTTP2(true)
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.Certificate != "" {
		text, err := os.ReadFile(cfg.Certificate)
		if err != nil {
			return nil, fmt.Errorf("traces: OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		if trust.RootCAs = x509.NewCertPool(); !trust.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("traces: OTEL_EXPORTER_OTLP_CERTIFICATE: %s has no certificate in PEM", cfg.Certificate)
		}
	}
	if cfg.ClientCert != "" {
		pair, err := tls.LoadX509KeyPair(cfg.ClientCert, cfg.ClientKey)
		if err != nil {
			return nil, fmt.Errorf("traces: OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: %w", err)
		}
		trust.Certificates = []tls.Certificate{pair}
	}
	transport.TLSClientConfig = trust
	p := &poster{cfg: cfg, agent: "Overdue/" + version, client: httpclient.New(transport, 0)}
	if cfg.Protocol == protocolGRPC {
		return p.grpc, nil
	}
	return p.http, nil
}

// grpcPrefix is whether a message is compressed, in one byte, and its length in four
// (github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md).
const grpcPrefix = 5

func (p *poster) grpc(ctx context.Context, body []byte) error {
	framed := make([]byte, grpcPrefix, grpcPrefix+len(body))
	header := http.Header{"Content-Type": {"application/grpc+proto"}, "Te": {"trailers"}}
	packed, err := p.pack(body)
	if err != nil {
		return backoff.Permanent(err)
	}
	if p.cfg.Gzip {
		framed[0] = 1
		header.Set("Grpc-Encoding", "gzip")
	}
	binary.BigEndian.PutUint32(framed[1:], uint32(len(packed)))
	resp, answer, err := p.send(ctx, header, append(framed, packed...))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return statusError(resp, answer)
	}
	status := resp.Trailer
	if status.Get("Grpc-Status") == "" { // there was no message, so the trailers came first
		status = resp.Header
	}
	code, err := strconv.Atoi(status.Get("Grpc-Status"))
	if err != nil {
		return backoff.Permanent(errors.New("traces: the receiver does not speak gRPC: OTEL_EXPORTER_OTLP_PROTOCOL may be wrong"))
	}
	if code != 0 {
		text, unescapeErr := url.PathUnescape(status.Get("Grpc-Message"))
		if unescapeErr != nil {
			text = status.Get("Grpc-Message")
		}
		err = fmt.Errorf("traces: the receiver answered gRPC status %d: %s", code, quote(text))
		if !retryable(code) {
			return backoff.Permanent(err)
		}
		return err
	}
	return partial(message(answer))
}

// message returns the message of an answer over gRPC, nil if it cannot be read: the spans have been
// taken all the same.
func message(answer []byte) []byte {
	if len(answer) < grpcPrefix {
		return nil
	}
	if answer[0] == 0 {
		return answer[grpcPrefix:]
	}
	z, err := gzip.NewReader(bytes.NewReader(answer[grpcPrefix:])) // as the request was
	if err != nil {
		return nil
	}
	unpacked, err := io.ReadAll(io.LimitReader(z, maxAnswer))
	if err != nil {
		return nil
	}
	return unpacked
}

// retryable reports whether a status of gRPC allows a retry (OTLP specification, "Failures").
func retryable(code int) bool {
	switch code {
	case 1, 4, 8, 10, 11, 14, 15: // cancelled, deadline exceeded, resource exhausted, aborted, out of range, unavailable, data loss
		return true
	}
	return false
}

func (p *poster) http(ctx context.Context, body []byte) error {
	packed, err := p.pack(body)
	if err != nil {
		return backoff.Permanent(err)
	}
	header := http.Header{"Content-Type": {"application/x-protobuf"}}
	if p.cfg.Gzip {
		header.Set("Content-Encoding", "gzip")
	}
	resp, answer, err := p.send(ctx, header, packed)
	switch {
	case err != nil:
		return err
	case resp.StatusCode/100 == 2:
		return partial(answer)
	}
	return statusError(resp, answer)
}

func (p *poster) pack(body []byte) ([]byte, error) {
	if !p.cfg.Gzip {
		return body, nil
	}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(body); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// send makes one request and reads the answer to its end.
func (p *poster) send(ctx context.Context, header http.Header, body []byte) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.Timeout, fmt.Errorf("no answer within %v", p.cfg.Timeout))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return nil, nil, backoff.Permanent(errors.New("traces: the address of the receiver cannot be read"))
	}
	for name, value := range p.cfg.Headers {
		req.Header.Set(name, value)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("User-Agent", p.agent)
	resp, err := p.client.Do(req)
	if err == nil {
		defer func() { _ = resp.Body.Close() }()
		var answer []byte
		if answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err == nil {
			return resp, answer, nil
		}
	}
	// The text of a url.Error names the whole URL, which may hold a secret.
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return nil, nil, fmt.Errorf("traces: %w", err)
}

// statusError returns the error of an answer with a status that is none of success.
func statusError(resp *http.Response, answer []byte) error {
	err := fmt.Errorf("traces: the receiver answered %s: %s", quote(resp.Status), quote(string(answer)))
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if seconds, bad := strconv.Atoi(resp.Header.Get("Retry-After")); bad == nil && seconds > 0 {
			return fmt.Errorf("%w: %w", err, backoff.RetryAfter(min(seconds, maxRetryAfter)))
		}
		return err
	}
	return backoff.Permanent(err)
}

// quote returns what an error shows of an answer.
func quote(answer string) string {
	text := []rune(strings.Join(strings.Fields(strings.ToValidUTF8(answer, "\uFFFD")), " "))
	return escape.Text(string(text[:min(len(text), maxQuote)]))
}

// partial reads an ExportTraceServiceResponse (opentelemetry/proto/collector/trace/v1). One that
// cannot be read says nothing.
func partial(answer []byte) error {
	e := partialError{}
	eachField(answer, func(number protowire.Number, v []byte, _ uint64) {
		if number != 1 {
			return
		}
		eachField(v, func(number protowire.Number, v []byte, n uint64) {
			switch number {
			case 1:
				e.rejected = int64(min(n, 1<<62))
			case 2:
				e.text = string(v)
			}
		})
	})
	if e.rejected == 0 { // a text alone is advice
		return nil
	}
	return backoff.Permanent(&e)
}

// eachField calls f with the fields of a message, until one cannot be read.
func eachField(b []byte, f func(number protowire.Number, v []byte, n uint64)) {
	for len(b) > 0 {
		number, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return
		}
		b = b[size:]
		value := protowire.ConsumeFieldValue(number, kind, b)
		if value < 0 {
			return
		}
		switch kind {
		case protowire.BytesType:
			v, _ := protowire.ConsumeBytes(b)
			f(number, v, 0)
		case protowire.VarintType:
			n, _ := protowire.ConsumeVarint(b)
			f(number, nil, n)
		}
		b = b[value:]
	}
}
