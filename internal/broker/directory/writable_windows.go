// SPDX-License-Identifier: Apache-2.0

package directory

// checkWritable reports nothing: who may make files there shows when one is made.
func checkWritable(string) error { return nil }
