// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/go-amqp"

	"overdue/internal/servicebus/link"
)

func TestEveryFailureHasItsStatus(t *testing.T) {
	remote := func(condition amqp.ErrCond, description string) error {
		return fmt.Errorf("send: %w", &amqp.LinkError{RemoteErr: &amqp.Error{Condition: condition, Description: description}})
	}
	for _, tt := range []struct {
		name   string
		err    error
		status int
		retry  bool
		want   string // in the sentence
	}{
		{"entity missing at the link", remote(amqp.ErrCondNotFound, ""), http.StatusGone, false, "'orders' could not be found"},
		{"entity missing at $cbs", &link.StatusError{Code: http.StatusNotFound}, http.StatusGone, false, "'orders' could not be found"},
		{"rights", &link.StatusError{Code: http.StatusUnauthorized}, http.StatusUnauthorized, false, "credentials"},
		{"rights at the link", remote(amqp.ErrCondUnauthorizedAccess, ""), http.StatusUnauthorized, false, "credentials"},
		{"timeout", remote("com.microsoft:timeout", ""), http.StatusServiceUnavailable, true, "in time"},
		{"our own timeout", fmt.Errorf("send: %w", context.DeadlineExceeded), http.StatusServiceUnavailable, true, "in time"},
		{"connection", &amqp.ConnError{}, http.StatusServiceUnavailable, true, "connection"},
		{"connection closed over its token", &amqp.ConnError{RemoteErr: &amqp.Error{Condition: amqp.ErrCondUnauthorizedAccess}}, http.StatusServiceUnavailable, true, "connection"},
		{"no connection", fmt.Errorf("%w: dial", link.ErrNoConnection), http.StatusServiceUnavailable, true, "connection"},
		{"closed", link.ErrClosed, http.StatusServiceUnavailable, true, "stopping"},
		{"too large", link.ErrTooLarge, http.StatusForbidden, false, "larger"},
		{"batch too large", remote(amqp.ErrCondMessageSizeExceeded, ""), http.StatusForbidden, false, "larger"},
		{"full", remote(amqp.ErrCondResourceLimitExceeded, ""), http.StatusForbidden, false, "quota"},
		{"disabled", remote("com.microsoft:entity-disabled", ""), http.StatusForbidden, false, "disabled"},
		{"throttled", remote("com.microsoft:server-busy", ""), http.StatusServiceUnavailable, true, "busy"},
		{"no session-id", remote(amqp.ErrCondNotAllowed, "A session id is needed."), http.StatusBadRequest, false, "refused the message: A session id is needed."},
		{"refused without a word", remote(amqp.ErrCondInvalidField, ""), http.StatusBadRequest, false, "The broker refused the message."},
		{"forced detach", remote(amqp.ErrCondDetachForced, ""), http.StatusServiceUnavailable, true, "connection"},
		{"companion", fmt.Errorf("%w: %w", errCompanion, remote(amqp.ErrCondNotFound, "")), http.StatusServiceUnavailable, true, "monitor queue"},
		{"companion timed out", fmt.Errorf("%w: %w", errCompanion, context.DeadlineExceeded), http.StatusServiceUnavailable, true, "monitor queue"},
		{"no place", fmt.Errorf("proxy: %w", errBusy), http.StatusServiceUnavailable, true, "in flight"},
		{"stopping", fmt.Errorf("proxy: %w", errClosed), http.StatusServiceUnavailable, true, "stopping"},
		{"unknown condition", remote("acme:odd", "secret detail"), http.StatusServiceUnavailable, true, "could not be sent"},
		{"unknown", errors.New("odd"), http.StatusServiceUnavailable, true, "could not be sent"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.err
			if !errors.Is(err, errCompanion) && !errors.Is(err, errBusy) && !errors.Is(err, errClosed) {
				err = classify(err)
			}
			if !errors.Is(err, tt.err) {
				t.Errorf("classify lost the error: %v", err)
			}
			status, retryAfter, sentence := answer(err, "orders")
			if status != tt.status || retryAfter > 0 != tt.retry || !strings.Contains(sentence, tt.want) {
				t.Errorf("answer = %d, retry after %d, %q, want %d, retry %v, a sentence with %q",
					status, retryAfter, sentence, tt.status, tt.retry, tt.want)
			}
			if strings.Contains(sentence, "secret") || strings.Contains(sentence, "%s") {
				t.Errorf("the sentence %q says more or less than it should", sentence)
			}
		})
	}
	if err := classify(nil); err != nil {
		t.Errorf("classify(nil) = %v, want nil", err)
	}
}
