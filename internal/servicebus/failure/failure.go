// SPDX-License-Identifier: Apache-2.0

// Package failure turns errors of Service Bus and its libraries into sentences for people: what the
// service says, without what a library prints around it, and what to do next.
package failure

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/internal/version"
)

// maxReason is how many characters of an error a sentence quotes.
const maxReason = 300

// Reason returns err as part of a sentence: the words of the service if it said anything, without
// its tracking ids.
func Reason(err error) string {
	text := Plain(err).Error()
	for _, mark := range []string{" For more information please see ", " To know more visit ", " TrackingId:", " Reference:", "\n"} {
		text, _, _ = strings.Cut(text, mark)
	}
	if r := []rune(text); len(r) > maxReason {
		text = string(r[:maxReason]) + "…"
	}
	return strings.TrimRight(strings.TrimSpace(text), ".;,")
}

// Plain returns the words of the service in err, or err itself if there are none.
func Plain(err error) error {
	if remote := (*amqp.Error)(nil); errors.As(err, &remote) && remote.Description != "" {
		return errors.New(remote.Description)
	}
	if answer := (*link.StatusError)(nil); errors.As(err, &answer) && answer.Description != "" {
		return errors.New(answer.Description)
	}
	if answer := (*azcore.ResponseError)(nil); errors.As(err, &answer) {
		text := fmt.Sprintf("status %d", answer.StatusCode)
		if code := answer.ErrorCode; code != "" && code != strconv.Itoa(answer.StatusCode) {
			text += " " + code
		}
		return errors.New(text)
	}
	if errors.Is(err, entities.ErrNoRight) {
		_, said, _ := strings.Cut(err.Error(), entities.ErrNoRight.Error()+": ")
		return errors.New(cmp.Or(said, "it needs the Manage right"))
	}
	// The SDK prints some errors of the broker like a struct, and those of requests in a sentence of
	// its own.
	if _, said, ok := strings.Cut(err.Error(), "Description: "); ok {
		said, _, _ = strings.Cut(said, ", Info: ")
		return errors.New(said)
	}
	if _, said, ok := strings.Cut(err.Error(), " and description: "); ok && said != "" {
		return errors.New(said)
	}
	if sb := (*azservicebus.Error)(nil); errors.As(err, &sb) {
		return errors.New(strings.TrimPrefix(sb.Error(), "("+string(sb.Code)+"): ")) // a code is for programs
	}
	return err
}

// Unreachable says what to do about a namespace that cannot be dialed. It returns nil for any other
// error.
func Unreachable(err error) error {
	if certificate, renew := Certificate(err); certificate != "" {
		return fmt.Errorf("the namespace cannot be reached: %s; %s", certificate, renew)
	}
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		return fmt.Errorf("the namespace cannot be reached: %w; check the setting namespace and the network", dial)
	}
	return nil
}

// ConditionTooLarge is one that callers branch on, beside those of package link.
const ConditionTooLarge = string(amqp.ErrCondMessageSizeExceeded)

// Condition returns the AMQP condition of an error of a link, of a management node or of the SDK,
// or "".
func Condition(err error) string {
	sb, answer := (*azservicebus.Error)(nil), (*link.StatusError)(nil)
	switch isSDK := errors.As(err, &sb); {
	case errors.Is(err, azservicebus.ErrMessageTooLarge):
		return ConditionTooLarge
	case isSDK && sb.Code == azservicebus.CodeNotFound:
		return link.ConditionNotFound
	case isSDK && sb.Code == azservicebus.CodeUnauthorizedAccess, errors.As(err, &answer) && answer.Condition == "" && answer.Code == 401:
		return link.ConditionUnauthorized
	}
	return link.Condition(err)
}

const rightsPage = "docs/operate/rights.md"

// NoRightToListen is the error of a client that lacks the Listen right on an entity.
func NoRightToListen(entity string) error {
	return fmt.Errorf("the key or the identity lacks the Listen right on %s; see %s", entity, version.Doc(rightsPage))
}

// Sending turns an error of a send to an entity into one that says what to do.
func Sending(entity string, err error) error {
	sdk := (*azservicebus.Error)(nil)
	switch condition := Condition(err); {
	case condition == ConditionTooLarge:
		return fmt.Errorf("the message is too large for %s; its tier bounds it, and its own limit if it has one", entity)
	case condition == link.ConditionNotFound:
		return fmt.Errorf("there is no queue or topic %q; create it, or correct the name", entity)
	case condition == link.ConditionUnauthorized:
		return fmt.Errorf("no Send right on %s; see %s: %s", entity, version.Doc(rightsPage), Reason(err))
	case errors.As(err, &sdk) && sdk.Code == azservicebus.CodeConnectionLost:
		return fmt.Errorf("the connection was lost, and what was under way may have arrived: %s", Reason(err))
	}
	return fmt.Errorf("send to %s: %s", entity, Reason(err))
}

// Certificate says in a sentence what is wrong with the certificate of a server, and what to do. It
// returns "" for errors that are not about that: no firewall and no address has to do with these.
func Certificate(err error) (says, fix string) {
	if invalid := (x509.CertificateInvalidError{}); errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return expired(invalid.Cert)
	}
	if name := (x509.HostnameError{}); errors.As(err, &name) {
		return fmt.Sprintf("its certificate is for %s, and not for %s", nameOf(name.Certificate), name.Host),
			"use the name that the certificate has, or have one made for this name"
	}
	if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) && unknown.Cert != nil {
		return fmt.Sprintf("its certificate comes from an authority that this machine does not trust (%s)", unknown.Cert.Issuer),
			"if the authority is yours, add its certificate to those of this machine (SSL_CERT_FILE), or name it in the authorityFile of the setting; otherwise something on the way shows a certificate of its own"
	}
	return "", ""
}

// expired is about a certificate at a time when it does not hold.
func expired(c *x509.Certificate) (says, fix string) {
	at := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	now, name := at(time.Now()), nameOf(c)
	if time.Now().Before(c.NotBefore) {
		return fmt.Sprintf("its certificate for %s holds from %s on, and the clock of this machine says %s", name, at(c.NotBefore), now),
			"set the clock of this machine, if it is wrong (timedatectl set-ntp true); otherwise whoever runs the server has to replace the certificate"
	}
	fix = fmt.Sprintf("whoever runs the server has to renew the certificate of %s, which %s issued", name, c.Issuer)
	if strings.HasSuffix(name, ".windows.net") {
		fix = "Microsoft renews this certificate in time: look for a proxy or firewall on the way that shows one of its own, which its owner has to renew"
	}
	return fmt.Sprintf("its certificate for %s ended at %s; the clock of this machine says %s", name, at(c.NotAfter), now), fix + "; or the clock of this machine is wrong"
}

func nameOf(c *x509.Certificate) string {
	return cmp.Or(strings.Join(c.DNSNames[:min(len(c.DNSNames), 3)], ", "), c.Subject.CommonName, "no name")
}
