// SPDX-License-Identifier: Apache-2.0

// Package web has no code but tests: the dashboard in Chromium, on a process that serves real
// messages. They check each page with axe-core, in both color schemes and on the screen of a
// phone, and make the pictures of the documentation.
package web
