// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/operator"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/entities"
)

// resubmitOptions are those of resubmit alone.
type resubmitOptions struct {
	dlqOptions
	to              string
	copying         dlq.Copying
	newIDs, keepIDs bool
	resend          bool
	journal         string
}

func (p *program) dlqResubmitCommand() *cobra.Command {
	var o resubmitOptions
	cmd := &cobra.Command{
		Use:   "resubmit queue-or-subscription",
		Short: "Send copies of dead letters back to their queue, or elsewhere, and take them off",
		Long: "Sends a copy of each dead letter through an AMQP endpoint and takes the dead letter off once the broker has the\n" +
			"copy. A copy has the body and the properties of its dead letter, byte for byte, but neither its time to live nor\n" +
			"the deadline that it missed: give it a new one with --within. It says where it comes from in\n" +
			"overdue-resubmitted-* properties.\n\n" +
			"No dead letter is copied twice. What has been sent is in a journal on this machine, so a resubmission that is\n" +
			"stopped, however, goes on where it was when it is started again. Where it was stopped between a send and its\n" +
			"acknowledgement, and no copy is in the target any more, it says so and leaves those dead letters alone\n" +
			"(--resend has them sent).",
		Example: "  overdue dlq resubmit orders --reason TTLExpiredException --within 5m\n" +
			"  overdue dlq resubmit events/Subscriptions/audit --to audit-retries --older-than 1h --rate 20 --yes\n" +
			"  overdue dlq resubmit orders --message-id order-1 --dry-run",
	}
	load := p.configFlags(cmd, func(path string) bool { return path == "namespace" || path == "monitorQueue" })
	o.changeFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.to, "to", "", "queue or topic that gets the copies; by default the queue that they are dead letters of")
	durationVar(f, &o.copying.Within, "within", 0, "deadline of each copy: to be received so long after it is enqueued")
	durationVar(f, &o.copying.TTL, "ttl", 0, "time to live of each copy")
	f.BoolVar(&o.newIDs, "new-ids", false, "give copies message-ids of their own; done anyway where the target detects duplicates")
	f.BoolVar(&o.keepIDs, "keep-ids", false, "keep the message-ids, though it is not known whether the target detects duplicates")
	f.BoolVar(&o.resend, "resend", false, "send what may have been sent by a resubmission that was stopped, too")
	f.StringVar(&o.journal, "journal", "", "file that remembers what has been sent; by default one for each target in the user's cache folder")
	cmd.RunE = p.dlqRun(load, &o.dlqOptions, func(ctx context.Context, c *config.Config, place dlq.Place) error {
		if err := o.check(place); err != nil {
			return &config.Error{Err: err}
		}
		return p.resubmit(ctx, c, place, &o)
	})
	return cmd
}

func (o *resubmitOptions) check(place dlq.Place) error {
	switch {
	case o.to == "" && place.Subscription != "":
		return fmt.Errorf("say with --to where: copies that are sent to %s go to all of its subscriptions, those to a queue to nobody else", place.Entity)
	case o.newIDs && o.keepIDs:
		return errors.New("--new-ids and --keep-ids are both given; keep one")
	case o.copying.Within < 0 || o.copying.Within > 0 && o.copying.Within < time.Millisecond:
		return fmt.Errorf("--within is %s; it must be at least 1ms", o.copying.Within)
	case o.copying.TTL < 0 || o.copying.TTL > 0 && o.copying.TTL < time.Millisecond:
		return fmt.Errorf("--ttl is %s; it must be at least 1ms", o.copying.TTL)
	case o.to != "":
		return config.CheckEntity(o.to)
	}
	o.to = place.Entity
	return nil
}

// resubmitResult is the JSON form of the command's result.
type resubmitResult struct {
	*dlqSurvey
	To       string  `json:"to"`
	Copied   int     `json:"copied"`
	Finished int     `json:"finishedFromEarlier"`
	Unsure   []int64 `json:"unsure"`
	Locked   []int64 `json:"locked"`
	Gone     []int64 `json:"notThere"`
}

