// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net"
	"testing"
)

func TestPortInUseNamesPortKeyAndCure(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := taken.Addr().String()
	c, err := loadHere(t, "# where\n# it listens\nlisten: {http: \""+addr+"\"}\n", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = listen(c, "listen.http", addr)
	want := "overdue.yaml:3: listen.http: " + addr + " is in use by another process; stop that one, or choose another port " +
		"with --listen-http, OVERDUE_LISTEN_HTTP or listen.http in the configuration file"
	if err == nil || err.Error() != want {
		t.Errorf("listen = %v, want %q", err, want)
	}
}
