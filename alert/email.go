// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	client *mail.Client
}

// NewEmail makes a Notifier that sends mail.
func NewEmail(name string, cfg EmailConfig, text Text) (Notifier, error) {
	if cfg.Host == "" || len(cfg.To) == 0 {
		return nil, errors.New("alert: email needs a host and a recipient")
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
	a := &email{cmp.Or(name, "email"), text, cfg, client}
	if _, err := a.message(Notification{}, "", ""); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *email) Name() string { return a.name }

func (a *email) message(p Notification, title, text string) (*mail.Msg, error) {
	m := mail.NewMsg()
	if err := m.From(a.cfg.From); err != nil {
		return nil, fmt.Errorf("alert: email from %q: %w", a.cfg.From, err)
	}
	if err := m.To(a.cfg.To...); err != nil {
		return nil, fmt.Errorf("alert: email to %q: %w", a.cfg.To, err)
	}
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
	return m, nil
}

func (a *email) Notify(ctx context.Context, p Notification) error {
	p, title, text, err := a.text.of(p)
	if err != nil {
		return err
	}
	m, err := a.message(p, title, p.withLinks(text))
	if err != nil {
		return backoff.Permanent(err)
	}
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
