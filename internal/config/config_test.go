// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
)

// load writes text to overdue.yaml (no file when it is empty) and loads it with the
// given variables and flags.
func load(t *testing.T, text string, env, flags map[string]string) (*Config, error) {
	t.Helper()
	file := ""
	if text != "" {
		t.Chdir(t.TempDir())
		file = "overdue.yaml"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Load(file, func(name string) string { return env[name] }, flags)
	if err == nil && text != "" {
		// The schema is wrong where it refuses what the program takes.
		if bad := bySchema(t, text); bad != nil {
			t.Errorf("the schema refuses what loads: %v\n%s", bad, text)
		}
	}
	return c, err
}

// A dollar that refers to no variable of a shell is taken as it is written.
func TestDollarsThatReferToNothingAreTaken(t *testing.T) {
	c, err := load(t, `alerts:
  - {title: "${HOME} {{.Count}}", text: "$${X} costs ${{.Count}}", email: {host: h, from: a@b, to: c@d, username: u, password: "pa${$$word${"}}
`, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if a := c.Alerts[0]; a.Title != "${HOME} {{.Count}}" || a.Text != "$${X} costs ${{.Count}}" || a.Email.Password != "pa${$$word${" {
		t.Errorf("title %q, text %q, password %q", a.Title, a.Text, a.Email.Password)
	}
	if c, err = load(t, "", map[string]string{"OVERDUE_DASHBOARD_TOKEN": "0123456789abcdef${X}"}, nil); err != nil || c.Dashboard.Token != "0123456789abcdef${X}" {
		t.Errorf("a token of the environment: %v", err)
	}
}

func TestWrongConfigurationIsOneSentence(t *testing.T) {
	tests := map[string]struct {
		text, want string
	}{
		"unknown key":                             {"lisen:\n  http: 127.0.0.1:1", "overdue.yaml:1: lisen is not a known key; did you mean listen?"},
		"unknown nested key":                      {"listen:\n  htp: 127.0.0.1:1", "overdue.yaml:2: listen.htp is not a known key; did you mean http?"},
		"key of another place":                    {"lockDuration: 1m", "overdue.yaml:1: lockDuration is not a known key; did you mean broker.queues[].lockDuration?"},
		"key like none":                           {"log:\n  qqqqqqqq: 1", "overdue.yaml:2: log.qqqqqqqq is not a known key; the keys here are level, format"},
		"unknown key in a list":                   {"broker:\n  queues:\n    - name: orders\n      lockduration: 1m", "overdue.yaml:4: broker.queues[0].lockduration is not a known key; did you mean lockDuration?"},
		"name of a mapping given twice":           {"alerts:\n  - name: a\n    webhook:\n      url: https://alerts.test\n      headers:\n        X-Team: a\n        X-Team: b", "overdue.yaml:7: alerts[0].webhook.headers.X-Team is given a second time, after line 6; keep one"},
		"key given twice":                         {"log:\n  level: info\n  level: warn", "overdue.yaml:3: log.level is given a second time, after line 2; keep one"},
		"not YAML":                                {"log:\n  level: [info\n", "overdue.yaml:2: this is not YAML: "},
		"bad indentation":                         {"log:\n  level: info\n    format: json\n", "overdue.yaml:3: this is not YAML: mapping values are not allowed in this context"},
		"a tab":                                   {"log:\n\tlevel: info\n", "overdue.yaml:2: this is not YAML: found character that cannot start any token"},
		"two documents":                           {"log: {}\n---\nlog: {}\n", "there is more than one YAML document; keep one"},
		"a list at the top":                       {"- listen\n", `overdue.yaml:1: the configuration has to be a mapping of keys such as "namespace"`},
		"scalar for a section":                    {"listen: 5\n", `overdue.yaml:1: listen has to be a mapping of keys such as "amqp"`},
		"section for a scalar":                    {"monitorQueue: {a: b}\n", "overdue.yaml:1: monitorQueue has to be a single value of kind queue name"},
		"mapping for a list":                      {"alerts: {webhook: x}\n", "overdue.yaml:1: alerts has to be a list; begin each element with a dash"},
		"scalar in a list":                        {"broker:\n  queues: [orders]\n", `overdue.yaml:2: broker.queues[0] has to be a mapping of keys such as "name"`},
		"element without its key":                 {"broker:\n  queues:\n    - {lockDuration: 1m}\n", "overdue.yaml:3: broker.queues[0] lacks name"},
		"alert of no kind":                        {"alerts:\n  - {}\n", "overdue.yaml:2: alerts[0] names no sink; give it one of webhook, alertmanager, "},
		"alert of two kinds":                      {"alerts: [{slack: {url: \"http://x\"}, email: {host: h}}]\n", "alerts[0] names slack and email; give it one of"},
		"sink without a URL":                      {"alerts: [{slack: {}}]\n", "alerts[0].slack needs one of url and urlFile"},
		"sink without anything":                   {"alerts:\n  - slack: {}\n", "overdue.yaml:2: alerts[0].slack needs one of url and urlFile"},
		"sink whose file is gone":                 {"alerts: [{slack: {urlFile: nowhere}}]\n", "overdue.yaml:1: alerts[0].slack.urlFile: open nowhere: no such file"},
		"two sinks of one name":                   {"alerts: [{name: x, slack: {url: \"http://x\"}}, {name: x, teams: {url: \"http://x\"}}]\n", `overdue.yaml:1: alerts[1].name: there is another sink "x"`},
		"missed go where they came from":          {"monitor: {entities: [{queue: orders, forwardMissedTo: Orders}]}\n", `monitor.entities[0].forwardMissedTo is "Orders", where the messages come from`},
		"missed go nowhere":                       {"broker: {queues: [{name: orders}]}\nmonitor: {entities: [{queue: orders, forwardMissedTo: slow}]}\n", `overdue.yaml:2: monitor.entities[0].forwardMissedTo: the embedded broker has no queue or topic "slow"`},
		"mail to nobody":                          {"alerts: [{email: {host: h, from: a@b}}]\n", "alerts[0].email lacks to"},
		"events to the monitor":                   {"alerts: [{serviceBus: {entity: overdue-monitor}}]\n", `alerts[0].serviceBus.entity is "overdue-monitor", the monitor queue`},
		"duration without unit":                   {"shutdownTimeout: 30\n", `overdue.yaml:1: shutdownTimeout: "30" has no unit; write 30s or PT30S if seconds are meant`},
		"not a duration":                          {"shutdownTimeout: soon\n", `overdue.yaml:1: shutdownTimeout: "soon" is not a duration; write one like 30s, 1h30m, 7d or PT30S`},
		"duration out of bounds":                  {"broker:\n  queues: [{name: q, lockDuration: 1h}]\n", "overdue.yaml:2: broker.queues[0].lockDuration: 1h is out of bounds; it must be between 1s and 5m"},
		"negative duration":                       {"broker:\n  queues: [{name: q, defaultMessageTimeToLive: -1s}]\n", "broker.queues[0].defaultMessageTimeToLive: -1s is too small; it must be at least 0s"},
		"count out of bounds":                     {"broker:\n  queues: [{name: q, maxDeliveryCount: 0}]\n", "broker.queues[0].maxDeliveryCount: 0 is out of bounds; it must be between 1 and 2147483647"},
		"not a count":                             {"proxy: {maxInFlight: many}\n", `proxy.maxInFlight: "many" is not a whole number`},
		"not a size":                              {"proxy: {maxBodySize: 1GB}\n", `proxy.maxBodySize: "1GB" is not a size; write one like 262144, 256KiB or 1MiB`},
		"size out of bounds":                      {"broker: {maxMessageSize: 1}\n", "broker.maxMessageSize: 1 is out of bounds; it must be between 1KiB and 100MiB"},
		"not a bool":                              {"broker: {autoCreate: yes}\n", `broker.autoCreate: "yes" is not a bool; write true or false`},
		"not a choice":                            {"broker: {expiry: soon}\n", `broker.expiry: "soon" is not one of lazy, lazy-head, eager`},
		"unknown strategy":                        {"monitor: {entities: [{queue: q, expire: sometimes}]}\n", `monitor.entities[0].expire: "sometimes" is not one of auto, native, scan, session`},
		"not an address":                          {"listen: {http: nowhere}\n", `listen.http: "nowhere" is not an address; write host:port, such as 127.0.0.1:5300`},
		"no such port":                            {"listen: {http: \"127.0.0.1:65536\"}\n", `listen.http: "127.0.0.1:65536" has no port between 0 and 65535`},
		"address off loopback":                    {"listen: {http: \"0.0.0.0:5300\"}\n", `listen.http: 0.0.0.0:5300 is not on loopback, where others can reach it; set listen.tls.enabled and listen.keys`},
		"address of everything":                   {"broker: {listen: \":5673\"}\n", `overdue.yaml:1: broker.listen: :5673 is not on loopback, where others can reach it; set broker.tls.enabled and broker.keys`},
		"two listeners on one port":               {"listen: {http: \"127.0.0.1:5300\", admin: \"127.0.0.1:5300\"}\n", "overdue.yaml:1: listen.admin is 127.0.0.1:5300, which listen.http has already; give them different ports"},
		"not a URL":                               {"alerts: [{webhook: {url: \"ftp://x/secret\"}}]\n", "alerts[0].webhook.url: the value is not a URL; write one like https://example.com/hook"},
		"bad queue name":                          {"broker: {queues: [{name: \"a b\"}]}\n", `broker.queues[0].name: "a b" is not the name of a queue`},
		"queue given twice":                       {"broker: {queues: [{name: q}, {name: Q}]}\n", `overdue.yaml:1: broker.queues[1].name: there is another queue or topic "Q"`},
		"queue named as monitor's":                {"broker: {queues: [{name: Overdue-Monitor}]}\n", `broker.queues[0].name is "Overdue-Monitor", the monitor queue`},
		"monitor monitored":                       {"monitor: {entities: [{queue: overdue-monitor}]}\n", "the monitor queue, which cannot monitor itself"},
		"entity without queue":                    {"monitor: {entities: [{queue: orders}]}\n", `overdue.yaml:1: monitor.entities[0].queue: the embedded broker has no queue "orders"; add it to broker.queues or set broker.autoCreate: true`},
		"entity given twice":                      {"broker: {autoCreate: true}\nmonitor: {entities: [{queue: q}, {queue: Q}]}\n", `monitor.entities[1].queue: "Q" is in the list already; keep one`},
		"native that drops":                       {"broker: {queues: [{name: q}]}\nmonitor: {entities: [{queue: q, expire: native}]}\n", `expire is native, but queue "q" drops what expires`},
		"redis that is none":                      {"redis: http://localhost:6379\n", "overdue.yaml:1: redis: the value is not the address of a Redis"},
		"companions in no redis":                  {"companionStore: redis\n", "overdue.yaml:1: companionStore is redis, and there is no Redis to keep companions in"},
		"redis twice":                             {"redis: redis://localhost\nredisFile: x\n", "overdue.yaml:1: redis and overdue.yaml:2: redisFile are both given; keep one"},
		"redis file missing":                      {"redisFile: nowhere\n", "overdue.yaml:1: redisFile: open nowhere: no such file or directory"},
		"authority without redis":                 {"redisAuthorityFile: ca.pem\n", "overdue.yaml:1: redisAuthorityFile is given, and no redis"},
		"authority without TLS":                   {"redis: redis://localhost\nredisAuthorityFile: ca.pem\n", "redisAuthorityFile is given, and the address in redis is not of the form rediss://"},
		"authority that is not there":             {"redis: rediss://localhost\nredisAuthorityFile: nowhere\n", "overdue.yaml:2: redisAuthorityFile: open nowhere: no such file or directory"},
		"topic named as a queue":                  {"broker: {queues: [{name: q}], topics: [{name: Q}]}\n", `broker.topics[0].name: there is another queue or topic "Q"`},
		"subscription without name":               {"broker:\n  topics:\n    - name: t\n      subscriptions: [{lockDuration: 5s}]\n", "overdue.yaml:4: broker.topics[0].subscriptions[0] lacks name"},
		"rule that is misspelt":                   {"broker: {topics: [{name: t, subscriptions: [{name: s, rules: [{name: r, sqll: x}]}]}]}\n", "broker.topics[0].subscriptions[0].rules[0].sqll is not a known key; did you mean sql?"},
		"properties of no form":                   {"broker: {topics: [{name: t, subscriptions: [{name: s, rules: [{name: r, correlation: {properties: [a]}}]}]}]}\n", "rules[0].correlation.properties has to be a mapping of names to values"},
		"key for nothing":                         {"broker: {keys: [{name: k, key: s3cr3t-of-12}]}\n", `overdue.yaml:1: broker.keys[0].name: "k" grants nothing; set send, listen or manage to true`},
		"key without a key":                       {"broker: {keys: [{name: k, send: true}]}\n", `broker.keys[0].name: "k" needs one of key and keyFile`},
		"access key given twice":                  {"broker: {keys: [{name: k, key: s3cr3t-of-12, send: true}, {name: k, key: s3cr3t-of-13, send: true}]}\n", `broker.keys[1].name: there is another key "k"`},
		"key's file missing":                      {"broker: {keys: [{name: k, keyFile: nowhere, send: true}]}\n", "broker.keys[0].keyFile: open nowhere: no such file or directory"},
		"token that can be guessed":               {"dashboard: {token: s3cr3t}\n", "overdue.yaml:1: dashboard.token has fewer than 16 characters"},
		"user who cannot act":                     {"dashboard: {userHeader: X-User}\n", "overdue.yaml:1: dashboard.userHeader is given, but the dashboard only reads"},
		"user in no header":                       {"dashboard: {token: 0123456789abcdef, userHeader: 'X User'}\n", `overdue.yaml:1: dashboard.userHeader is "X User"; write the name of an HTTP header`},
		"user in a secret":                        {"dashboard: {token: 0123456789abcdef, userHeader: cookie}\n", `overdue.yaml:1: dashboard.userHeader is "cookie", which holds a secret`},
		"token given twice":                       {"dashboard: {token: 0123456789abcdef, tokenFile: x}\n", "overdue.yaml:1: dashboard needs one of token and tokenFile"},
		"token's file missing":                    {"dashboard: {tokenFile: nowhere}\n", "dashboard.tokenFile: open nowhere: no such file or directory"},
		"certificate without key":                 {"broker: {tls: {enabled: true, certFile: c.pem}}\n", "broker.tls.certFile and broker.tls.keyFile belong together"},
		"endpoint off loopback":                   {"broker: {alsoListen: [\"10.0.0.1:1\"], tls: {enabled: true}}\n", "broker.alsoListen: 10.0.0.1:1 is not on loopback"},
		"endpoint of no form":                     {"broker: {alsoListen: \"127.0.0.1:1, 5672\"}\n", `broker.alsoListen: "5672" is not an address`},
		"endpoint given twice":                    {"broker: {alsoListen: \"127.0.0.1:5673\"}\n", "broker.alsoListen is 127.0.0.1:5673, which broker.listen has already"},
		"the endpoint's key for nothing":          {"listen: {keys: [{name: k, key: s3cr3t-of-12}]}\n", `listen.keys[0].name: "k" grants nothing; set send, listen or manage to true`},
		"a key that no connection string carries": {"broker: {keys: [{name: \"a;b c\", key: s3cr3t-of-12, send: true}]}\n", `overdue.yaml:1: broker.keys[0].name: "a;b c" is not the name of a key`},
		"the endpoint's key for no queue":         {"listen: {keys: [{name: k, key: s3cr3t-of-12, send: true, entity: \"a b\"}]}\n", `listen.keys[0].entity: "a b" is not the name of a queue`},
		"a key of one letter":                     {"listen:\n  keys: [{name: k, key: a, send: true}]\n", `overdue.yaml:2: listen.keys[0].key: the key "k" is too short (1 of at least 12 characters)`},
		"a key of blanks":                         {"listen: {keys: [{name: k, key: \"              \", send: true}]}\n", `listen.keys[0].key: the key "k" is blank`},
		"a key with a blank":                      {"broker: {keys: [{name: k, key: \"s3cr3t of 12\", send: true}]}\n", `broker.keys[0].key: the key "k" has white space`},
		"a short key of the broker":               {"broker: {keys: [{name: k, key: s3cr3t-of-1, send: true}]}\n", `broker.keys[0].key: the key "k" is too short (11 of at least 12 characters)`},
		"a key for a way out":                     {"listen: {keys: [{name: k, key: s3cr3t-of-12, send: true, entity: a/../b}]}\n", `overdue.yaml:1: listen.keys[0].entity: "a/../b" is not the name of a queue`},
		"a key for the monitor queue":             {"listen: {keys: [{name: k, key: s3cr3t-of-12, send: true, entity: Overdue-Monitor}]}\n", `overdue.yaml:1: listen.keys[0].entity is "Overdue-Monitor", the monitor queue`},
		"a monitored way out":                     {"monitor: {entities: [{queue: a/../b}]}\n", `overdue.yaml:1: monitor.entities[0].queue: "a/../b" is not the name of a queue`},
		"a queue with an empty segment":           {"monitorQueue: a//b\n", `overdue.yaml:1: monitorQueue: "a//b" is not the name of a queue`},
		"key to manage one queue":                 {"listen: {keys: [{name: k, key: s3cr3t-of-12, manage: true, entity: orders}]}\n", `listen.keys[0].entity: "k" may manage, which no key of one entity can`},
		"endpoints with half a certificate":       {"listen: {tls: {enabled: true, keyFile: k.pem}}\n", "listen.tls.certFile and overdue.yaml:1: listen.tls.keyFile belong together"},
		"a certificate for no endpoint":           {"listen: {tls: {certFile: c.pem, keyFile: k.pem}}\n", "overdue.yaml:1: listen.tls.certFile: no endpoint speaks TLS; set listen.tls.enabled or listen.amqps"},
		"an endpoint without a key":               {"listen: {amqp: \"0.0.0.0:5672\", tls: {enabled: true}}\n", "listen.amqp: 0.0.0.0:5672 is not on loopback, where others can reach it; set listen.tls.enabled and listen.keys (or proxy.credentials: client), or listen on"},
		"an endpoint without TLS":                 {"listen: {amqp: \":5672\", keys: [{name: k, key: s3cr3t-of-12, send: true}]}\n", "listen.amqp: :5672 is not on loopback"},
		"a TLS endpoint without a key":            {"listen: {amqps: \"10.0.0.1:5671\"}\n", "listen.amqps: 10.0.0.1:5671 is not on loopback"},
		"keys that nobody asks for":               {"listen: {keys: [{name: k, key: s3cr3t-of-12, send: true}]}\nproxy: {credentials: client}\n", "overdue.yaml:1: listen.keys: with proxy.credentials: client the namespace judges the keys of apps; remove listen.keys, or set proxy.credentials: own"},
		"a namespace that judges nobody":          {"listen: {amqps: \"10.0.0.1:5671\"}\nproxy: {credentials: client}\n", "the embedded broker, which is to judge who comes, has no keys; set broker.keys"},
		"credentials of nobody":                   {"proxy: {credentials: none}\n", `proxy.credentials: "none" is not one of own, client`},
		"admin off loopback":                      {"listen: {admin: \"0.0.0.0:9095\"}\n", `listen.admin: "0.0.0.0:9095" is not on loopback; what listens there asks nobody for a key`},
		"entity without topic":                    {"monitor: {entities: [{topic: events}]}\n", `monitor.entities[0].topic: the embedded broker has no topic "events"; add it to broker.topics`},
		"entity of no kind":                       {"monitor: {entities: [{deadline: 5s}]}\n", "monitor.entities[0]: an element has either queue or topic; give one of them"},
		"entity of two kinds":                     {"monitor: {entities: [{queue: a, topic: b}]}\n", "monitor.entities[0]: an element has either queue or topic; give one of them"},
		"topic listed as a queue":                 {"broker: {topics: [{name: t}]}\nmonitor: {entities: [{queue: T}]}\n", `monitor.entities[0].queue: "T" of the embedded broker is not a queue; write it under the other key`},
		"queue listed as a topic":                 {"broker: {queues: [{name: q}]}\nmonitor: {entities: [{topic: q}]}\n", `monitor.entities[0].topic: "q" of the embedded broker is not a topic`},
		"queue with subscriptions":                {"monitor: {entities: [{queue: q, subscriptions: [{name: s}]}]}\n", `monitor.entities[0].subscriptions: "q" is a queue and has no subscriptions`},
		"topic with sessions":                     {"monitor: {entities: [{topic: t, requiresSession: true}]}\n", "monitor.entities[0].requiresSession: a topic has no such setting; its subscriptions have"},
		"copy given twice":                        {"monitor: {entities: [{topic: t, subscriptions: [{name: s}, {name: S}]}]}\n", `monitor.entities[0].subscriptions[1].name: "S" is in the list already`},
		"emulator's file missing":                 {"broker: {emulatorConfig: Config.json}\n", "overdue.yaml:1: broker.emulatorConfig: open Config.json: no such file or directory"},
		"a file with nothing":                     {" \n", "the configuration file overdue.yaml is empty; write {} into it"},
		"a file with a mark":                      {"\ufeff", "the configuration file overdue.yaml is empty; write {} into it"},
		"no broker and no namespace":              {"broker: {enabled: false}\nmonitor: {entities: [{queue: orders}]}\n", "overdue.yaml:1: broker.enabled is false, and no namespace is given; set OVERDUE_NAMESPACE or OVERDUE_NAMESPACE_FILE, or set broker.enabled (OVERDUE_BROKER_ENABLED) to true"},
		"a variable in a secret":                  {"alerts:\n  - slack:\n      url: https://x/${HOOK}\n", "overdue.yaml:3: alerts[0].slack.url refers to a variable as ${…}, which is not replaced; write the value itself, set OVERDUE_ALERTS, or name a file that holds the value with urlFile"},
		"a variable in a setting":                 {"redis: \"${REDIS:-redis://localhost}\"\n", "overdue.yaml:1: redis refers to a variable as ${…}, which is not replaced; write the value itself, set OVERDUE_REDIS, or name a file that holds the value with redisFile"},
		"a variable that is a number":             {"proxy: {maxInFlight: \"${env:MANY}\"}\n", "overdue.yaml:1: proxy.maxInFlight refers to a variable as ${…}, which is not replaced; write the value itself, set OVERDUE_PROXY_MAX_IN_FLIGHT"},
		"a variable in a list":                    {"alerts:\n  - entities: [\"${QUEUE}\"]\n    slack: {url: http://x}\n", "overdue.yaml:2: alerts[0].entities refers to a variable as ${…}"},
		"a variable in a mapping":                 {"alerts:\n  - webhook:\n      url: http://x\n      headers: {Authorization: \"Bearer ${TOKEN}\"}\n", "overdue.yaml:4: alerts[0].webhook.headers.Authorization refers to a variable as ${…}, which is not replaced; write the value itself, set OVERDUE_ALERTS, or name a file that holds the value with headersFile"},
		"a URL with a port of no size":            {"alerts: [{webhook: {url: \"http://x:70000\"}}]\n", "alerts[0].webhook.url: the URL has a port above 65535"},
		"a URL without a host":                    {"alerts: [{webhook: {url: \"http://:80/\"}}]\n", "alerts[0].webhook.url: the value is not a URL"},
		"a URL in quotes":                         {"alerts: [{webhook: {url: \"'http://x/'\"}}]\n", "alerts[0].webhook.url: the value has quotes around it"},
		"namespace of no form":                    {"namespace: contoso\n", `overdue.yaml:1: namespace: "contoso" is not a fully qualified name; write contoso.servicebus.windows.net, or a connection string`},
		"namespace twice":                         {"namespace: a.b\nnamespaceFile: x\n", "overdue.yaml:1: namespace and overdue.yaml:2: namespaceFile are both given; keep one"},
		"namespace file missing":                  {"namespaceFile: nowhere\n", "overdue.yaml:1: namespaceFile: open nowhere: no such file or directory"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := load(t, tt.text, nil, nil)
			if err == nil {
				if err = c.CheckRole(RoleRun); err != nil {
					err = &Error{err}
				}
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
			if usage := (*Error)(nil); !errors.As(err, &usage) {
				t.Errorf("the error is a %T, want one by which the exit code is that of a wrong configuration", err)
			}
		})
	}
}

func TestEveryMistakeOfAFileIsReported(t *testing.T) {
	_, err := load(t, "lisen: {}\nshutdownTimeout: 30\nlog: {level: loud}\n", nil, nil)
	want := `overdue.yaml:1: lisen is not a known key; did you mean listen?
overdue.yaml:2: shutdownTimeout: "30" has no unit; write 30s or PT30S if seconds are meant
overdue.yaml:3: log.level: "loud" is not one of debug, info, warn, error`
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

func TestTopicsAreReadWithAllThatHangsOnThem(t *testing.T) {
	c, err := load(t, `
broker:
  topics:
    - name: events
      requiresDuplicateDetection: true
      subscriptions:
        - {name: all}
        - name: some
          requiresSession: true
          rules:
            - {name: dear, sql: "price > 5", action: "SET dear = TRUE"}
            - {name: eu, correlation: {subject: order, properties: {region: eu, vip: true, "a.b": 7}}}
`, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	sub := broker.SubscriptionConfig{Name: "all", LockDuration: time.Minute, MaxDeliveryCount: 10}
	some := sub
	some.Name, some.RequiresSession = "some", true
	subject := "order"
	want := []broker.TopicSetup{{
		TopicConfig: broker.TopicConfig{Name: "events", RequiresDuplicateDetection: true, DuplicateDetectionHistoryTimeWindow: 10 * time.Minute},
		Subscriptions: []broker.SubscriptionSetup{
			{SubscriptionConfig: sub},
			{SubscriptionConfig: some, Rules: []broker.RuleConfig{
				{Name: "dear", Filter: broker.Filter{SQL: &broker.SQLFilter{Expression: "price > 5"}}, Action: broker.Action{SQL: "SET dear = TRUE"}},
				{Name: "eu", Filter: broker.Filter{Correlation: &broker.CorrelationFilter{
					Label: &subject, Properties: broker.ValuesOf(map[string]any{"region": "eu", "vip": true, "a.b": 7}),
				}}},
			}},
		},
	}}
	if diff := cmp.Diff(want, c.BrokerTopics()); diff != "" {
		t.Errorf("topics (-want +got):\n%s", diff)
	}
	b, err := broker.New(broker.Config{Topics: c.BrokerTopics()})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
