// SPDX-License-Identifier: Apache-2.0

package adminapi_test

import (
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestListsAreInTheOrderOfTheNamesAndFiltered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // whose clock begins at midnight of 2000
		n, h := setup(t)
		for _, name := range []string{"orders", "Zoo", "orders.late", "bills"} {
			must(t, h, 201, "PUT", "/"+name+version, queue)
			time.Sleep(time.Hour)
		}
		e, err := n.Entity("bills")
		check(t, err)
		if err := e.Send([]byte{0x00, 0x53, 0x75, 0xa0, 0x02, 'h', 'i'}); err != nil { // a data section
			t.Fatal(err)
		}
		for filter, want := range map[string]string{
			"":                                   "Zoo bills orders orders.late",
			"startswith(path, 'Orders') eq true": "orders orders.late",
			"startswith(path,'orders')":          "orders orders.late",
			"startswith(path, 'orders') eq false AND messageCount Gt 0": "bills",
			"messageCount Gt 0":                   "bills",
			"messageCount le 0 and path ne 'zoo'": "orders orders.late",
			"Path Eq 'ORDERS'":                    "orders",
			"createdAt Ge '2000-01-01T01:00:00' and CreatedAt lt '2000-01-01T03:00:00Z'": "Zoo orders.late",
			"ModifiedAt Gt '1/1/2000 1:30:00 AM'":                                        "bills orders.late",
			"AccessedAt Lt '1999-12-31'":                                                 "Zoo orders orders.late",
			"path Eq 'it''s'":                                                            "",
			"path Like 'o%'":                                                             "!", "weight Gt 1": "!", "messageCount Gt 'many'": "!", "path Eq 'x' or path Eq 'y'": "!", "path": "!",
		} {
			status, answer := ask(h, "GET", "/$Resources/Queues?api-version=2021-05&$filter="+strings.NewReplacer(" ", "%20", "%", "%25").Replace(filter), "")
			got := "!"
			if status == 200 {
				var titles []string
				for _, m := range regexp.MustCompile(`<entry [^>]*><id>[^<]*</id><title type="text">([^<]*)`).FindAllStringSubmatch(answer, -1) {
					titles = append(titles, m[1])
				}
				got = strings.Join(titles, " ")
			}
			if got != want || got == "!" && status != 400 {
				t.Errorf("the filter %q = %d %q, want %q", filter, status, got, want)
			}
		}
	})
}
