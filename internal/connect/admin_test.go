// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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
