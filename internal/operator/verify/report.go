// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"overdue/internal/broker/quirk"
	"overdue/internal/plural"
	"overdue/internal/servicebus/failure"
	"overdue/internal/servicebus/link"
)

// Quirks are those of an embedded broker that behaves as the trials have found the namespace.
func (r *Report) Quirks() (all quirk.Set) {
	for _, x := range r.Results {
		if x.Verdict == Otherwise {
			all |= x.quirk
		}
	}
	return all
}

// Settings are the quirks as a configuration, in YAML; "" if there are none.
func (r *Report) Settings() string {
	quirks := r.Quirks()
	if quirks == 0 {
		return ""
	}
	return fmt.Sprintf("broker:\n  quirks: [%s]\n", strings.Join(quirks.Names(), ", "))
}

// WriteMarkdown writes the report for an issue. It has no word of the service or of the network, so
// no name, key or address of the namespace can be in it.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	tier := "unknown"
	if slices.Contains([]string{"Basic", "Standard", "Premium"}, r.Tier) {
		tier = r.Tier
	}
	b.WriteString("# Verify report\n\n| | |\n|---|---|\n")
	for _, row := range [][2]string{
		{"Overdue", r.Version}, {"SDK for Go", r.SDK}, {"tier", tier}, {"date", r.Time.Format(time.DateOnly)},
		{"trials", fmt.Sprintf("%d as assumed, %d otherwise, %d could not tell; %s in %.0f s", r.Count(AsAssumed), r.Count(Otherwise), r.Count(Unknown),
			plural.Of(r.Operations, "operation", "operations"), r.Seconds)},
	} {
		fmt.Fprintf(&b, "| %s | %s |\n", row[0], cell(row[1]))
	}
	b.WriteString("\n| verdict | assumption | certainty | seen |\n|---|---|---|---|\n")
	for _, v := range verdicts {
		for _, x := range r.Results {
			if x.Verdict == v {
				fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", v, x.ID, x.Certainty, cell(x.public))
			}
		}
	}
	if settings := r.Settings(); settings != "" {
		fmt.Fprintf(&b, "\nAn embedded broker behaves like this namespace with:\n\n```yaml\n%s```\n", settings)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cell is text in a cell of a Markdown table. Ids of messages come from the service.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "`", "'", "<", "&lt;", "\n", " ").Replace(text)
}

// symbol is a condition of AMQP, such as amqp:link:stolen or com.microsoft:server-busy.
var symbol = regexp.MustCompile(`^(amqp|com\.microsoft)(:[a-z-]{1,40}){1,2}$`)

// class says of which kind an error is, in our own words and with codes alone: what an error says
// may name the namespace, its entities or an identity.
func class(err error) string {
	answer, status, network := (*azcore.ResponseError)(nil), (*link.StatusError)(nil), (net.Error)(nil)
	condition := failure.Condition(err)
	switch {
	case symbol.MatchString(condition):
		return condition
	case errors.As(err, &answer):
		return fmt.Sprintf("status %d", answer.StatusCode)
	case errors.As(err, &status):
		return fmt.Sprintf("status %d", status.Code)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "a timeout"
	case network != nil:
		return "a failure of the network"
	}
	return "an error"
}
