// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxAnswer bounds what is read of an answer.
const maxAnswer = 100

// Ask asks a question, to which only y and yes agree. Where there is nobody to answer, as in a cron
// job, that is an error: what the command was called for is not done.
func Ask(w io.Writer, in io.Reader, question string) (agreed bool, err error) {
	if _, err := fmt.Fprintf(w, "%s [y/N] ", question); err != nil {
		return false, err
	}
	line, failure := bufio.NewReader(io.LimitReader(in, maxAnswer)).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	}
	if line != "" {
		failure = nil
	}
	text := "Nothing was changed."
	if failure != nil {
		text = "\n" + text
	}
	if _, err := fmt.Fprintln(w, text); err != nil {
		return false, err
	}
	switch {
	case errors.Is(failure, io.EOF):
		return false, errors.New("the question could not be asked, because standard input is at its end; --yes answers it")
	case failure != nil:
		return false, fmt.Errorf("the question could not be asked: %w; --yes answers it", failure)
	}
	return false, nil
}
