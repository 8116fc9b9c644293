// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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

func (p *program) verifyCommand() *cobra.Command {
	var asJSON, yes, strict bool
	cmd := &cobra.Command{
		Use:   "verify [assumption…]",
		Short: "Try what Overdue assumes of Service Bus, on queues of its own",
		Long: "Tries each assumption about Service Bus that a guarantee rests on, on queues (overdue-verify-…) that it\n" +
			"makes and removes. It says beforehand what that costs, and asks. Without a namespace it tries the broker\n" +
			"at broker.listen. Arguments choose assumptions by their ids; docs/internals/servicebus.md explains each.\n\n" +
			"The report has no names of the namespace, so it can be attached to an issue. Exit code 1 if an assumption\n" +
			"is wrong, or if none could be tried (with --strict: if one could not), 2 for bad usage or configuration, 0\n" +
			"otherwise.\n" +
			"If queues cannot be removed, they delete themselves after five idle minutes.",
		Example: "  overdue doctor verify --namespace contoso.servicebus.windows.net\n" +
			"  overdue doctor verify --yes --json > report.json\n" +
			"  overdue doctor verify release-keeps-count dead-letter-number",
		ValidArgs: verify.IDs(),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print only the report, as JSON")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&strict, "strict", false, "also exit with 1 if an assumption could not be tried")
	check := func(only []string) error {
		if asJSON && !yes {
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
		if !asJSON {
			if err := verify.Announce(p.stdout, client.Namespace.Host, width, only...); err != nil {
				return err
			}
		}
		if !yes {
			if agreed, err := terminal.Ask(p.stdout, cmd.InOrStdin(), "Proceed?"); err != nil || !agreed {
				return err
			}
		}
		return p.verify(ctx, client, tier, only, asJSON, strict)
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

// verify tries assumptions and prints the report.
func (p *program) verify(ctx context.Context, client *operator.Client, tier string, only []string, asJSON, strict bool) error {
	admin, err := client.Administration()
	if err != nil {
		return err
	}
	bar := terminal.NewBar(p.stderr, p.getenv, "tried", verify.Count(only))
	report, failed := verify.Try(ctx, verify.Config{
		Client: client.SDK, Links: client.Links, Admin: admin, Done: func(*verify.Result) { bar.Add(1) },
	}, only...)
	bar.End()
	report.Version, report.Tier = version.String(), tier
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted; the queues have been removed, or delete themselves after five idle minutes: %w", failed)
	}
	err = p.print(asJSON, report, func(w io.Writer, width int) error {
		return report.WriteText(terminal.Raw(w), terminal.Colored(w, p.getenv), width)
	})
	return errors.Join(err, failed, report.Err(strict))
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
