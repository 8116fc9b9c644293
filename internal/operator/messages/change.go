// SPDX-License-Identifier: Apache-2.0

package messages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/operator"
	"overdue/internal/operator/audit"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/failure"
	"overdue/internal/terminal"
)

// ResubmitOptions are those of resubmit.
type ResubmitOptions struct {
	LettersOptions
	To              string
	Copying         dlq.Copying
	BodyFile        string // that holds the body of the copy; "" = none, - = In
	NewIDs, KeepIDs bool
	Resend          bool
	Journal         string
}

// CheckTarget checks the options that resubmit alone has, and fills in the target.
func (o *ResubmitOptions) CheckTarget(place dlq.Place) error {
	switch {
	case o.To == "" && place.Subscription != "":
		return fmt.Errorf("say with --to where: copies that are sent to %s go to all of its subscriptions, those to a queue to nobody else", place.Entity)
	case o.NewIDs && o.KeepIDs:
		return errors.New("--new-ids and --keep-ids are both given; keep one")
	case o.Copying.Body != nil && o.BodyFile != "":
		return errors.New("--body and --body-file are both given; keep one")
	case o.BodyFile == "-" && !o.Yes && !o.Dry:
		return errors.New("--body-file - takes standard input, which leaves no place for an answer; give --yes with it")
	}
	if err := o.Copying.Check("--within", "--ttl", "--delay"); err != nil {
		return err
	}
	if o.BodyFile != "" {
		body, err := readBody(o.BodyFile, o.In)
		if err != nil {
			return err
		}
		o.Copying.Body = new(string(body))
	}
	if o.To != "" {
		return config.CheckEntity(o.To)
	}
	o.To = place.Entity
	return nil
}

// resubmitResult is the JSON form of the command's result.
type resubmitResult struct {
	*survey
	To string `json:"to"`
	dlq.Outcome
}

// newBar returns a bar on stdout for total messages, which shows nothing beside JSON.
func (o *LettersOptions) newBar(stdout io.Writer, verb string, total int) *terminal.Bar {
	if o.JSON {
		return &terminal.Bar{}
	}
	return terminal.NewBar(stdout, os.Getenv, verb, total)
}

// Resubmit surveys, asks, and does it. The connection is one that sends.
func Resubmit(ctx context.Context, conn *operator.Connection, place dlq.Place, o *ResubmitOptions, stdout io.Writer) (err error) {
	var target entities.Info
	if !o.Dry {
		if target, err = targetOf(ctx, conn, o); err != nil {
			return err
		}
	}
	survey, err := surveyLetters(ctx, conn, place, &o.LettersOptions, func(*dlq.Letter) error { return nil })
	if err != nil {
		return err
	}
	r := dlq.Resubmission{Links: conn.Links, Place: place, Copying: o.Copying}
	if err := r.CheckEdits(ctx, survey.Numbers); err != nil { // before the question
		return dlq.Failure(place, err)
	}
	path, err := o.journalPath(conn, place)
	if err != nil {
		return err
	}
	_, statErr := os.Stat(path)
	unfinished := statErr == nil && !o.Dry
	agreed, err := o.agrees(stdout, o.plan(survey), survey)
	if err != nil {
		return err
	}
	if !agreed && (!unfinished || survey.Chosen > 0) {
		if o.JSON {
			return escape.WriteJSON(stdout, resubmitResult{survey, o.To, dlq.NewOutcome()})
		}
		return nil
	}
	journal, err := dlq.OpenJournal(path)
	if err != nil {
		if !errors.Is(err, dlq.ErrTaken) { // with another file copies would be made twice
			err = fmt.Errorf("%w; --journal names another file, on a disk that stays", err)
		}
		return err
	}
	defer func() { err = errors.Join(err, journal.Close()) }()
	out, err := conn.SenderLinks.Sender(ctx, o.To)
	if err != nil {
		return failure.Sending(o.To, err)
	}
	defer out.Close(ctx)
	bar := o.newBar(stdout, "resubmitted", survey.Chosen)
	lock := lockOf(ctx, conn, place)
	r.To, r.IsQueue, r.Out = o.To, target.Kind == entities.Queue, out
	r.Journal, r.Rate, r.Hold, r.Resend = journal, o.Rate, dlq.Hold(lock), o.Resend
	r.Copied = bar.Add
	ended := o.began(audit.Line{Action: "resubmit", To: o.To, Edits: o.Copying.EditNames()}, place, survey)
	outcome, err := r.Run(ctx, survey.Numbers)
	ended(outcome.Copied+outcome.Finished, err)
	bar.End()
	var printed error
	if o.JSON {
		printed = escape.WriteJSON(stdout, resubmitResult{survey, o.To, outcome})
	} else {
		printed = reportResubmission(stdout, o.To, &outcome, err != nil)
	}
	return errors.Join(dlq.Failure(place, err), lockedError(outcome.Locked, lock), unsure(outcome.Unsure), printed)
}

// plan says what is about to happen.
func (o *ResubmitOptions) plan(s *survey) string {
	text := fmt.Sprintf("resubmit %d to %s", s.Chosen, o.To)
	if o.Copying.Delay > 0 {
		text += ", available after " + o.Copying.Delay.String()
	}
	if edited := o.Copying.EditNames(); edited != "" {
		text += ", with edits of " + escape.Text(edited)
	}
	return text
}

