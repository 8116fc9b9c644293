// SPDX-License-Identifier: Apache-2.0

package check

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
)

// The apps of the examples run in test/sdk. No container engine is to be had here, so of their
// Compose files everything is checked that could keep the containers from working together.
func TestComposeFilesOfTheExamplesLoad(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/compose.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("Compose files of the examples: %q, %v", files, err)
	}
	for _, file := range files {
		example := filepath.Base(filepath.Dir(file))
		project := compose(t, filepath.Dir(file))
		if want := "overdue-example-" + example; project.Name != want {
			t.Errorf("%s is called %q, want %q", file, project.Name, want)
		}
		if _, ok := project.Services["overdue"]; !ok {
			t.Errorf("%s has no service called overdue, whose log the README shows", file)
		}
		for name, s := range project.Services {
			where := example + "/" + name
			if s.Image == "overdue" {
				checkOverdueService(t, where, project, s)
			}
			if s.Build != nil {
				t.Errorf("%s is built, want an image that is to be had", where)
			}
			for _, v := range s.Volumes {
				if _, err := os.Stat(v.Source); err != nil || !v.ReadOnly {
					t.Errorf("%s mounts %s, which is not there or can be written to (%v)", where, v.Source, err)
				}
			}
			for other, on := range s.DependsOn {
				if project.Services[other].Image == "overdue" && on.Condition != types.ServiceConditionHealthy {
					t.Errorf("%s starts before %s is ready", where, other)
				}
			}
			network, shares := strings.CutPrefix(s.NetworkMode, "service:")
			if text := strings.Join(s.Command, " "); strings.Contains(text, "127.0.0.1:5") && !shares {
				t.Errorf("%s says %s in a network of its own", where, text)
			}
			if shares && project.Services[network].Image != "overdue" {
				t.Errorf("%s shares the network of %s, want that of Overdue or of its broker", where, network)
			}
		}
	}
}

// checkOverdueService checks a container that runs the program.
func checkOverdueService(t *testing.T, where string, project *types.Project, s types.ServiceConfig) {
	t.Helper()
	env := map[string]string{}
	for k, v := range s.Environment {
		env[k] = *v
	}
	args := slices.Clone(s.Command)
	if i := slices.Index(args, "--config"); i >= 0 {
		mounted := slices.IndexFunc(s.Configs, func(c types.ServiceConfigObjConfig) bool { return c.Target == args[i+1] })
		if mounted < 0 {
			t.Fatalf("%s reads %s, which is not mounted", where, args[i+1])
		}
		env["OVERDUE_CONFIG"] = project.Configs[s.Configs[mounted].Source].File
		args = slices.Delete(args, i, i+2)
	}
	checkCommand(t, where, args, env)
	if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) {
		t.Errorf("%s may do more than run", where)
	}
}
