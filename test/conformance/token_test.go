// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"
)

// serveTokens plays the managed identity of an Azure App Service: it hands out a token to
// every caller. The token has the form of a JWT of Microsoft Entra and nobody's signature:
// the embedded broker trusts every such token, as its documentation says.
func serveTokens() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		expires := time.Now().Add(time.Hour)
		w.Header().Set("Content-Type", "application/json")
		// An error here is the test's, which then has no token and says so.
		_ = json.NewEncoder(w).Encode(map[string]string{
			"access_token": jwt(r.FormValue("resource"), expires),
			"expires_on":   strconv.FormatInt(expires.Unix(), 10),
			"resource":     r.FormValue("resource"),
			"token_type":   "Bearer",
		})
	}))
}

func jwt(audience string, expires time.Time) string {
	part := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			panic(err) // maps of strings and numbers always marshal
		}
		return base64.RawURLEncoding.EncodeToString(data)
	}
	return part(map[string]string{"alg": "none", "typ": "JWT"}) + "." +
		part(map[string]any{"aud": audience, "exp": expires.Unix(), "sub": "conformance"}) + "."
}
