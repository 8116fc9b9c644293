// SPDX-License-Identifier: Apache-2.0

// Package messages does what the commands of operators do with messages: it sends them, and lists,
// shows, resubmits and purges dead letters. Text for people goes to a writer that is passed in.
package messages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"overdue/internal/operator"
	"overdue/internal/operator/audit"
	"overdue/internal/operator/dlq"
	"overdue/internal/terminal"
)

// LettersOptions filter dead letters. All commands about dead letters have them.
type LettersOptions struct {
	Filter     dlq.Filter // Check adds the deadlines and the properties
	DueBefore  string     // a time, or a duration from now; "" = any deadline
	DueAfter   string     // likewise
	Properties []string   // name=value
	Limit      int        // 0 = all
	GroupBy    string     // of list: "reason", or "" for a line for each dead letter
	JSON       bool
	Endpoint   string // to connect through, host:port; "" = as the configuration says
	Width      int    // of the terminal that shows the result; 0 = it is none

	// Of the commands that change something:
	Asks     bool // it is such a command
	Yes, All bool
	Dry      bool
	Rate     float64 // messages a second; 0 = as fast as possible
	In       io.Reader
	As, Why  string // who does it, and for which reason
	Given    string // the filter, as it was given
	Audit    func(audit.Line)
}

// Check reads the options that are text, and refuses those that are out of bounds or contradict
// each other.
func (o *LettersOptions) Check(now time.Time) (err error) {
	for _, bound := range []struct {
		flag, text string
		to         *time.Time
	}{{"--due-before", o.DueBefore, &o.Filter.DueBefore}, {"--due-after", o.DueAfter, &o.Filter.DueAfter}} {
		if bound.text == "" {
			continue
		}
		if *bound.to, err = instant(bound.text, now); err != nil {
			return fmt.Errorf("%s: %w", bound.flag, err)
		}
	}
	for _, text := range o.Properties {
		name, value, err := property(text)
		if err != nil {
			return err
		}
		if o.Filter.Properties == nil {
			o.Filter.Properties = map[string]string{}
		}
		o.Filter.Properties[name] = value
	}
	switch {
	case o.Asks && o.JSON && !o.Yes && !o.Dry:
		return errors.New("--json leaves no place for a question; give --yes or --dry-run with it")
	case o.Yes && !o.All && !o.Narrows() && !o.Dry:
		return errors.New("--yes without a filter means every dead letter; give --all as well if that is meant")
	}
	return nil
}

// began writes the line of the log about an action that begins. ended writes the one about its end.
func (o *LettersOptions) began(line audit.Line, place dlq.Place, s *survey) (ended func(done int, err error)) {
	line.Event, line.Entity, line.Filter, line.Chosen = audit.Started, place.String(), o.Given, s.Chosen
	line.Person, line.Why = o.As, o.Why
	o.Audit(line)
	return func(done int, err error) {
		line.Event, line.Done, line.Err = audit.Ended, done, err
		o.Audit(line)
	}
}

// Narrows reports whether the options leave any dead letter out.
func (o *LettersOptions) Narrows() bool {
	f := &o.Filter
	return o.Limit > 0 || f.Reason != nil || f.Description != "" || f.OlderThan > 0 || f.YoungerThan > 0 || !f.DueBefore.IsZero() || !f.DueAfter.IsZero() ||
		len(f.MessageIDs) > 0 || len(f.Numbers) > 0 || f.SessionID != nil || len(f.Properties) > 0
}

// List lists the dead letters that match, and counts them by reason.
func List(ctx context.Context, conn *operator.Connection, place dlq.Place, o *LettersOptions, stdout io.Writer) error {
	if o.GroupBy != "" {
		survey, err := surveyLetters(ctx, conn, place, o, func(*dlq.Letter) error { return nil })
		if err != nil {
			return err
		}
		return survey.writeGroups(stdout, o)
	}
	list := newLetterList(stdout, o)
	survey, err := surveyLetters(ctx, conn, place, o, list.add)
	if err != nil {
		return err
	}
	return list.end(survey)
}

// Show shows each dead letter that matches.
func Show(ctx context.Context, conn *operator.Connection, place dlq.Place, o *LettersOptions, stdout io.Writer) error {
	shown := &letterDetails{out: stdout, json: o.JSON}
	survey, err := surveyLetters(ctx, conn, place, o, shown.add)
	if err != nil {
		return err
	}
	if survey.Chosen == 0 {
		return errors.New(noneMatches(survey.Read, place.String()))
	}
	return shown.end()
}

// MaxRate bounds how many messages a command changes in a second.
const MaxRate = 1_000_000

// MaxLetters bounds the dead letters of one command, because their numbers are in memory.
const MaxLetters = 5_000_000

// survey is a [dlq.Survey] that is printed.
type survey struct{ *dlq.Survey }

// surveyLetters reads the dead letters and calls add with those that match.
func surveyLetters(ctx context.Context, conn *operator.Connection, place dlq.Place, o *LettersOptions, add func(*dlq.Letter) error) (*survey, error) {
	now := time.Now()
	most := MaxLetters
	if o.Limit > 0 {
		most = min(most, o.Limit)
	}
	s, err := dlq.Examine(ctx, conn.Links, place, most, func(l *dlq.Letter) bool { return o.Filter.Fits(l, now) }, add)
	if err == nil && s.Read == 0 && conn.IsTopic(ctx, place) {
		return &survey{s}, dlq.NoMessages(place)
	}
	return &survey{s}, dlq.Failure(place, err)
}

// agrees shows the plan and asks. It returns false when nothing is to be done.
func (o *LettersOptions) agrees(stdout io.Writer, what string, s *survey) (bool, error) {
	if o.JSON {
		return !o.Dry && s.Chosen > 0, nil
	}
	s.write(stdout)
	switch {
	case s.Chosen == 0:
		fmt.Fprintln(stdout, "There is nothing to do.") // a reader that is gone shows in the error of the result
		return false, nil
	case o.Dry:
		fmt.Fprintf(stdout, "Without --dry-run this would %s.\n", what)
		return false, nil
	case o.Yes:
		return true, nil
	}
	return terminal.Ask(stdout, o.In, strings.ToUpper(what[:1])+what[1:]+"?")
}
