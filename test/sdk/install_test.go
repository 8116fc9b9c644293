// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The servers that tests need come as Debian packages, which start a service when they are
// installed unless policy-rc.d says no. The test plays a machine on which everything is missing,
// and apt-get on it.
func TestInstallStartsNoServices(t *testing.T) {
	const before = "#!/bin/sh\nexit 0\n"
	for name, there := range map[string]bool{"a machine with a policy": true, "a machine without one": false} {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			policy, log := filepath.Join(bin, "policy-rc.d"), filepath.Join(bin, "log")
			if there {
				write(t, policy, before)
			}
			write(t, filepath.Join(bin, "id"), "#!/bin/sh\necho 0\n")
			write(t, filepath.Join(bin, "systemctl"), "#!/bin/sh\necho systemctl \"$@\" >>\"$LOG\"\n")
			write(t, filepath.Join(bin, "apt-get"), `#!/bin/sh
echo apt-get "$@" >>"$LOG"
[ "$1" = install ] || exit 0
code=0
"$POLICY_RC_D" redis-server start || code=$?
echo policy "$code" >>"$LOG"
`)
			for _, tool := range []string{"bash", "sh", "tr", "dirname", "mv", "rm", "chmod"} {
				path, err := exec.LookPath(tool)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(path, filepath.Join(bin, tool)); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), "./install.sh", "--tools")
			cmd.Env = []string{"PATH=" + bin, "HOME=" + bin, "LOG=" + log, "POLICY_RC_D=" + policy}
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "need what is in these Debian packages: gcc") {
				t.Errorf("install.sh where nothing can be had: %v, want it to fail and to name the packages\n%s", err, out)
			}
			commands, err := os.ReadFile(log)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range []string{
				"apt-get update", " gcc ", " redis-server ", "policy 101\n",
				"systemctl disable --quiet redis-server\n", "systemctl disable --quiet prometheus\n", "systemctl disable --quiet prometheus-alertmanager\n",
			} {
				if !strings.Contains(string(commands), want) {
					t.Errorf("the installation went without %q:\n%s", want, commands)
				}
			}
			after, err := os.ReadFile(policy)
			if there && string(after) != before || !there && !os.IsNotExist(err) {
				t.Errorf("policy-rc.d afterwards = %q, %v; want what was there before", after, err)
			}
		})
	}
}

// write makes a program.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}
