// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxQuoted bounds the part of an answer that an error quotes, in bytes.
const maxQuoted = 60

// maxAnswer bounds an answer of the child, in bytes: a thousand of the largest messages, escaped.
const maxAnswer = 512 << 20

// get requests a path of the child over HTTP.
func (c *child) get(ctx context.Context, addr, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", path, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", path, err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask for %s: %s: %q", path, resp.Status,
			body[:min(len(body), maxQuoted)])
	}
	return body, nil
}

// metrics are the child's samples, by name and labels as /metrics writes them.
func (c *child) metrics(ctx context.Context) (map[string]float64, error) {
	text, err := c.get(ctx, c.admin, "/metrics")
	if err != nil {
		return nil, err
	}
	samples := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			if v, err := strconv.ParseFloat(line[i+1:], 64); err == nil {
				samples[line[:i]] = v
			}
		}
	}
	return samples, nil
}

// The samples of /metrics that measurements use.
const (
	sampleMemory     = "process_resident_memory_bytes"
	sampleCPU        = "process_cpu_seconds_total"
	sampleOperations = `overdue_broker_operations_total{operation="`
	// of the directory of an embedded broker
	sampleCommits       = "overdue_broker_store_commits_total"
	sampleCommitSeconds = "overdue_broker_store_commit_seconds" // a histogram
)

func mebibytes(bytes float64) float64 { return float64(int(bytes/(1<<20)*10+0.5)) / 10 }

// operationsBetween returns the operations between two readings of the metrics, by kind, and per
// message for n messages.
func operationsBetween(before, after map[string]float64, n int) (byKind map[string]int, each float64) {
	byKind = map[string]int{}
	total := 0
	for name, v := range after {
		if kind, ok := strings.CutPrefix(name, sampleOperations); ok {
			if n := int(v - before[name]); n > 0 {
				byKind[strings.TrimSuffix(kind, `"}`)] = n
				total += n
			}
		}
	}
	return byKind, rounded(float64(total) / float64(n))
}

// resident returns the child's resident memory, in bytes, mostly without a request to the child.
func (c *child) resident(ctx context.Context) (float64, error) {
	if stat, ok := processStat(c.cmd.Process.Pid); ok {
		return float64(stat.ResidentMemory()), nil
	}
	samples, err := c.metrics(ctx)
	return samples[sampleMemory], err
}

// queueCounts are the numbers of messages in a queue, as the broker counts them. Reading them is
// not a receive and moves no message.
type queueCounts struct {
	Path                                    string
	Active, Deferred, Scheduled, DeadLetter int
}

// counts returns the counts of all queues, by path.
func (c *child) counts(ctx context.Context) (map[string]queueCounts, error) {
	text, err := c.get(ctx, c.broker, "/_overdue/entities")
	if err != nil {
		return nil, err
	}
	var list []queueCounts
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read the broker's entities: %w", err)
	}
	all := map[string]queueCounts{}
	for _, q := range list {
		all[q.Path] = q
	}
	return all, nil
}

// A deadLetter is a dead letter with the stamps of the broker.
type deadLetter struct {
	SequenceNumber   int64
	MessageID        string
	EnqueuedTime     time.Time
	DeadLetteredTime time.Time
}

// deadLetters returns all messages of the queue's dead-letter queue.
func (c *child) deadLetters(ctx context.Context, queue string) ([]deadLetter, error) {
	const page = 1000
	var all []deadLetter
	for from := int64(0); ; {
		text, err := c.get(ctx, c.broker,
			fmt.Sprintf("/_overdue/messages/%s/%s?from=%d&max=%d", queue,
				url.PathEscape("$DeadLetterQueue"), from, page))
		if err != nil {
			return nil, err
		}
		var letters []deadLetter
		if err := json.Unmarshal(text, &letters); err != nil {
			return nil, fmt.Errorf("read the dead letters: %w", err)
		}
		if len(letters) == 0 {
			return all, nil
		}
		all = append(all, letters...)
		from = letters[len(letters)-1].SequenceNumber + 1
	}
}

// unknownBetween returns how many deadlines the monitor counted as unknown between two reads of the
// metrics.
func unknownBetween(before, after map[string]float64) (n int) {
	for name, v := range after {
		if strings.HasPrefix(name, "overdue_deadlines_total{") && strings.Contains(name, `verdict="unknown"`) {
			n += int(v - before[name])
		}
	}
	return n
}
