// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net"
	"strings"
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
	for key, want := range map[string]string{
		"listen.http":       "overdue.yaml:3: listen.http: ADDR CURE --listen-http, OVERDUE_LISTEN_HTTP or listen.http in the configuration file",
		"listen.amqp":       "listen.amqp: ADDR CURE --listen-amqp, OVERDUE_LISTEN_AMQP or listen.amqp in the configuration file",
		"listen.amqps":      "listen.amqps: ADDR CURE --listen-amqps, OVERDUE_LISTEN_AMQPS or listen.amqps in the configuration file",
		"listen.admin":      "listen.admin: ADDR CURE --listen-admin, OVERDUE_LISTEN_ADMIN or listen.admin in the configuration file",
		"listen.probes":     "listen.probes: ADDR CURE --listen-probes, OVERDUE_LISTEN_PROBES or listen.probes in the configuration file",
		"broker.listen":     "broker.listen: ADDR CURE --broker-listen, OVERDUE_BROKER_LISTEN or broker.listen in the configuration file",
		"broker.alsoListen": "broker.alsoListen: ADDR CURE --broker-also-listen, OVERDUE_BROKER_ALSO_LISTEN or broker.alsoListen in the configuration file",
		"broker.tls.listen": "broker.tls.listen: ADDR CURE OVERDUE_BROKER_TLS_LISTEN or broker.tls.listen in the configuration file",
	} {
		want = strings.NewReplacer("ADDR", addr, "CURE", "is in use by another process; stop that one, or choose another port with").Replace(want)
		if _, err = listen(c, key, addr); err == nil || err.Error() != want {
			t.Errorf("listen = %v, want %q", err, want)
		}
	}
}
