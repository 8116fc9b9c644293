// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"overdue/monitor/mute"
)

func TestAQueueIsMutedOnItsPage(t *testing.T) {
	withActions(t, func(s *actionScene) {
		var inForce []mute.Mute
		s.source.Mutes = func(context.Context) ([]mute.Mute, error) { return inForce, nil }
		s.source.Namespace.Actions.Mute = func(_ context.Context, m mute.Mute, span time.Duration) (mute.Mute, error) {
			if span == 0 && inForce == nil {
				return m, mute.ErrNotMuted
			}
			if inForce = nil; span > 0 {
				m.Until = time.Now().Add(span)
				inForce = []mute.Mute{m}
			}
			return m, nil
		}
		s.Dashboard = New(s.source)
		wantText(s.T, s.page(200, "mute?entity=orders"), "For how long", `name="token"`)
		for name, refused := range map[string]url.Values{
			"a wrong token":  {"entity": {"orders"}, "for": {"2h"}, "token": {"wrong"}},
			"no duration":    {"entity": {"orders"}, "for": {"long"}, "token": {token}},
			"no reason":      {"entity": {"orders"}, "for": {"2h"}, "token": {token}, "why": {""}},
			"a long one":     {"entity": {"orders"}, "for": {"31d"}, "token": {token}},
			"no entity name": {"entity": {""}, "for": {"2h"}, "token": {token}},
		} {
			if w := s.post("mute", refused); w.Code < 400 || w.Code >= 500 || !strings.Contains(w.Body.String(), `role="alert"`) || len(inForce) > 0 {
				s.Errorf("with %s: %d, muted: %v; want it refused:\n%s", name, w.Code, inForce, w.Body)
			}
		}
		wantText(s.T, s.post("mute", url.Values{"entity": {"orders"}, "for": {"31d"}}).Body.String(), "from 1s to 30d,")
		if w := s.post("mute", url.Values{"entity": {"orders"}, "for": {"30d"}, "token": {token}}); w.Code != http.StatusSeeOther {
			s.Fatalf("POST mute = %d, want 303:\n%s", w.Code, w.Body)
		}
		wantText(s.T, s.page(200, "mute?entity=orders"), "Muted until 31 Jan 00:00 UTC", "by anna: a test", "End the mute")
		if w := s.post("mute", url.Values{"entity": {"orders"}, "end": {"1"}, "token": {token}}); w.Code != http.StatusSeeOther || len(inForce) > 0 {
			s.Errorf("POST mute with end = %d, muted: %v; want it ended:\n%s", w.Code, inForce, w.Body)
		}
		w := s.post("mute", url.Values{"entity": {"orders"}, "end": {"1"}, "token": {token}})
		if w.Code != http.StatusConflict {
			s.Errorf("POST mute with end where nothing is muted = %d, want 409", w.Code)
		}
		wantText(s.T, w.Body.String(), `role="alert">orders is not muted, so there is no mute to end<`, "For how long")
		want := []string{
			`refused mute orders to "" filter "" by anna for "a test": 0 of 0, ` + errToken.Error(),
			`started mute orders to "" filter "" by anna for "a test": 0 of 0, <nil>`,
			`ended mute orders to "" filter "" by anna for "a test": 0 of 0, <nil>`,
			`started unmute orders to "" filter "" by anna for "a test": 0 of 0, <nil>`,
			`ended unmute orders to "" filter "" by anna for "a test": 0 of 0, <nil>`,
			`started unmute orders to "" filter "" by anna for "a test": 0 of 0, <nil>`,
			`ended unmute orders to "" filter "" by anna for "a test": 0 of 0, it is not muted`,
		}
		if got := s.events(); !slices.Equal(got, want) {
			s.Errorf("audit = %q, want %q", got, want)
		}
		s.source.Mutes = func(context.Context) ([]mute.Mute, error) { return nil, errors.New("no look") }
		wantText(s.T, s.page(502, "mute?entity=orders"), "no look", "For how long")
	})
}

func TestADashboardThatOnlyReadsMutesNothing(t *testing.T) {
	withNamespace(t, func(s *namespaceScene) {
		body := s.page(403, "mute?entity=orders")
		wantText(s.T, body, "only reads")
		if strings.Contains(body, "<form") {
			s.Errorf("the page has a form:\n%s", body)
		}
	})
}
