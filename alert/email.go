// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	netmail "net/mail"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/wneessen/go-mail"
)

// Values of EmailConfig.Security.
const (
	startTLS    = "starttls" // begins in the clear; required to switch to TLS
	implicitTLS = "tls"      // from the first byte
	noTLS       = "none"
)

// EmailConfig configures a sink that sends mail.
type EmailConfig struct {
	Host     string
	Port     int    // 0 = 587, 465 or 25, by Security
	Security string // starttls, tls or none; "" = starttls
	Username string // "" = no authentication
	Password string
	From     string
	To       []string
	Timeout  time.Duration // of one mail; 0 = 10 s

	dial mail.DialContextFunc // nil: the network
}

type email struct {
	name   string
	text   Text
	cfg    EmailConfig
	from   *netmail.Address
	to     []*netmail.Address
	client *mail.Client
}

// NewEmail makes a Notifier that sends mail.
func NewEmail(name string, cfg EmailConfig, text Text) (Notifier, error) {
	if cfg.Host == "" || len(cfg.To) == 0 {
		return nil, errors.New("alert: email needs a host and a recipient")
	}
	from, err := mailbox(cfg.From)
	if err != nil {
		return nil, fmt.Errorf("alert: email from %w", err)
	}
	var to []*netmail.Address
	for _, text := range cfg.To {
		a, err := mailbox(text)
		if err != nil {
			return nil, fmt.Errorf("alert: email to %w", err)
		}
		to = append(to, a)
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, 10*time.Second)
	opts := []mail.Option{mail.WithTimeout(cfg.Timeout)}
	switch port := cfg.Port; cmp.Or(cfg.Security, startTLS) {
	case startTLS:
		opts = append(opts, mail.WithTLSPolicy(mail.TLSMandatory), mail.WithPort(cmp.Or(port, mail.DefaultPortTLS)))
	case implicitTLS:
		opts = append(opts, mail.WithSSL(), mail.WithPort(cmp.Or(port, mail.DefaultPortSSL)))
	case noTLS:
		opts = append(opts, mail.WithTLSPolicy(mail.NoTLS), mail.WithPort(cmp.Or(port, mail.DefaultPort)))
	default:
		return nil, fmt.Errorf("alert: email security %q is not one of starttls, tls, none", cfg.Security)
	}
	if cfg.Username != "" {
		// Auto-discovery takes the best mechanism of the server, and no plain one without TLS.
		opts = append(opts, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(cfg.Username), mail.WithPassword(cfg.Password))
	}
	if cfg.dial != nil {
		opts = append(opts, mail.WithDialContextFunc(cfg.dial))
	}
	client, err := mail.NewClient(cfg.Host, opts...)
	if err != nil {
		return nil, fmt.Errorf("alert: email: %w", err)
	}
	return &email{cmp.Or(name, "email"), text, cfg, from, to, client}, nil
}

func (a *email) Name() string { return a.name }

// mailbox reads an address with or without a display name. Unlike in a header, a name may lack its
// quotes: people write Doe, Jane <jane@example.com>.
func mailbox(text string) (*netmail.Address, error) {
	parsed, err := netmail.ParseAddress(text)
	if err == nil {
		return parsed, nil
	}
	name, address, _ := strings.Cut(text, "<")
	bare, bareErr := netmail.ParseAddress("<" + address)
	if bareErr != nil || strings.ContainsAny(name, `@"`) {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	return &netmail.Address{Name: strings.TrimSpace(name), Address: bare.Address}, nil
}

func (a *email) message(p Notification, title, text string) *mail.Msg {
	m := mail.NewMsg()
	m.FromMailAddress(a.from)
	m.ToMailAddress(a.to...)
	m.Subject(title)
	m.SetDate()
	m.SetMessageID()
	m.SetGenHeader("Auto-Submitted", "auto-generated") // prevents out-of-office replies
	if p.Key != "" {
		// One thread per group.
		m.SetGenHeader("References", "<"+p.Key+"@overdue>")
		m.SetGenHeader("X-Overdue-Group", p.Key)
	}
	m.SetBodyString(mail.TypeTextPlain, title+"\n\n"+text+"\n")
	return m
}

func (a *email) Notify(ctx context.Context, p Notification) error {
	p, title, text, err := a.text.render(p)
	if err != nil {
		return err
	}
	m := a.message(p, title, p.withLinks(text))
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	if err := a.client.DialAndSendWithContext(ctx, m); err != nil {
		err = fmt.Errorf("alert: email through %s: %w", a.cfg.Host, err)
		if sent := (*mail.SendError)(nil); errors.As(err, &sent) && sent.ErrorCode() >= 500 {
			return backoff.Permanent(err)
		}
		return err
	}
	return nil
}
