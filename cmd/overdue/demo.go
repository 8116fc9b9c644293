// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/demo"
)

// demoCommand prints the result on stdout, as a table or as JSON, and fails when the
// watched half did not do its job.
func (p *program) demoCommand() *cobra.Command {
	var asJSON, onWeb bool
	var n int
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show lazy and eager expiry side by side, on an embedded broker",
		Long: "Starts an embedded broker and Overdue in this process, on free ports of loopback, sends the\n" +
			"same messages to a watched and an unwatched queue that nobody receives from, and shows\n" +
			"when they reach the dead-letter queue. Takes about ten seconds and leaves nothing behind. With --web the\n" +
			"dashboard opens in the browser and shows both queues side by side, until you press Ctrl-C.",
		Example: "  overdue demo\n  overdue demo --web",
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	cmd.Flags().BoolVar(&onWeb, "web", false, "open the dashboard, and keep everything until Ctrl-C")
	numberVar(cmd.Flags(), &n, "messages", 300, 1, 5000, "messages per queue")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if asJSON && onWeb {
			return &config.Error{Err: errors.New("--json and --web are both given; keep one")}
		}
		screen := demo.NewScreen(p.stdout, p.getenv)
		if asJSON {
			screen = demo.NoScreen{}
		}
		var result *demo.Result
		var err error
		if onWeb {
			result, err = demo.RunWeb(cmd.Context(), n, screen, p.stderr, p.showDashboard)
		} else {
			result, err = demo.Run(cmd.Context(), n, screen, p.stderr)
		}
		if err != nil {
			return err
		}
		if asJSON {
			err = result.WriteJSON(p.stdout)
		} else {
			err = result.WriteTable(p.stdout)
		}
		return errors.Join(err, result.Verdict())
	}
	return cmd
}

// showDashboard prints where the dashboard is, and opens it where there is a browser.
func (p *program) showDashboard(url, token string) {
	fmt.Fprintf(p.stdout, "Dashboard: %s\nToken for its actions: %s\nCtrl-C ends the demo.\n\n", url, token)
	var open *exec.Cmd
	switch {
	case runtime.GOOS == "darwin":
		open = exec.Command("open", url)
	case runtime.GOOS == "windows":
		open = exec.Command("rundll32", "url.dll,FileProtocolHandler", url)
	case p.getenv("DISPLAY") != "" || p.getenv("WAYLAND_DISPLAY") != "":
		open = exec.Command("xdg-open", url)
	default:
		return // a server, or a container
	}
	if open.Start() == nil { // where that fails, the address is on the screen
		go func() { _ = open.Wait() }()
	}
}
