// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"testing"

	"overdue/internal/amqp"
)

// The SDKs go back from the status to the condition where they find none, and
// the other way round.
func TestConditionsHaveTheirStatus(t *testing.T) {
	for condition, want := range map[amqp.Symbol]int32{
		condArgumentError: 400, condOutOfRange: 400, condEntityDisabled: 400, amqp.ErrCondNotAllowed: 400,
		amqp.ErrCondUnauthorizedAccess: 401, condAuthFailed: 401,
		amqp.ErrCondResourceLimitExceeded: 403, amqp.ErrCondLinkMessageSizeExceeded: 403,
		amqp.ErrCondNotFound: 404, condMessageNotFound: 404,
		condTimeout: 408, condEntityExists: 409,
		condLockLost: 410, condSessionLockLost: 410, condSessionCannotBeLocked: 410,
		amqp.ErrCondInternalError: 500, amqp.ErrCondNotImplemented: 501, condServerBusy: 503,
	} {
		got := refused(amqp.Errorf(condition, "Why."))
		if got.status != want || got.condition != condition || got.description != "Why." {
			t.Errorf("%s is answered with %d %s %q, want %d", condition, got.status, got.condition, got.description, want)
		}
	}
}
