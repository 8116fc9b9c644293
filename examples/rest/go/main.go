// SPDX-License-Identifier: Apache-2.0

// Command go sends an order over REST. It needs no SDK.
package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: go run . URL")
	}
	if err := send(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func send(endpoint string) error {
	r, err := http.NewRequest(http.MethodPost, endpoint+"/rest-orders/messages", strings.NewReader("one tea"))
	if err != nil {
		return err
	}
	r.Header.Set("BrokerProperties", `{"MessageId": "order-2", "TimeToLive": 3600}`)
	r.Header.Set("overdue-within", `"2s"`) // a custom property: a string in quotation marks
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	fmt.Println("order-2:", answer.StatusCode)
	return nil
}
