// SPDX-License-Identifier: Apache-2.0

package adminport

import (
	"cmp"
	"encoding/json"
	"net/http"

	"overdue/internal/escape"
)

// configz shows the settings in force and where each that is not a default came from.
func (a *Port) configz(w http.ResponseWriter, _ *http.Request) {
	body, err := json.MarshalIndent(cmp.Or(a.Current.Load(), a.Config).Redacted(), "", "  ")
	if err != nil {
		answer(w, http.StatusInternalServerError, "the configuration cannot be shown: "+err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(escape.JSON(body), '\n')) // an error is the caller's loss only
}
