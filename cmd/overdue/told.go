// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"overdue/alert"
	"overdue/internal/httpclient"
)

// toldMost is how many events a process remembers to have told of: a page of recent history for who asks, about a MiB.
const toldMost = 2000

// A toldLog remembers who was told of the last events. A nil one remembers nothing.
type toldLog struct {
	mu   sync.Mutex
	ring []*telling // the oldest is at next, once it is full
	next int
	byID map[string]*telling
}

// telling is one event and the sinks that have taken it.
type telling struct {
	Event alert.Event `json:"event"`
	By    []toldBy    `json:"told"`
}

type toldBy struct {
	Sink string    `json:"sink"`
	Time time.Time `json:"time"`
}

// watch is a, with what it takes remembered.
func (l *toldLog) watch(a alert.Alerter) alert.Alerter { return watchedSink{a, l} }

type watchedSink struct {
	alert.Alerter
	log *toldLog
}

// Unwrap is the Alerter that is watched.
func (w watchedSink) Unwrap() alert.Alerter { return w.Alerter }

func (w watchedSink) Alert(ctx context.Context, e alert.Event) error {
	err := w.Alerter.Alert(ctx, e)
	if err == nil {
		w.log.add(e, w.Name(), time.Now().UTC())
	}
	return err
}

func (l *toldLog) add(e alert.Event, sink string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.byID[e.ID]; t != nil {
		t.By = append(t.By, toldBy{sink, at})
		return
	}
	t := &telling{e, []toldBy{{sink, at}}}
	if len(l.ring) < toldMost {
		if l.byID == nil {
			l.byID = map[string]*telling{}
		}
		l.ring = append(l.ring, t)
	} else {
		delete(l.byID, l.ring[l.next].Event.ID)
		l.ring[l.next] = t
		l.next = (l.next + 1) % toldMost
	}
	l.byID[e.ID] = t
}

// of are the events about messages with that id, or all for "", the latest first, a hundred at most.
func (l *toldLog) of(messageID string) []telling {
	all := []telling{}
	if l == nil {
		return all
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.ring {
		t := l.ring[(l.next+len(l.ring)-1-i)%len(l.ring)]
		if messageID != "" && t.Event.Data.MessageID != messageID {
			continue
		}
		if all = append(all, telling{t.Event, slices.Clone(t.By)}); len(all) == 100 {
			break
		}
	}
	return all
}

// showTold answers with what the monitor of this process has told lately.
func (a *admin) showTold(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = writeJSON(w, a.told.Load().of(r.URL.Query().Get("message-id"))) // the caller's loss
}

// toldEvent is a told event as another process reads it.
type toldEvent struct {
	Event struct {
		ID   string          `json:"id"`
		Type string          `json:"type"`
		Data alert.EventData `json:"data"`
	} `json:"event"`
	By []toldBy `json:"told"`
}

// askTold asks the process at an admin port what it has told of messages with that id.
func askTold(ctx context.Context, addr, messageID string) (all []toldEvent, err error) {
	client := httpclient.New(thisMachine(), askTimeout)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/told?message-id="+url.QueryEscape(messageID), nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it has been read
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %s", resp.Status)
	}
	const most = 4 << 20
	if err := json.NewDecoder(io.LimitReader(resp.Body, most)).Decode(&all); err != nil {
		return nil, err
	}
	return all, nil
}
