// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"time"

	"overdue/internal/servicebus/entities"
)

// describe is what the monitor asks how entities were made.
func (s *scene) describe(_ context.Context, name string, _ time.Time) (entities.Info, error) {
	return s.Describe(name)
}

// session puts a message into a session.
func session(id string) string { return `"SessionId":"` + id + `"` }