// unsure returns the error of dead letters that may have been sent, or nil if there are none.
func unsure(all []int64) error {
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%d may have been sent by a run that was stopped, and received since; they were left as they are: %s. "+
		"If they were not received, --resend sends them; if they were, `overdue dlq purge --number …` takes them off", len(all), numbers(all))
}

// reportResubmission prints the outcome of a resubmission.
func reportResubmission(stdout io.Writer, to string, o *dlq.Outcome, stopped bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d resubmitted to %s.\n", o.Copied, to)
	if o.Finished > 0 {
		fmt.Fprintf(&b, "%d more had been sent by an earlier run, and have been taken off now.\n", o.Finished)
	}
	if len(o.Gone) > 0 {
		fmt.Fprintf(&b, "%d are not there any more: %s.\n", len(o.Gone), numbers(o.Gone))
	}
	if stopped {
		b.WriteString("It goes on where it was when it is started again.\n")
	}
	_, err := stdout.Write([]byte(b.String()))
	return err
}

// numbers lists the first numbers, and counts the rest.
func numbers(all []int64) string {
	const most = 10
	text := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(all[:min(len(all), most)])), ", "), "[]")
	if len(all) > most {
		text += fmt.Sprintf(" and %d more", len(all)-most)
	}
	return text
}

// targetOf reads the settings of the target. If they cannot be read, an option has to say whether
// copies may keep their ids.
func targetOf(ctx context.Context, conn *operator.Connection, o *ResubmitOptions) (entities.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, operator.Timeout)
	defer cancel()
	info, err := conn.Read(ctx, o.To)
	switch {
	case errors.Is(err, entities.ErrNotFound):
		return info, fmt.Errorf("there is no queue or topic %q; create it, or correct the name", o.To)
	case err != nil && !o.NewIDs && !o.KeepIDs:
		return info, fmt.Errorf("it is not known whether %s detects duplicates, and would drop copies that keep their ids: give --new-ids, or --keep-ids if it does not (%w)", o.To, err)
	case err == nil && info.RequiresDuplicateDetection && o.KeepIDs:
		return info, fmt.Errorf("%s detects duplicates and would drop copies that keep their ids; leave --keep-ids out", o.To)
	}
	o.Copying.NewIDs = o.NewIDs || err == nil && info.RequiresDuplicateDetection
	return info, nil
}

// journalPath is a file for each namespace, place and target, so that the next run finds what the
// last one has left.
func (o *ResubmitOptions) journalPath(conn *operator.Connection, place dlq.Place) (string, error) {
	if o.Journal != "" {
		return o.Journal, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for the journal; name one with --journal: %w", err)
	}
	return dlq.JournalFile(filepath.Join(cache, "overdue"), conn.Namespace.Host, place, o.To), nil
}

// Purge surveys, asks, and takes the dead letters off for good.
func Purge(ctx context.Context, conn *operator.Connection, place dlq.Place, o *LettersOptions, stdout io.Writer) error {
	survey, err := surveyLetters(ctx, conn, place, o, func(*dlq.Letter) error { return nil })
	if err != nil {
		return err
	}
	r := purgeResult{survey: survey, Locked: []int64{}, Gone: []int64{}}
	agreed, err := o.agrees(stdout, fmt.Sprintf("purge %d", survey.Chosen), survey)
	if agreed {
		lock := lockOf(ctx, conn, place)
		ended := o.began(audit.Line{Action: "purge"}, place, survey)
		bar := o.newBar(stdout, "purged", survey.Chosen)
		r.Locked, r.Gone, err = dlq.Purge(ctx, conn.Links, place, survey.Numbers, dlq.Hold(lock), o.Rate, func(n int) {
			r.Purged += n
			bar.Add(n)
		})
		ended(r.Purged, err)
		bar.End()
		err = errors.Join(dlq.Failure(place, err), lockedError(r.Locked, lock))
		if !o.JSON {
			fmt.Fprintf(stdout, "%d purged.\n", r.Purged) // a reader that is gone changes nothing
			if len(r.Gone) > 0 {
				fmt.Fprintf(stdout, "%d are not there any more: %s.\n", len(r.Gone), numbers(r.Gone))
			}
		}
	}
	if o.JSON {
		return errors.Join(err, escape.WriteJSON(stdout, r))
	}
	return err
}

// purgeResult is the JSON form of the command's result.
type purgeResult struct {
	*survey
	Purged int     `json:"purged"`
	Locked []int64 `json:"locked"`
	Gone   []int64 `json:"notThere"`
}

// longestLock is the longest lock that Service Bus allows.
const longestLock = 5 * time.Minute

// lockOf is the lock duration of the dead letters of a place; 0 if it is not known.
func lockOf(ctx context.Context, conn *operator.Connection, place dlq.Place) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, operator.Timeout)
	defer cancel()
	info, err := conn.Read(ctx, place.Entity)
	if err != nil {
		return 0
	}
	return info.LockDurationOf(place.Subscription)
}

// lockedError returns the error of dead letters that are locked, or nil if there are none. lock is
// their lock duration; 0 = it is not known.
func lockedError(locked []int64, lock time.Duration) error {
	if len(locked) == 0 {
		return nil
	}
	return fmt.Errorf("%d are locked, by another client or by a run that was killed, and were left: %s; run it again when their locks have lapsed, in %s at most",
		len(locked), numbers(locked), cmp.Or(lock, longestLock))
}
