// SPDX-License-Identifier: Apache-2.0

package adminapi_test

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
	"overdue/internal/broker/adminapi"
)

var update = flag.Bool("update", false, "write what the tests got to testdata/golden")

var uuid = regexp.MustCompile("uuid:[0-9a-f-]{36}")

// golden compares an answer with a file, in which every element begins a line.
func golden(t *testing.T, name, answer string) {
	t.Helper()
	file := "testdata/golden/" + name + ".xml"
	got := uuid.ReplaceAllString(strings.ReplaceAll(answer, "><", ">\n<")+"\n", "uuid:UUID")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestEntitiesAreWrittenAsTheServiceWritesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // whose clock begins at midnight of 2000
		_, h := setup(t)
		golden(t, "queue", must(t, h, 201, "PUT", "/q/a"+version, describe("QueueDescription",
			`<LockDuration>PT45S</LockDuration><AuthorizationRules><AuthorizationRule i:type="SharedAccessAuthorizationRule">`+
				`<Rights><AccessRights>Listen</AccessRights><AccessRights>Manage</AccessRights><AccessRights>Send</AccessRights></Rights>`+
				`<KeyName>k</KeyName><PrimaryKey>p</PrimaryKey><SecondaryKey>s</SecondaryKey></AuthorizationRule></AuthorizationRules>`+
				`<UserMetadata>a &lt; b &amp; "c"</UserMetadata>`)))
		golden(t, "topic", must(t, h, 201, "PUT", "/t"+version, topic))
		golden(t, "subscription", must(t, h, 201, "PUT", "/T/subscriptions/s"+version,
			describe("SubscriptionDescription", `<ForwardTo>sb://overdue.test/q/a</ForwardTo>`)))
		golden(t, "rule", must(t, h, 201, "PUT", "/t/Subscriptions/s/Rules/r"+version, describe("RuleDescription",
			`<Filter i:type="SqlFilter"><SqlExpression>a = @a</SqlExpression><Parameters><KeyValueOfstringanyType><Key>@a</Key>`+
				`<Value i:type="x:int" xmlns:x="http://www.w3.org/2001/XMLSchema">1</Value></KeyValueOfstringanyType></Parameters></Filter>`)))
		golden(t, "rules", must(t, h, 200, "GET", "/t/Subscriptions/s/Rules/?$top=1&api-version=2024-05", ""))
		golden(t, "namespace", must(t, h, 200, "GET", "/$namespaceinfo"+version, ""))
		golden(t, "nothing", must(t, h, 200, "GET", "/none"+version, ""))
	})
}

func TestOlderVersionsLackWhatCameLater(t *testing.T) {
	_, h := setup(t)
	must(t, h, 201, "PUT", "/t"+version, topic)
	for version, want := range map[string][2]bool{
		"": {}, "?api-version=2017-04": {}, "?api-version=2021-05": {true, false}, "?api-version=2024-05": {true, true},
	} {
		answer := must(t, h, 200, "GET", "/t"+version, "")
		got := [2]bool{strings.Contains(answer, "<MaxMessageSizeInKilobytes>"), strings.Contains(answer, "<SqlFilterCount>")}
		if got != want {
			t.Errorf("version %q has MaxMessageSizeInKilobytes and SqlFilterCount: %v, want %v", version, got, want)
		}
	}
}

func TestBodiesOfAllSDKsAreUnderstood(t *testing.T) {
	for name, body := range bodies(t) {
		t.Run(name, func(t *testing.T) {
			n, h := setup(t)
			scene(t, n)
			path := place(body)
			must(t, h, 201, "PUT", path+version, body)
			read := must(t, h, 200, "GET", path+version, "")
			// A queue that was read can be written back, and changes nothing.
			must(t, h, 200, "PUT", path+version, read, "If-Match", "*")
			if diff := cmp.Diff(settings(read), settings(must(t, h, 200, "GET", path+version, ""))); diff != "" {
				t.Errorf("written back (-want +got):\n%s", diff)
			}
		})
	}
}

// settings is the description in an answer without the times that change by themselves, and with
// one prefix for counts.
func settings(answer string) string {
	answer = strings.ReplaceAll(answer[max(0, strings.Index(answer, "<content")):], "d3p1", "d2p1")
	for _, name := range []string{"UpdatedAt", "AccessedAt"} {
		from, to := strings.Index(answer, "<"+name+">"), strings.Index(answer, "</"+name+">")
		if from >= 0 && to > from {
			answer = answer[:from] + answer[to:]
		}
	}
	return answer
}

