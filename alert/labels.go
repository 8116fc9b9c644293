// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Labels of entities that mean something to Overdue. All others are the operator's own.
const (
	labelSeverity  = "severity"  // in place of the severity that the sink has for missed deadlines
	labelRunbook   = "runbook"   // in place of the runbook of the sink
	labelObjective = "objective" // the share of its deadlines that should be met
)

// severities are the values of the label severity, the gravest first.
var severities = []string{"critical", "error", "warning", "info"}

// Bounds of the labels of an entity.
const (
	maxEntityLabels = 16
	maxLabelName    = 100 // bytes
	maxLabelValue   = 200 // bytes
)

// labelName is how Prometheus lets labels and annotations be called.
var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// reservedLabels are names that alerts have for something else.
var reservedLabels = []string{"alertname", "source", "message_id", "overflow"}

// CheckLabels checks the labels of an entity.
func CheckLabels(labels map[string]string) error {
	if len(labels) > maxEntityLabels {
		return fmt.Errorf("there are %d labels; give %d at most", len(labels), maxEntityLabels)
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		switch value := labels[name]; {
		case !labelName.MatchString(name) || len(name) > maxLabelName || strings.HasPrefix(name, "__"):
			return fmt.Errorf("%.60q is not a name; use letters, digits and '_', and no digit or \"__\" in front", name)
		case labelOf[name] != nil || slices.Contains(reservedLabels, name):
			return fmt.Errorf("%s is set by Overdue itself; use another name", name)
		case value == "" || len(value) > maxLabelValue || !utf8.ValidString(value):
			return fmt.Errorf("the value of %s is not UTF-8 of 1 to %d bytes", name, maxLabelValue)
		}
	}
	if severity := labels[labelSeverity]; severity != "" && !slices.Contains(severities, severity) {
		return fmt.Errorf("severity is %.60q; choose from %s", severity, strings.Join(severities, ", "))
	}
	if text := labels[labelObjective]; text != "" && Objective(labels) == 0 {
		return fmt.Errorf("objective is %.60q; write a share between 0 and 1, such as 0.995", text)
	}
	runbook := labels[labelRunbook]
	if placeholder.MatchString(runbook) { // rules of Prometheus fill in none
		return errors.New("runbook has a placeholder; write the URL for this entity")
	}
	if err := checkLink(runbook); err != nil {
		return fmt.Errorf("runbook: %w", err)
	}
	return nil
}

// Objective returns the share of the deadlines of an entity that should be met, as its labels state
// it. 0 = they do not.
func Objective(labels map[string]string) float64 {
	share, err := strconv.ParseFloat(labels[labelObjective], 64)
	if isShare := share > 0 && share < 1; err != nil || !isShare {
		return 0
	}
	return share
}

// ownLabels returns the labels of the entity of the group, for people: those that are no links.
func (p Notification) ownLabels() string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(p.Labels)) {
		if labelOf[name] == nil && name != labelRunbook && !slices.Contains(reservedLabels, name) {
			pairs = append(pairs, name+" "+p.Labels[name])
		}
	}
	return strings.Join(pairs, ", ")
}
