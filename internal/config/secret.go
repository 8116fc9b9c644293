// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"strings"

	"overdue/internal/servicebus/namespace"
)

// maxSecretFile bounds a file with a secret. A connection string has a few hundred bytes.
const maxSecretFile = 16 << 10

// readSecret is what a file holds that has one secret in it. what names that for errors, which show
// nothing of it.
func readSecret(name, what string) (string, error) {
	text, err := ReadBounded(name, maxSecretFile)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", fmt.Errorf("%s is empty; it has to hold %s", name, what)
	}
	if why := namespace.EncodingFault(secret); why != "" {
		return "", fmt.Errorf("%s %s", name, why)
	}
	return secret, nil
}

// orTextFault is err, or what is wrong with the text as such.
func orTextFault(text string, err error) error {
	if why := namespace.TextFault(text); err != nil && why != "" {
		return errors.New("the value " + why)
	}
	return err
}
