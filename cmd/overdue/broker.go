// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"overdue/internal/broker/directory"
	"overdue/internal/config"
	"overdue/internal/plural"
	"overdue/internal/terminal"
)

// brokerCommand runs the embedded broker alone. The commands below it work on its directory.
func (p *program) brokerCommand() *cobra.Command {
	cmd := p.roleCommand(config.RoleBroker)
	cmd.AddCommand(p.brokerBackupCommand())
	addHidden(cmd, p.brokerCheckCommand()) // for those who restore a copy, and the page about that names it
	return cmd
}

func (p *program) brokerCheckCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check directory",
		Short: "Read all of a broker's directory, and say what is in it",
		Long: "Reads every entity and every message of a directory that broker.directory named, and prints the counts of\n" +
			"each entity. It changes nothing. No process may have the directory meanwhile.\n\n" +
			"Exit code 1 if the directory is damaged or cannot be read.",
		Example: "  overdue broker check /var/lib/overdue/broker",
	}
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		contents, err := directory.Check(args[0])
		if contents == nil {
			return err
		}
		err = errors.Join(err, p.print(asJSON, contents, func(w io.Writer, width int) error { return writeContents(w, contents, width) }))
		return err
	}
	return cmd
}

func writeContents(w io.Writer, c *directory.Contents, width int) error {
	t := terminal.NewTable(width, "ENTITY:20", "ACTIVE", "SCHEDULED", "DEFERRED", "DEAD", "BYTES")
	for _, e := range c.Entities {
		name := e.Path
		if e.Namespace != "" {
			name = e.Namespace + ": " + name
		}
		t.Add(name, e.Active, e.Scheduled, e.Deferred, e.DeadLettered, e.Bytes)
	}
	if err := t.Flush(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s: %s, %s of %d bytes; %d bytes on disk.\n", c.Directory, plural.Of(len(c.Entities), "entity", "entities"),
		plural.Of(c.Total.Messages(), "message", "messages"), c.Total.Bytes, c.Bytes)
	return err
}

func (p *program) brokerBackupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "backup directory file",
		Short: "Copy a broker's directory into a file, also while it runs",
		Long: "Writes a copy of a directory that broker.directory named into a file, a tar that only its owner can read. A\n" +
			"broker that runs on the directory goes on meanwhile; run the command as its user. The copy has everything that\n" +
			"it had acknowledged when the command began. The file is there once it is complete, in place of an earlier one.\n" +
			"- instead of a file is standard output. If the exit code is not 0, what came out is no copy.\n\n" +
			"To restore it: stop the broker, unpack the file into an empty directory, check that, start the broker on it.",
		Example: "  overdue broker backup /var/lib/overdue/broker backup.tar\n" +
			"  mkdir new && tar -xf backup.tar -C new && overdue broker check new\n" +
			"  kubectl exec overdue-0 -- /overdue broker backup /data - > backup.tar",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case args[1] == "-" && terminal.Is(p.stdout):
				return &config.Error{Err: errors.New("standard output is a terminal; send the copy into a file")}
			case args[1] == "-":
				return directory.WriteBackup(cmd.Context(), args[0], terminal.Raw(p.stdout))
			}
			size, err := directory.Backup(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(p.stdout, "%s holds a copy of %s, %d bytes.\n", args[1], args[0], size)
			return err
		},
	}
}
