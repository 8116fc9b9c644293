// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"overdue/internal/app"
	"overdue/internal/config"
)

// roleTexts are what the commands of the roles say of themselves.
var roleTexts = map[string]struct{ short, long, example string }{
	"run": {
		short: "Run proxy and monitor; without a namespace also the broker",
		long: "Runs proxy and monitor in one process. With no namespace configured it also runs the\n" +
			"embedded broker, whether or not on a terminal, and without --config that broker makes\n" +
			"queues on demand and every queue is monitored. Without --broker-directory it keeps messages in\n" +
			"memory: they are lost at stop. With broker.enabled: false, as by default in the image and as a service, the\n" +
			"command refuses to start without a namespace.",
		example: "  overdue run                         # all on this machine\n" +
			"  overdue run --config overdue.yaml   # see `overdue config example`\n" +
			"  OVERDUE_NAMESPACE=contoso.servicebus.windows.net overdue run"},
	"proxy": {
		short: "Run the proxy alone: the sidecar beside an app",
		long:  "Runs the proxy alone, against a namespace. Somewhere a monitor has to run for that namespace.",
		example: "  overdue proxy --namespace contoso.servicebus.windows.net\n" +
			"  OVERDUE_NAMESPACE_FILE=/run/secrets/servicebus overdue proxy\n" +
			"  overdue proxy --config overdue.yaml --log-level debug"},
	"monitor": {
		short: "Run the monitor alone: for a namespace, any number of replicas",
		long:  "Runs the monitor alone, against a namespace. Replicas share the companions that are due.",
		example: "  overdue monitor --namespace contoso.servicebus.windows.net\n" +
			"  OVERDUE_REDIS=redis://redis:6379 overdue monitor   # one of several"},
	"broker": {
		short: "Run the embedded broker alone: Service Bus on this machine",
		long: "Runs the embedded broker alone: a Service Bus namespace, in memory for tests and local\n" +
			"development, or on disk with --broker-directory. Nothing is monitored. When it serves, it prints a line that begins with\n" +
			"Endpoint= and is the connection string. docs/broker/README.md has more.",
		example: "  overdue broker                                  # queues are made when named\n" +
			"  overdue broker --broker-listen 127.0.0.1:0      # for tests: any free port\n" +
			"  overdue broker --broker-directory /var/overdue  # messages survive a restart\n" +
			"  overdue broker --broker-emulator-config Config.json \\\n    --broker-listen 127.0.0.1:5672 --broker-also-listen 127.0.0.1:5300"},
	"emulator": {
		short: "Run the embedded broker in the place of the official emulator",
		long: "Runs `overdue broker` as its official emulator is run: on 0.0.0.0:5672 and 0.0.0.0:5300, without TLS and keys\n" +
			"(broker.insecure), with the entities of /ServiceBus_Emulator/ConfigFiles/Config.json if there is such a file, and\n" +
			"otherwise those of the emulator's default. It reads CONFIG_PATH, CONFIG_JSON and EMULATOR_HTTP_PORT. Every\n" +
			"setting of the broker counts for more.",
		example: "  overdue emulator\n" +
			"  CONFIG_PATH=Config.json EMULATOR_HTTP_PORT=8080 overdue emulator"},
}

// roleCommand is the command of one role, with the flags that mean something to it.
func (p *program) roleCommand(r config.Role) *cobra.Command {
	text := roleTexts[r.Name]
	cmd := &cobra.Command{Use: r.Name, Short: text.short, Long: text.long, Example: text.example}
	load := p.configFlags(cmd, r.Wants, r.Presets)
	withStdin := cmd.Flags().Bool("stop-with-stdin", false,
		"stop when standard input is closed, as when the parent process is killed")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		fitting := func() (*config.Config, error) {
			c, err := load()
			if err != nil {
				return nil, err
			}
			if err := c.CheckRole(r); err != nil {
				return nil, &config.Error{Err: err}
			}
			return c, nil
		}
		c, err := fitting()
		if err != nil {
			return err
		}
		ctx := cmd.Context()
		if *withStdin && config.ReadsStandardInput() {
			return &config.Error{Err: errors.New("standard input is the configuration, which has ended; --stop-with-stdin needs another place for it")}
		}
		if *withStdin {
			ctx = untilClosed(ctx, cmd.InOrStdin())
		}
		return app.Run(ctx, r, c, fitting, p.stdout, p.stderr)
	}
	return cmd
}

// untilClosed is a context that ends with r, too. Its goroutine may outlive ctx: a read
// of standard input ends when the process does.
func untilClosed(ctx context.Context, r io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, r) // an error is an end, too
		cancel()
	}()
	return ctx
}
