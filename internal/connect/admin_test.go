// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/config"
)

func TestWhereTheAdministrationAPIIs(t *testing.T) {
	const key = ";SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0"
	for _, tt := range []struct {
		namespace string
		taken     string
		want      []string
	}{
		{"contoso.servicebus.windows.net", "127.0.0.1:443", []string{"https://contoso.servicebus.windows.net:443"}},
		{"Endpoint=sb://contoso.servicebus.windows.net/" + key, "", []string{"https://contoso.servicebus.windows.net:443"}},
		{"Endpoint=sb://localhost:5671" + key, "", []string{"https://localhost:5671", "https://localhost:443"}},
		{"Endpoint=sb://localhost" + key + ";UseDevelopmentEmulator=true", "", []string{"http://localhost:5300"}},
		{"Endpoint=sb://localhost" + key + ";UseDevelopmentEmulator=true", "127.0.0.1:5300", nil},
		{"Endpoint=sb://emulator" + key + ";UseDevelopmentEmulator=true", "127.0.0.1:5300", []string{"http://emulator:5300"}},
		{"Endpoint=sb://127.0.0.1:5673" + key + ";UseDevelopmentEmulator=true", "[::]:5300", []string{"http://127.0.0.1:5673"}},
		{"Endpoint=sb://[::1]:5300" + key + ";UseDevelopmentEmulator=true", "", []string{"http://[::1]:5300"}},
	} {
		ns, err := Parse(tt.namespace)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, ns.adminEndpoints(tt.taken)); diff != "" {
			t.Errorf("%s, with %s taken (-want +got):\n%s", tt.namespace, tt.taken, diff)
		}
	}
}

func TestTheAddressOfTheAdministrationAPIIsChecked(t *testing.T) {
	const local = "Endpoint=sb://localhost;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true"
	for name, tt := range map[string]struct {
		namespace, url string
		want           []string
		refused        string
	}{
		"HTTPS":                   {"contoso.invalid", "https://api.invalid:8443/", []string{"https://api.invalid:8443"}, ""},
		"HTTP of this machine":    {"contoso.invalid", "http://127.0.0.1:5300", []string{"http://127.0.0.1:5300"}, ""},
		"HTTP of an emulator":     {local, "http://emulator:5300", []string{"http://emulator:5300"}, ""},
		"HTTP over the network":   {"contoso.invalid", "http://api.invalid", nil, "OVERDUE_NAMESPACE_ADMIN: namespaceAdmin is not HTTPS"},
		"a path":                  {"contoso.invalid", "https://api.invalid/x", nil, "is not of the form https://host:port"},
		"a query":                 {"contoso.invalid", "https://api.invalid/?x=y", nil, "is not of the form https://host:port"},
		"credentials":             {"contoso.invalid", "https://user@api.invalid", nil, "is not of the form https://host:port"},
		"none, and the usual one": {"contoso.invalid", "", []string{"https://contoso.invalid:443"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := config.Load("", func(name string) string {
				return map[string]string{"OVERDUE_NAMESPACE_ADMIN": tt.url}[name]
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			api, err := AdminAPI(c, parse(t, tt.namespace), nil)
			if tt.refused != "" {
				if wrong := (*config.Error)(nil); !errors.As(err, &wrong) || !strings.Contains(err.Error(), tt.refused) {
					t.Errorf("error = %v, want a *config.Error with %q", err, tt.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, api.Endpoints); diff != "" {
				t.Errorf("endpoints (-want +got):\n%s", diff)
			}
		})
	}
}
