// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/escape"
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
		Example: "  overdue verify --namespace contoso.servicebus.windows.net\n" +
			"  overdue verify --yes --json > report.json\n" +
			"  overdue verify release-keeps-count dead-letter-number",
		ValidArgs: verify.IDs(),
	}
	load := p.configFlags(cmd, func(path string) bool { return path == "namespace" })
	cmd.Flags().BoolVar(&asJSON, "json", false, "print only the report, as JSON")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&strict, "strict", false, "also exit with 1 if an assumption could not be tried")
	cmd.RunE = func(cmd *cobra.Command, only []string) error {
		if asJSON && !yes {
			return &config.Error{Err: errors.New("--json leaves no room for the question; add --yes, or leave out --json")}
		}
		if err := checkAssumptions(only); err != nil {
			return err
		}
		c, err := load()
		if err != nil {
			return err
		}
		open := operator.Open
		if c.Embedded() {
			open = operator.OpenEmbedded
		}
		client, err := open(c)
		if err != nil {
			return err
		}
		defer client.Close(cmd.Context())
		tier, err := administrationTier(cmd.Context(), client)
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
		return p.verify(cmd.Context(), client, tier, only, asJSON, strict)
	}
	return cmd
}

// checkAssumptions refuses ids of assumptions that do not exist.
func checkAssumptions(ids []string) error {
	for _, id := range ids {
		if !slices.Contains(verify.IDs(), id) {
			return &config.Error{Err: unknownAssumption(id)}
		}
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
	if asJSON {
		err = escape.WriteJSON(p.stdout, report)
	} else {
		err = report.WriteText(terminal.Raw(p.stdout), terminal.Colored(p.stdout, p.getenv), terminal.Width(p.stdout))
	}
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

func unknownAssumption(id string) error {
	if near := config.Nearest(id, verify.IDs()); near != "" {
		return fmt.Errorf("there is no assumption %q to try; did you mean %s?", config.Clip(id), near)
	}
	return fmt.Errorf("there is no assumption %q to try; there are %s", config.Clip(id), strings.Join(verify.IDs(), ", "))
}
