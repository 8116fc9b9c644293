// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"strings"
	"testing"
)

func TestShoutrrrRefusesServicesThatASinkReplaces(t *testing.T) {
	for service, sink := range map[string]string{"smtp": "email", "generic": "webhook", "logger": "log"} {
		_, err := NewShoutrrr("", service+"://host/", Text{})
		if want := "the service " + service + " is not supported; use the sink " + sink; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewShoutrrr(%s://host/) = %v, want an error with %q", service, err, want)
		}
	}
}

func TestShoutrrrNamesTheServicesItKnows(t *testing.T) {
	_, err := NewShoutrrr("", "nosuch://host/", Text{})
	if err == nil || !strings.Contains(err.Error(), "there is no service nosuch; use one of bark, discord, ") || strings.Contains(err.Error(), "smtp") {
		t.Errorf("NewShoutrrr(nosuch://host/) = %v, want an error that names bark, discord and others, without smtp", err)
	}
}

func TestShoutrrrRefusesURLsThatAServiceCannotConvert(t *testing.T) {
	for url, want := range map[string]string{
		"":                        "needs a URL such as ntfy://host/topic",
		"://":                     "needs a URL such as ntfy://host/topic",
		"telegram+https://host/x": "takes no URL of the form telegram+https://",
	} {
		if _, err := NewShoutrrr("", url, Text{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewShoutrrr(%q) = %v, want an error with %q", url, err, want)
		}
	}
}
