// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAddressesOfEveryKind(t *testing.T) {
	for text, want := range map[string]Address{
		"redis://localhost":                         {Hosts: []string{"localhost:6379"}},
		" rediss://app:s%40cret@r.example:6380/3\n": {Hosts: []string{"r.example:6380"}, TLS: true, Username: "app", Password: "s@cret", Database: 3},
		"redis://:only@[::1]":                       {Hosts: []string{"[::1]:6379"}, Password: "only"},
		"redis+cluster://a:7000,b":                  {Hosts: []string{"a:7000", "b:6379"}, Cluster: true},
		"rediss+sentinel://u:p@a,b:2/main/1?sentinel_user=s&sentinel_password=t": {
			Hosts: []string{"a:26379", "b:2"}, TLS: true, Master: "main", Username: "u", Password: "p", Database: 1, SentinelUsername: "s", SentinelPassword: "t",
		},
	} {
		got, err := ParseAddress(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: (-want +got)\n%s", text, diff)
		}
	}
}

func TestAddressesThatCannotBeMeant(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "is not the address of a Redis",
		"localhost:6379":                 "is not the address of a Redis",
		"http://sesame@h":                "is not the address of a Redis",
		"redis+ring://sesame@h":          "is not the address of a Redis",
		"redis://sesame@a,b":             "several hosts",
		"redis://sesame@":                "like redis://localhost:6379",
		"redis://sesame@h:0":             "like redis://localhost:6379",
		"redis://sesame@h:99999":         "like redis://localhost:6379",
		"redis://sesame@h:1:2":           "like redis://localhost:6379",
		"redis://u:sesame%@h":            "percent-encode special characters",
		"redis://u:sesame#1@h":           "percent-encode special characters",
		"redis://sesame@h/x":             "like redis://localhost:6379",
		"redis://sesame@h/-1":            "like redis://localhost:6379",
		"unix://sesame@h/socket":         "like redis://localhost:6379",
		"redis+cluster://sesame@h/1":     "no databases",
		"redis+sentinel://sesame@h":      "name of the master",
		"redis://sesame@h?tls=1":         "only sentinel_user",
		"redis://h?sentinel_user=sesame": "only sentinel_user",
		"redis://h?%zz=sesame":           "only sentinel_user",
	} {
		_, err := ParseAddress(text)
		switch {
		case err == nil || !strings.Contains(err.Error(), want):
			t.Errorf("%q: %v, want something about %q", text, err, want)
		case strings.Contains(err.Error(), "sesame"):
			t.Errorf("%q: the error shows the value: %v", text, err)
		}
	}
}
