// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
)

func TestTableAndConfigAreTheSame(t *testing.T) {
	want := map[string]bool{}
	for _, s := range Settings {
		want[s.Path] = true
	}
	got := map[string]bool{}
	var walk func(typ reflect.Type, path string)
	walk = func(typ reflect.Type, path string) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			tag, ok := f.Tag.Lookup("mapstructure")
			if !ok {
				// The embedded broker has it in the words of Service Bus, or it is no setting.
				if key := path + strings.ToLower(f.Name[:1]) + f.Name[1:]; ofBroker(typ) && want[key] {
					got[key] = true
				}
				continue
			}
			key := path + tag
			switch {
			case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct:
				got[key] = true
				walk(f.Type.Elem(), key+"[].")
			case tag == ",squash":
				walk(f.Type, path)
			case f.Type.Kind() == reflect.Struct:
				walk(f.Type, key+".")
			case f.Type.Kind() == reflect.Pointer:
				walk(f.Type.Elem(), key+".")
			default:
				got[key] = true
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
	// The endpoints and the broker share types, of which each of these fields is for one of both.
	delete(got, "listen.tls.listen")
	delete(got, "broker.keys[].entity")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys (-table +config):\n%s", diff)
	}
}

func ofBroker(typ reflect.Type) bool {
	return typ.PkgPath() == reflect.TypeFor[broker.QueueConfig]().PkgPath()
}

// The page that a user reads first stays short.
func TestFewSettingsAreCommon(t *testing.T) {
	const most = 60
	if n := len(commonSettings); n > most {
		t.Errorf("%d settings are common, want %d at most", n, most)
	}
	for _, path := range commonSettings {
		if byPath[path] == nil {
			t.Errorf("%s is no setting", path)
		}
	}
}

func TestVariablesAndFlagsAreUnique(t *testing.T) {
	seen := map[string]string{}
	for _, s := range Settings {
		for _, name := range []string{s.Env(), s.FlagName()} {
			if name == "" {
				continue
			}
			if other, ok := seen[name]; ok {
				t.Errorf("%s is the name of both %s and %s", name, other, s.Path)
			}
			seen[name] = s.Path
		}
	}
	for path, want := range map[string][2]string{
		"listen.amqp":        {"OVERDUE_LISTEN_AMQP", "listen-amqp"},
		"namespace":          {"OVERDUE_NAMESPACE", "namespace"},
		"broker.autoCreate":  {"OVERDUE_BROKER_AUTO_CREATE", "broker-auto-create"},
		"broker.tls.enabled": {"OVERDUE_BROKER_TLS_ENABLED", "broker-tls-enabled"},
	} {
		if got := [2]string{byPath[path].Env(), byPath[path].FlagName()}; got != want {
			t.Errorf("variable and flag of %s = %s, want %s", path, got, want)
		}
	}
}
