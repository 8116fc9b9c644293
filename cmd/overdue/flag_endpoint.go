// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/spf13/cobra"

// endpointFlag defines the flag that says which endpoint a command of operators connects through.
func endpointFlag(cmd *cobra.Command, endpoint *string) {
	cmd.Flags().StringVar(endpoint, "endpoint", "",
		"host:port of the AMQP endpoint of an Overdue that runs; by default one of its own, or without a namespace that at listen.amqp")
}
