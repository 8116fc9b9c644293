// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/operator"
	"overdue/internal/operator/verify"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/failure"
	"overdue/internal/terminal"
	"overdue/internal/version"
)

// verifyFlags say what becomes of the report.
type verifyFlags struct {
	asJSON, yes, strict bool
	report              string // the file for an issue; "" = none
}

// writeReport writes the report for an issue, if there is a file for it.
func (f *verifyFlags) writeReport(r *verify.Report) error {
	if f.report == "" {
		return nil
	}
	var text bytes.Buffer
	if err := r.WriteMarkdown(&text); err != nil {
		return err
	}
	if err := os.WriteFile(f.report, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return nil
}

func (p *program) verifyCommand() *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify [assumption…]",
		Short: "Try what Overdue assumes of Service Bus, on queues of its own",
		Long: "Tries each assumption about Service Bus that a guarantee rests on, on queues (overdue-verify-…) that it\n" +
			"makes and removes. It says beforehand what that costs, and asks. Without a namespace it tries the broker\n" +
			"at broker.listen. Arguments choose assumptions by their ids; docs/internals/servicebus.md explains each.\n\n" +
			"With --report it also writes a file for an issue of the kind Verify report, which has no name, key or\n" +
			"address. Exit code 1 if an assumption is wrong, or if none could be tried (with --strict: if one could\n" +
			"not), 2 for bad usage or configuration, 0 otherwise.\n" +
			"If queues cannot be removed, they delete themselves after five idle minutes.",
		Example: "  overdue doctor verify --config overdue.yaml --report verify.md\n" +
			"  overdue doctor verify --yes --json > report.json\n" +
			"  overdue doctor verify release-keeps-count dead-letter-number",
		ValidArgs: verify.IDs(),
	}
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print only the report, as JSON")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&f.strict, "strict", false, "also exit with 1 if an assumption could not be tried")
	textVar(cmd.Flags(), &f.report, "report", anyLength, "the file to write the report for an issue to, in Markdown")
	check := func(only []string) error {
		if f.asJSON && !f.yes {
			return errors.New("--json leaves no room for the question; add --yes, or leave out --json")
		}
		return checkAssumptions(only)
	}
	return p.configured(cmd, settings("namespace"), check, func(ctx context.Context, c *config.Config, only []string) error {
		client, err := operator.OpenAny(c)
		if err != nil {
			return err
		}
		defer client.Close(ctx)
		tier, err := administrationTier(ctx, client)
		if err != nil {
			return err
		}
		width := terminal.Width(p.stdout)
		if !f.asJSON {
			if err := verify.Announce(p.stdout, client.Namespace.Host, width, only...); err != nil {
				return err
			}
		}
		if !f.yes {
			if agreed, err := terminal.Ask(p.stdout, cmd.InOrStdin(), "Proceed?"); err != nil || !agreed {
				return err
			}
		}
		return p.verify(ctx, client, tier, only, &f)
	})
}

// checkAssumptions refuses ids of assumptions that do not exist.
func checkAssumptions(ids []string) error {
	all := verify.IDs()
	for _, id := range ids {
		if slices.Contains(all, id) {
			continue
		}
		if near := config.Nearest(id, all); near != "" {
			return fmt.Errorf("there is no assumption %q to try; did you mean %s?", config.Clip(id), near)
		}
		return fmt.Errorf("there is no assumption %q to try; there are %s", config.Clip(id), strings.Join(all, ", "))
	}
	return nil
}

// sdkModule is the SDK that the trials use.
const sdkModule = "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

// verify tries assumptions, prints the report, and writes the one for an issue.
func (p *program) verify(ctx context.Context, client *operator.Client, tier string, only []string, f *verifyFlags) error {
	admin, err := client.Administration()
	if err != nil {
		return err
	}
	if err := f.writeReport(&verify.Report{}); err != nil { // before the trials, which take minutes
		return &config.Error{Err: err}
	}
	bar := terminal.NewBar(p.stderr, p.getenv, "tried", verify.Count(only))
	report, failed := verify.Try(ctx, verify.Config{
		Client: client.SDK, Links: client.Links, Admin: admin, Done: func(*verify.Result) { bar.Add(1) },
	}, only...)
	bar.End()
	report.Version, report.SDK, report.Tier = version.String(), "azservicebus "+version.Module(sdkModule), tier
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted; the queues have been removed, or delete themselves after five idle minutes: %w", failed)
	}
	err = p.print(f.asJSON, report, func(w io.Writer, width int) error {
		return report.WriteText(terminal.Raw(w), terminal.Colored(w, p.getenv), width)
	})
	return errors.Join(err, f.writeReport(report), failed, report.Err(f.strict))
}

// administrationTier asks the administration API for the tier. Its first answer shows where it is.
func administrationTier(ctx context.Context, client *operator.Client) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, operator.Timeout)
	defer cancel()
	tier, err := client.Admin.Tier(ctx)
	if unreachable := failure.Unreachable(err); unreachable != nil {
		return "", unreachable
	}
	if errors.Is(err, entities.ErrNoRight) || len(client.Admin.Endpoints) == 0 {
		return "", fmt.Errorf("making queues needs the Manage right over the administration API: %s", failure.Reason(err))
	}
	return tier, nil // an emulator may not say it
}
