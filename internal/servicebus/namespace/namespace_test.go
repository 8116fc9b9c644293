// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestNamespaceIsANameOrAConnectionString(t *testing.T) {
	const keys = ";SharedAccessKeyName=root;SharedAccessKey=a2V5=="
	tests := map[string]struct {
		text string
		want Namespace
	}{
		"name":            {"contoso.servicebus.windows.net", Namespace{Host: "contoso.servicebus.windows.net", DialAddress: "contoso.servicebus.windows.net:5671"}},
		"name as URL":     {" sb://contoso.servicebus.windows.net/\n", Namespace{Host: "contoso.servicebus.windows.net", DialAddress: "contoso.servicebus.windows.net:5671"}},
		"key":             {"Endpoint=sb://contoso.servicebus.windows.net/" + keys, Namespace{Host: "contoso.servicebus.windows.net", DialAddress: "contoso.servicebus.windows.net:5671", KeyName: "root", Key: "a2V5=="}},
		"keys in capital": {"ENDPOINT=sb://a.b;SHAREDACCESSKEYNAME=root;SHAREDACCESSKEY=k", Namespace{Host: "a.b", DialAddress: "a.b:5671", KeyName: "root", Key: "k"}},
		"port":            {"Endpoint=sb://a.b:1234" + keys, Namespace{Host: "a.b:1234", DialAddress: "a.b:1234", KeyName: "root", Key: "a2V5=="}},
		"emulator":        {"Endpoint=sb://localhost" + keys + ";UseDevelopmentEmulator=true;", Namespace{Host: "localhost", DialAddress: "localhost:5672", Plain: true, KeyName: "root", Key: "a2V5=="}},
		"emulator's port": {"Endpoint=sb://[::1]:5673" + keys + ";UseDevelopmentEmulator=TRUE", Namespace{Host: "[::1]:5673", DialAddress: "[::1]:5673", Plain: true, KeyName: "root", Key: "a2V5=="}},
		"signature":       {"Endpoint=sb://a.b;SharedAccessSignature=SharedAccessSignature sr=x&sig=y&se=1&skn=z", Namespace{Host: "a.b", DialAddress: "a.b:5671", Signature: "SharedAccessSignature sr=x&sig=y&se=1&skn=z"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, *got, cmpopts.IgnoreFields(Namespace{}, "ConnectionString")); diff != "" {
				t.Errorf("namespace (-want +got):\n%s", diff)
			}
			if (got.ConnectionString != "") != strings.Contains(tt.text, "=") {
				t.Errorf("the connection string for the SDK is %q", got.ConnectionString)
			}
		})
	}
}

func TestWrongNamespaceIsASentenceWithoutItsSecrets(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"short name":        {"contoso", "write contoso.servicebus.windows.net"},
		"no name":           {"s3cr3t key!", "neither the name of a namespace"},
		"no endpoint":       {"SharedAccessKeyName=root;SharedAccessKey=s3cr3t", "lacks Endpoint=sb://"},
		"other scheme":      {"Endpoint=https://a.b;SharedAccessKeyName=root;SharedAccessKey=s3cr3t", "not of the form sb://host/"},
		"user in endpoint":  {"Endpoint=sb://u:s3cr3t@a.b;SharedAccessKeyName=root;SharedAccessKey=s3cr3t", "not of the form sb://host/"},
		"unreadable":        {"Endpoint=sb://%zz;SharedAccessKeyName=root;SharedAccessKey=s3cr3t", "not of the form sb://host/"},
		"no key":            {"Endpoint=sb://a.b;SharedAccessKeyName=s3cr3t", "lacks SharedAccessKeyName and SharedAccessKey"},
		"key and signature": {"Endpoint=sb://a.b;SharedAccessKeyName=r;SharedAccessKey=s3cr3t;SharedAccessSignature=s3cr3t", "has both"},
		"entity":            {"Endpoint=sb://a.b;SharedAccessKeyName=r;SharedAccessKey=s3cr3t;EntityPath=orders", "is for one entity"},
		"no key=value":      {"Endpoint=sb://a.b;s3cr3t", "part 2 of the connection string is not key=value"},
		"twice":             {"Endpoint=sb://a.b;SharedAccessKey=s3cr3t;SharedAccessKey=s3cr3t", "part 3 of the connection string repeats a key"},
		"byte order mark":   {"\ufeffEndpoint=sb://a.b;SharedAccessKeyName=root;SharedAccessKey=s3cr3t", "the value begins with a byte order mark"},
		"mark and name":     {"\ufeffcontoso.servicebus.windows.net", "the value begins with a byte order mark"},
		"UTF-16":            {"\xff\xfeE\x00n\x00d\x00p\x00", "the value is not UTF-8, but perhaps UTF-16, as PowerShell writes it"},
		"quotes":            {`"Endpoint=sb://a.b;SharedAccessKeyName=root;SharedAccessKey=s3cr3t"`, "the value has quotes around it, which docker --env-file and files keep"},
		"quoted name":       {"'contoso.servicebus.windows.net'", "the value has quotes around it"},
		"quoted part":       {`Endpoint=sb://a.b;SharedAccessKeyName="root";SharedAccessKey=s3cr3t`, "the value of part 2 of the connection string has quotes around it"},
		"line break":        {"Endpoint=sb://a.b;SharedAccessKeyName=root;\nSharedAccessKey=s3cr3t", "the value has a line break in it"},
		"invisible":         {"Endpoint=sb://a.b;SharedAccessKeyName=root;SharedAccessKey=s3cr3t\u200b", "the value has an invisible character after 65 others"},
		"variable in front": {"OVERDUE_NAMESPACE=Endpoint=sb://a.b;SharedAccessKeyName=root;SharedAccessKey=s3cr3t", "the value has a name and = before Endpoint=; remove both"},
		"variable":          {"Endpoint=sb://a.b;SharedAccessKeyName=root;SharedAccessKey=${s3cr3t}", "the value refers to a variable as ${…}, which is not replaced; write the value itself"},
		"port":              {"Endpoint=sb://a.b:99999;SharedAccessKeyName=root;SharedAccessKey=s3cr3t", "not of the form sb://host/"},
		"path in endpoint":  {"Endpoint=sb://a.b/orders;SharedAccessKeyName=root;SharedAccessKey=s3cr3t", "not of the form sb://host/"},
		"emulator flag":     {"Endpoint=sb://a.b;SharedAccessKeyName=r;SharedAccessKey=s3cr3t;UseDevelopmentEmulator=s3cr3t", "neither true nor false"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(tt.text)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("Endpoint=sb://127.0.0.1:5673;SharedAccessKeyName=root;SharedAccessKey=s3cr3t;UseDevelopmentEmulator=true;")
	f.Add("contoso.servicebus.windows.net")
	f.Add("Endpoint=sb://%zz;=;;SharedAccessKey=")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := Parse(text)
		if (n == nil) == (err == nil) {
			t.Errorf("Parse(%q) = %v, %v; want one of the two", text, n, err)
		}
	})
}
