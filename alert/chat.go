// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"cmp"
	"context"
	"strings"
)

// chat posts to a channel.
type chat struct {
	name string
	text Text
	form func(p *Notification, title, text string) any
	*poster
}

// NewChat makes a Notifier that posts to a channel of a kind of chat: "slack", by an incoming
// webhook, or "teams", an Adaptive Card to a workflow with the trigger "When a Teams webhook request
// is received".
func NewChat(kind, name string, cfg HTTP, text Text) (Notifier, error) {
	form := slackMessage
	if kind == "teams" {
		form = teamsMessage
	}
	p, err := newPoster(kind, cfg)
	if err != nil {
		return nil, err
	}
	return &chat{cmp.Or(name, kind), text, form, p}, nil
}

func (c *chat) Name() string { return c.name }

func (c *chat) Notify(ctx context.Context, p Notification) error {
	p, title, text, err := c.text.of(p)
	if err != nil {
		return err
	}
	return c.post(ctx, "application/json", "", "", c.form(&p, title, text))
}

type object = map[string]any

// Slack takes at most 150 characters in a header and 3,000 in a section.
const (
	maxSlackHeader  = 150
	maxSlackSection = 3000
)

func slackMessage(p *Notification, title, text string) any {
	blocks := []object{{"type": "header", "text": object{"type": "plain_text", "text": cut(title, maxSlackHeader), "emoji": false}}}
	if text != "" {
		// Plain text: message ids come from outside and must not become links or mentions.
		blocks = append(blocks, object{"type": "section", "text": object{"type": "plain_text", "text": cut(text, maxSlackSection), "emoji": false}})
	}
	var links []string
	for _, l := range p.links() {
		links = append(links, "<"+slackEscape.Replace(l.Href)+"|"+l.Text+">")
	}
	if links != nil {
		blocks = append(blocks, object{"type": "section", "text": object{"type": "mrkdwn", "text": strings.Join(links, " · ")}})
	}
	return object{"text": slackEscape.Replace(title), "blocks": blocks}
}

var slackEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

func teamsMessage(p *Notification, title, text string) any {
	color := "attention"
	switch {
	case p.Resolved:
		color = "good"
	case p.severity("critical") == "warning":
		color = "warning"
	}
	body := []object{{"type": "TextBlock", "text": teamsEscape.Replace(title), "weight": "bolder", "size": "medium", "wrap": true, "color": color}}
	for line := range strings.Lines(text) {
		body = append(body, object{"type": "TextBlock", "text": teamsEscape.Replace(strings.TrimSpace(line)), "wrap": true, "spacing": "small"})
	}
	card := object{"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4", "body": body}
	var actions []object
	for _, l := range p.links() {
		actions = append(actions, object{"type": "Action.OpenUrl", "title": l.Text, "url": l.Href})
	}
	if actions != nil {
		card["actions"] = actions
	}
	return object{
		"type":        "message",
		"attachments": []object{{"contentType": "application/vnd.microsoft.card.adaptive", "content": card}},
	}
}

// teamsEscape escapes Markdown, which cards interpret.
var teamsEscape = strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "<", "&lt;", ">", "&gt;")
