// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/httpclient"
)

// healthcheckCommand asks the process that was started with the same settings, which is
// how it finds the port. What is wrong goes to stderr, check by check.
func (p *program) healthcheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask a running Overdue on this machine whether it is ready: exit code 0 or 1",
		Long:  "Asks /readyz of the process that has the same configuration. For images without a shell.",
	}
	load := p.configFlags(cmd, isAdminAddress)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := load()
		if err != nil {
			return err
		}
		addr, err := adminAddress(c, "healthcheck")
		if err != nil {
			return err
		}
		ready, text, err := askReady(cmd.Context(), addr)
		if err != nil {
			return fmt.Errorf("nothing answers on listen.admin, %s: %w", addr, err)
		}
		if !ready {
			return fmt.Errorf("not ready (503 Service Unavailable)\n%s", strings.TrimSpace(text))
		}
		_, err = io.WriteString(p.stdout, text)
		return err
	}
	return cmd
}

func isAdminAddress(path string) bool { return path == "listen.admin" }

// adminAddress is where a process with this configuration is asked, by a command.
func adminAddress(c *config.Config, command string) (string, error) {
	if _, port, err := net.SplitHostPort(c.Listen.Admin); err != nil || port == "0" {
		return "", &config.Error{Err: fmt.Errorf("%s is %s; %s needs to know the port", c.At("listen.admin"), c.Listen.Admin, command)}
	}
	return c.Listen.Admin, nil
}

// askTimeout bounds one question about readiness.
const askTimeout = 3 * time.Second

// thisMachine is the way to an admin port. A proxy of the environment would not get at it.
func thisMachine() *http.Transport { return &http.Transport{DisableKeepAlives: true} }

// askReady asks /readyz. text says what is and what is not, check by check.
func askReady(ctx context.Context, addr string) (ready bool, text string, err error) {
	client := httpclient.New(thisMachine(), askTimeout)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz?verbose", nil)
	if err != nil {
		return false, "", fmt.Errorf("ask http://%s/readyz: %w", addr, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return false, "", err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return false, "", fmt.Errorf("read the answer of %s: %w", addr, err)
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
		return false, "", fmt.Errorf("%s answers %s, which is not Overdue's /readyz", addr, resp.Status)
	}
	return resp.StatusCode == http.StatusOK, string(body), nil
}
