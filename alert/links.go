// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// placeholders are what a link can name, by the name in braces.
var placeholders = map[string]func(*Notification) string{
	"{namespace}":    func(p *Notification) string { return p.Namespace() },
	"{entity}":       func(p *Notification) string { return p.Labels["entity"] },
	"{subscription}": func(p *Notification) string { return p.Labels["subscription"] },
	"{type}":         func(p *Notification) string { return shortType(p.Labels["type"]) },
}

// WithLinks returns t with links to a dashboard and to a runbook, which may be "". {namespace},
// {entity}, {subscription} and {type} in a link stand for those of the group. Its error is a
// *[SettingError].
func (t Text) WithLinks(dashboard, runbook string) (Text, error) {
	for key, link := range map[string]string{"links.dashboard": dashboard, "links.runbook": runbook} {
		if err := checkLink(link); err != nil {
			return Text{}, &SettingError{Key: key, Err: err}
		}
	}
	t.dashboard, t.runbook = dashboard, runbook
	return t, nil
}

// Bounds of a link, in bytes: with its placeholders, and with the names in their place. Slack takes
// no longer one and counts the entities in it.
const (
	maxLink   = 2000
	maxFilled = 2900
)

func checkLink(link string) error {
	if link == "" {
		return nil
	}
	for _, name := range placeholder.FindAllString(link, -1) {
		if placeholders[name] == nil {
			return fmt.Errorf("%.60s is no placeholder; use %s", name, strings.Join(slices.Sorted(maps.Keys(placeholders)), ", "))
		}
	}
	u, err := url.Parse(placeholder.ReplaceAllString(link, "x"))
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("this is not a URL; write one like https://example.com/orders")
	case strings.Contains(strings.SplitN(link, "/", 4)[2], "{"):
		return errors.New("the host of a link has no placeholders; put them behind it")
	case len(link) > maxLink:
		return fmt.Errorf("a link has %d characters at most", maxLink)
	}
	return nil
}

// link fills in the placeholders. Names come from outside, so each is escaped as a part of a URL. A
// link that they make too long is left out: a part of it would lead elsewhere.
func (p *Notification) link(link string) string {
	if link == "" {
		return ""
	}
	filled := placeholder.ReplaceAllStringFunc(link, func(name string) string {
		return strings.ReplaceAll(url.QueryEscape(placeholders[name](p)), "+", "%20")
	})
	// Chats end a link at some characters that a browser takes.
	filled = strings.NewReplacer(" ", "%20", "|", "%7C", "<", "%3C", ">", "%3E", `"`, "%22", "(", "%28", ")", "%29", "[", "%5B", "]", "%5D", `\`, "%5C", "`", "%60").Replace(filled)
	if len(slackEscape.Replace(filled)) > maxFilled {
		return ""
	}
	return filled
}

// A namedLink is a link in the form of PagerDuty.
type namedLink struct {
	Href string `json:"href"`
	Text string `json:"text"`
}

// links returns the links of a notification.
func (p *Notification) links() (all []namedLink) {
	for _, l := range []namedLink{{p.Dashboard, "Dashboard"}, {p.Runbook, "Runbook"}} {
		if l.Href != "" {
			all = append(all, l)
		}
	}
	return all
}

// withLinks appends the links to a text, for sinks without links of their own.
func (p *Notification) withLinks(text string) string {
	for _, l := range p.links() {
		text += "\n" + l.Text + ": " + l.Href
	}
	return strings.TrimPrefix(text, "\n")
}

// annotations returns the annotations of an alert, with the names that Prometheus rules use.
func (p *Notification) annotations(title, text string) map[string]string {
	all := map[string]string{"summary": title, "description": text}
	if p.Dashboard != "" {
		all["dashboard_url"] = p.Dashboard
	}
	if p.Runbook != "" {
		all["runbook_url"] = p.Runbook
	}
	return all
}
