// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"slices"
	"strings"
	"testing"

	"github.com/nicholas-fedor/shoutrrr/pkg/router"
)

// The services are those of the library, under its names; what is left out says what to take instead.
func TestShoutrrrServicesAreThoseOfTheLibrary(t *testing.T) {
	r := &router.ServiceRouter{}
	names := r.ListServices()
	for _, name := range names {
		theirs, err := r.NewService(name)
		if err != nil {
			t.Fatal(err)
		}
		if sink, ok := insteadOf[name]; ok {
			if _, err := NewShoutrrr("", name+"://host/", Text{}); err == nil || !strings.Contains(err.Error(), "use the sink "+sink) {
				t.Errorf("%s: %v, want an error that names the sink %s", name, err, sink)
			}
			continue
		}
		if mine, ok := services[name]; !ok || mine().GetID() != theirs.GetID() {
			t.Errorf("the service %s is not that of the library", name)
		}
	}
	for name := range services {
		if !slices.Contains(names, name) {
			t.Errorf("the library has no service %s", name)
		}
	}
}
