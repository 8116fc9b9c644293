// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"strings"
	"unicode/utf16"
)

// chat posts to a channel.
type chat struct {
	text Text
	form func(p *Notification, title, text string) any
	*poster
}

// NewChat makes a Notifier that posts to a channel of a kind of chat. For "slack" it posts by an
// incoming webhook; for "teams" it posts an Adaptive Card to a workflow with the trigger "When a
// Teams webhook request is received".
//
// The services of shoutrrr for these two do not suffice. They escape nothing, so that a message id
// can notify people, and they keep no limits of length. They do not say when to try again, which
// Retry-After does. Slack has one host there, and Teams the addresses of connectors, whose cards
// workflows do not take.
func NewChat(kind, name string, cfg HTTP, text Text) (Notifier, error) {
	form := slackMessage
	if kind == "teams" {
		form = teamsMessage
	}
	p, err := newPoster(kind, name, cfg)
	if err != nil {
		return nil, err
	}
	return &chat{text, form, p}, nil
}

func (c *chat) Notify(ctx context.Context, p Notification) error {
	p, title, text, err := c.text.render(p)
	if err != nil {
		return err
	}
	return c.postWithin(ctx, maxChat, text, func(text string) any { return c.form(&p, title, text) })
}

type object = map[string]any

func slackMessage(p *Notification, title, text string) any {
	// Plain text: message ids come from outside and must not become links or mentions.
	blocks := []object{{"type": "header", "text": slackText(title, maxSlackHeader)}}
	if text != "" {
		blocks = append(blocks, object{"type": "section", "text": slackText(text, maxSlackSection)})
	}
	for _, links := range slackLinks(p) {
		blocks = append(blocks, object{"type": "section", "text": object{"type": "mrkdwn", "text": links}})
	}
	return object{"text": slackEscape.Replace(title), "blocks": blocks}
}

func slackText(text string, limit int) object {
	return object{"type": "plain_text", "text": fit(text, limit, slackSize), "emoji": false}
}

// slackLinks returns the links of p as the texts of sections: of one, if they fit.
func slackLinks(p *Notification) (sections []string) {
	for _, l := range p.links() {
		link := "<" + slackEscape.Replace(l.Href) + "|" + l.Text + ">"
		if last := len(sections) - 1; last >= 0 && len(sections[last]+" · "+link) <= maxSlackSection {
			sections[last] += " · " + link
			continue
		}
		sections = append(sections, link)
	}
	return sections
}

// slackSize counts the characters of a text as strictly as Slack may: in units of UTF-16, with its
// entities.
func slackSize(text string) int { return len(utf16.Encode([]rune(slackEscape.Replace(text)))) }

var slackEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

func teamsMessage(p *Notification, title, text string) any {
	color := "attention"
	switch {
	case p.Resolved:
		color = "good"
	case p.severity("critical") == "warning" || p.severity("critical") == "info":
		color = "warning"
	}
	body := []object{{"type": "TextBlock", "text": teamsEscape.Replace(title), "weight": "bolder", "size": "medium", "wrap": true, "color": color}}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			body = append(body, object{"type": "TextBlock", "text": teamsEscape.Replace(line), "wrap": true, "spacing": "small"})
		}
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