func wellFormed(document string) error {
	d := xml.NewDecoder(strings.NewReader(document))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func TestARuleIsCalledAsThePathSays(t *testing.T) {
	n, h := setup(t)
	scene(t, n)
	for _, name := range []string{"other", "$default2", "-a.b_c-", "é", "a b", "a!", "$x"} {
		path := "/t/Subscriptions/s/Rules/" + url.PathEscape(name) + version
		if strings.ContainsAny(name, " $!") {
			want := "<Detail>'sb://overdue.test" + path + "' contains character(s) that is not allowed by Service Bus. Entity segments can contain " +
				"only letters, numbers, periods (.), hyphens (-), and underscores (_). TrackingId:"
			if answer := must(t, h, 400, "PUT", path, trueRule); !strings.Contains(answer, want) {
				t.Errorf("PUT %s = %s, want it to say %s", path, answer, want)
			}
		} else if got := element(t, must(t, h, 201, "PUT", path, trueRule), "Name"); got != name { // not what the body says
			t.Errorf("PUT %s made the rule %q, want %q", path, got, name)
		}
	}
	must(t, h, 400, "PUT", "/t/Subscriptions/s/Rules/"+strings.Repeat("x", 51)+version, trueRule)
	must(t, h, 400, "PUT", "/t/Subscriptions/s/Rules/"+version, trueRule)
}

// A PUT is answered with what it brought, a GET with empty parameters, too.
func TestARuleComesBackInItsOrder(t *testing.T) {
	n, h := setup(t)
	scene(t, n)
	const place = "/t/Subscriptions/s/Rules/r" + version
	parameters := `<Parameters>` + parameter("@z", "long", "3") + parameter("@a", "int", "1") + parameter("@m", "string", "x") + `</Parameters>`
	header := []string(nil)
	for _, c := range []struct{ sent, put, get string }{
		{"", "", "<Parameters></Parameters>"},
		{"<Parameters/>", "<Parameters></Parameters>", "<Parameters></Parameters>"},
		{parameters, parameters, parameters},
		{"<RequiresPreprocessing>true</RequiresPreprocessing>", "<RequiresPreprocessing>true</RequiresPreprocessing>",
			"<RequiresPreprocessing>true</RequiresPreprocessing><Parameters></Parameters>"},
		{parameters + "<RequiresPreprocessing>false</RequiresPreprocessing>", parameters + "<RequiresPreprocessing>false</RequiresPreprocessing>",
			parameters + "<RequiresPreprocessing>false</RequiresPreprocessing>"},
	} {
		put := must(t, h, 201-len(header)/2, "PUT", place, describe("RuleDescription",
			sqlRule("SqlFilter", "a = 1", c.sent)+sqlRule("SqlRuleAction", "SET b = 1", c.sent)), header...)
		header = []string{"If-Match", "*"}
		const level = "<CompatibilityLevel>20</CompatibilityLevel>"
		for answer, want := range map[string]string{put: c.put, must(t, h, 200, "GET", place, ""): c.get} {
			want = sqlRule("SqlFilter", "a = 1", level+want) + sqlRule("SqlRuleAction", "SET b = 1", level+want)
			if !strings.Contains(answer, want) {
				t.Errorf("a rule with %s came back as\n%s\nwant\n%s", c.sent, answer, want)
			}
		}
	}
	for _, kind := range []string{"TrueFilter", "FalseFilter"} {
		answer := must(t, h, 200, "PUT", place, describe("RuleDescription",
			`<Filter i:type="`+kind+`"><SqlExpression>1=1</SqlExpression>`+parameters+`<RequiresPreprocessing>true</RequiresPreprocessing></Filter>`), header...)
		if !strings.Contains(answer, `<CompatibilityLevel>20</CompatibilityLevel></Filter><Action i:type="EmptyRuleAction"></Action>`) {
			t.Errorf("a %s came back as\n%s\nwant its expression and level alone", kind, answer)
		}
	}
}

func parameter(key, kind, value string) string {
	return `<KeyValueOfstringanyType><Key>` + key + `</Key><Value i:type="d6p1:` + kind + `" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">` + value +
		`</Value></KeyValueOfstringanyType>`
}

func TestPathsAreComparedWithoutCaseAndMayHaveSlashes(t *testing.T) {
	n, h := setup(t)
	if _, err := n.CreateTopic(broker.TopicConfig{Name: "a/rules/b"}); err != nil {
		t.Fatal(err)
	}
	must(t, h, 201, "PUT", "/a/rules/b/subscriptions/s"+version, subscription)
	must(t, h, 201, "PUT", "/a%2Frules%2Fb/SUBSCRIPTIONS/s/RULES/r"+version, trueRule)
	for path, title := range map[string]string{
		"/$Resources/Queues": "Queues", "/$resources/queues": "Queues", "/$RESOURCES/TOPICS/": "Topics",
		"/A/Rules/B": "a/rules/b", "/a/rules/b/Subscriptions/": "Subscriptions", "/a/rules/b/subscriptions/S": "s",
		"/a/rules/b/Subscriptions/s/rules": "Rules", "/a/rules/b/Subscriptions/s/Rules/R": "r", "/$NamespaceInfo": "overdue",
	} {
		if got := element(t, must(t, h, 200, "GET", path+version, ""), "title"); got != title {
			t.Errorf("GET %s = an answer titled %q, want %q", path, got, title)
		}
	}
}

func TestListsSayWhereTheNextPageBegins(t *testing.T) {
	_, h := setup(t)
	for i := range 5 {
		must(t, h, 201, "PUT", fmt.Sprintf("/q%d%s", i, version), queue)
	}
	next := "/$Resources/Queues?%24top=2&api-version=2021-05"
	var titles []string
	for next != "" {
		var feed struct {
			Links []struct {
				Rel  string `xml:"rel,attr"`
				Href string `xml:"href,attr"`
			} `xml:"link"`
			Entries []struct {
				Title string `xml:"title"`
			} `xml:"entry"`
		}
		if err := xml.Unmarshal([]byte(must(t, h, 200, "GET", next, "")), &feed); err != nil {
			t.Fatal(err)
		}
		for _, e := range feed.Entries {
			titles = append(titles, e.Title)
		}
		if next = ""; len(feed.Links) == 2 && feed.Links[1].Rel == "next" {
			next = feed.Links[1].Href
		}
	}
	if diff := cmp.Diff([]string{"q0", "q1", "q2", "q3", "q4"}, titles); diff != "" {
		t.Errorf("titles on all pages (-want +got):\n%s", diff)
	}
	must(t, h, 400, "GET", "/$Resources/Queues?$top=many", "")
	must(t, h, 400, "GET", "/$Resources/Queues?$skip=-1", "")
	if got := must(t, h, 200, "GET", "/$Resources/Queues?$skip=9999999&$top=9223372036854775807", ""); strings.Contains(got, "<entry") {
		t.Errorf("a page behind the end = %s, want it to be empty", got)
	}
}

func TestForwardsMakeTheirDestinationWhereQueuesAreMadeOnDemand(t *testing.T) {
	n, h := setup(t, func(c *broker.Config, _ *adminapi.Options) { c.AutoCreate = true })
	for _, to := range []string{"self", "sb://overdue.test/SELF/"} {
		must(t, h, 400, "PUT", "/self"+version, describe("QueueDescription", "<ForwardTo>"+to+"</ForwardTo>"))
	}
	if got := n.Queues(); len(got) != 0 {
		t.Errorf("queues after one that leads to itself = %v, want none", got)
	}
	must(t, h, 201, "PUT", "/q"+version, describe("QueueDescription", "<ForwardTo>new</ForwardTo>"))
	if _, err := n.QueueInfo("new"); err != nil {
		t.Errorf("the destination: %v", err)
	}
}

func TestAFullNamespaceRefusesMore(t *testing.T) {
	_, h := setup(t, func(c *broker.Config, _ *adminapi.Options) { c.MaxEntities = 1 })
	must(t, h, 201, "PUT", "/q"+version, queue)
	answer := must(t, h, 403, "PUT", "/r"+version, queue)
	if got := element(t, answer, "Code"); got != "403" {
		t.Errorf("Code = %s, want 403\n%s", got, answer)
	}
}

func TestAnAnswerThatNobodyReadsEnds(t *testing.T) {
	_, h := setup(t)
	must(t, h, 201, "PUT", "/q"+version, queue)
	h.ServeHTTP(deaf{}, httptest.NewRequest("GET", "/$Resources/Queues", nil))
}

// deaf is a client that has gone.
type deaf struct{}

func (deaf) Header() http.Header       { return http.Header{} }
func (deaf) WriteHeader(int)           {}
func (deaf) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
