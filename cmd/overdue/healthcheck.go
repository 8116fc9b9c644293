// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// healthcheckCommand asks the process that was started with the same settings, which is
// how it finds the port. What is wrong goes to stderr, check by check.
func (p *program) healthcheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask a running Overdue on this machine whether it is ready: exit code 0 or 1",
		Long:  "Asks /readyz of the process that has the same configuration. For images without a shell.",
		Args:  cobra.NoArgs,
	}
	load := p.configFlags(cmd, func(path string) bool { return path == "listen.admin" })
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := load()
		if err != nil {
			return err
		}
		if _, port, err := net.SplitHostPort(c.Listen.Admin); err != nil || port == "0" {
			return &configError{fmt.Errorf("%s is %s; healthcheck needs to know the port", c.at("listen.admin"), c.Listen.Admin)}
		}
		client := http.Client{
			Timeout: 3 * time.Second,
			// The answer comes from this machine; a proxy of the environment would not get at it.
			Transport: &http.Transport{DisableKeepAlives: true},
		}
		req, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, "http://"+c.Listen.Admin+"/readyz?verbose", nil)
		if err != nil {
			return fmt.Errorf("ask http://%s/readyz: %w", c.Listen.Admin, err)
		}
		resp, err := client.Do(req)
		if err != nil {
			return fmt.Errorf("nothing answers on listen.admin, %s: %w", c.Listen.Admin, err)
		}
		defer func() { _ = resp.Body.Close() }() // only read
		body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		if err != nil {
			return fmt.Errorf("read the answer of %s: %w", c.Listen.Admin, err)
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("not ready (%s)\n%s", resp.Status, strings.TrimSpace(string(body)))
		}
		_, err = p.stdout.Write(body)
		return err
	}
	return cmd
}
