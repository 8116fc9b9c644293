// SPDX-License-Identifier: Apache-2.0

// Package check holds no code. Its tests render the content of deploy with Helm, Kustomize and
// Compose as Go modules, decode it against the types of Kubernetes, and run the result with the
// program itself. It is a module of its own, so that the program's go.mod lists what ships and
// nothing else.
package check