// resubmit surveys, asks, and does it.
func (p *program) resubmit(ctx context.Context, c *config.Config, place dlq.Place, o *resubmitOptions) (err error) {
	h, err := operator.ConnectSender(ctx, c, o.endpoint, p.stderr)
	if err != nil {
		return err
	}
	defer h.Close()
	var target entities.Info
	if !o.dry {
		if target, err = targetOf(ctx, h, o); err != nil {
			return err
		}
	}
	survey, err := survey(ctx, h, place, &o.dlqOptions, func(*dlq.Letter) error { return nil })
	if err != nil {
		return err
	}
	path, err := o.journalPath(h, place)
	if err != nil {
		return err
	}
	_, statErr := os.Stat(path)
	unfinished := statErr == nil && !o.dry
	if !p.agrees(&o.dlqOptions, fmt.Sprintf("resubmit %d to %s", survey.Chosen, o.to), survey) && (!unfinished || survey.Chosen > 0) {
		if o.json {
			return escape.WriteJSON(p.stdout, resubmitResult{dlqSurvey: survey, To: o.to, Unsure: []int64{}, Locked: []int64{}, Gone: []int64{}})
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
	out, err := h.SenderLinks.Sender(ctx, o.to)
	if err != nil {
		return sendFailure(o.to, err)
	}
	defer out.Close(ctx)
	bar := p.newBar(o.json, "resubmitted", survey.Chosen)
	lock := lockOf(ctx, h, place)
	r := dlq.Resubmission{
		Links: h.Links, Place: place, Out: out, Copying: o.copying, Journal: journal, Rate: o.rate, Hold: lock.hold(),
		Resend: o.resend, Copied: bar.add,
	}
	if target.Kind == entities.Queue {
		r.Search = o.to
	}
	outcome, err := r.Run(ctx, survey.numbers)
	bar.end()
	if o.json {
		printed := escape.WriteJSON(p.stdout, resubmitResult{survey, o.to, outcome.Copied, outcome.Finished, list(outcome.Unsure), list(outcome.Locked), list(outcome.Gone)})
		return errors.Join(resubmitFailure(place, o.to, err), lock.left(outcome.Locked), unsure(outcome.Unsure), printed)
	}
	printed := p.tell(o.to, &outcome, err != nil)
	return errors.Join(resubmitFailure(place, o.to, err), lock.left(outcome.Locked), unsure(outcome.Unsure), printed)
}

// resubmitFailure says what went wrong at which end.
func resubmitFailure(place dlq.Place, to string, err error) error {
	if sending := (*dlq.SendError)(nil); errors.As(err, &sending) {
		return sendFailure(to, err)
	}
	return dlq.Failure(place, err)
}

// unsure is the error of dead letters that may have been sent; nil without any.
func unsure(all []int64) error {
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%d may have been sent by a run that was stopped, and received since; they were left as they are: %s. "+
		"If they were not received, --resend sends them; if they were, `overdue dlq purge --number …` takes them off", len(all), numbers(all))
}

// list is never null in JSON.
func list(numbers []int64) []int64 { return append([]int64{}, numbers...) }

// tell says what became of the resubmission.
func (p *program) tell(to string, o *dlq.Outcome, stopped bool) error {
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
	_, err := p.stdout.Write([]byte(b.String()))
	return err
}

// numbers are the first of them.
func numbers(all []int64) string {
	const most = 10
	text := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(all[:min(len(all), most)])), ", "), "[]")
	if len(all) > most {
		text += fmt.Sprintf(" and %d more", len(all)-most)
	}
	return text
}

// targetOf is how what gets the copies was made. Where that is not known it is asked whether ids may stay.
func targetOf(ctx context.Context, h *operator.Connection, o *resubmitOptions) (entities.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, operator.Timeout)
	defer cancel()
	info, err := h.Read(ctx, o.to)
	switch {
	case errors.Is(err, entities.ErrNotFound):
		return info, fmt.Errorf("there is no queue or topic %q; create it, or correct the name", o.to)
	case err != nil && !o.newIDs && !o.keepIDs:
		return info, fmt.Errorf("it is not known whether %s detects duplicates, and would drop copies that keep their ids: give --new-ids, or --keep-ids if it does not (%w)", o.to, err)
	case err == nil && info.RequiresDuplicateDetection && o.keepIDs:
		return info, fmt.Errorf("%s detects duplicates and would drop copies that keep their ids; leave --keep-ids out", o.to)
	}
	o.copying.NewIDs = o.newIDs || err == nil && info.RequiresDuplicateDetection
	return info, nil
}

// journalPath is a file for each namespace, place and target, so that what is stopped is found again.
func (o *resubmitOptions) journalPath(h *operator.Connection, place dlq.Place) (string, error) {
	if o.journal != "" {
		return o.journal, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for the journal; name one with --journal: %w", err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", h.Namespace.Host, strings.ToLower(place.String()), strings.ToLower(o.to)))
	return filepath.Join(cache, "overdue", "resubmit-"+hex.EncodeToString(sum[:8])+".db"), nil
}

func (p *program) dlqPurgeCommand() *cobra.Command {
	var o dlqOptions
	cmd := &cobra.Command{
		Use:   "purge queue-or-subscription",
		Short: "Take dead letters off for good",
		Example: "  overdue dlq purge orders --reason TTLExpiredException --older-than 168h\n" +
			"  overdue dlq purge events/Subscriptions/audit --all --yes --rate 0",
	}
	load := p.configFlags(cmd, isNamespace)
	o.changeFlags(cmd)
	cmd.RunE = p.dlqRun(load, &o, func(ctx context.Context, c *config.Config, place dlq.Place) error { return p.purge(ctx, c, place, &o) })
	return cmd
}

func (p *program) purge(ctx context.Context, c *config.Config, place dlq.Place, o *dlqOptions) error {
	h, err := operator.Connect(ctx, c, o.endpoint)
	if err != nil {
		return err
	}
	defer h.Close()
	survey, err := survey(ctx, h, place, o, func(*dlq.Letter) error { return nil })
	if err != nil {
		return err
	}
	r := purgeResult{dlqSurvey: survey, Locked: []int64{}, Gone: []int64{}}
	lock := dlqLock{}
	if p.agrees(o, fmt.Sprintf("purge %d", survey.Chosen), survey) {
		lock = lockOf(ctx, h, place)
		bar := p.newBar(o.json, "purged", survey.Chosen)
		err = dlq.Purge(ctx, h.Links, place, survey.numbers, lock.hold(), o.rate, func(n int) {
			r.Purged += n
			bar.add(n)
		})
		bar.end()
		var locked, gone []int64
		if err == nil {
			locked, gone, err = dlq.Sort(ctx, h.Links, place, survey.numbers)
		}
		r.Locked, r.Gone, err = list(locked), list(gone), errors.Join(dlq.Failure(place, err), lock.left(locked))
		if !o.json {
			fmt.Fprintf(p.stdout, "%d purged.\n", r.Purged) // who reads it may be gone
			if len(gone) > 0 {
				fmt.Fprintf(p.stdout, "%d are not there any more: %s.\n", len(gone), numbers(gone))
			}
		}
	}
	if o.json {
		return errors.Join(err, escape.WriteJSON(p.stdout, r))
	}
	return err
}

// purgeResult is the JSON form of the command's result.
type purgeResult struct {
	*dlqSurvey
	Purged int     `json:"purged"`
	Locked []int64 `json:"locked"`
	Gone   []int64 `json:"notThere"`
}
