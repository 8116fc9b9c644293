// SPDX-License-Identifier: Apache-2.0

package atom

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"net/url"
	"regexp"
	"strings"

	"overdue/internal/servicebus/address"
)

// A Naming translates the names that a namespace gives itself to those that the client of a proxy
// uses. They are the host that the client asks, and the first label of that.
type Naming struct {
	theirs, ours string
	ids, texts   *strings.Replacer
	names        map[string]string // elements that have nothing but the name of the namespace
}

// NewNaming returns the naming for a client that has asked for a URL at the proxy, in front of a
// namespace at the host theirs.
func NewNaming(asked url.URL, theirs string) Naming {
	ours := cmp.Or(asked.Host, theirs) // HTTP/1.0 needs none
	theirName, ourName := address.NamespaceName(theirs), address.NamespaceName(ours)
	root := asked.Scheme + "://" + ours + "/"
	n := Naming{
		theirs: theirs, ours: ours,
		ids: strings.NewReplacer("http://"+theirs+"/", root, "https://"+theirs+"/", root, "sb://"+theirs+"/", "sb://"+ours+"/"),
		texts: strings.NewReplacer("://"+theirs, "://"+ours, "SystemTracker:"+theirs, "SystemTracker:"+ours,
			"'"+theirName+":", "'"+ourName+":", "'"+theirName+"'", "'"+ourName+"'",
			"namespace "+theirName+" ", "namespace "+ourName+" ", "namespaces/"+theirName+"/", "namespaces/"+ourName+"/"),
		names: map[string]string{theirName + "</name>": ourName + "</name>"},
	}
	if strings.EqualFold(asked.Path, "/$namespaceinfo") {
		n.names[theirName+"</title>"], n.names[theirName+"</Name>"] = ourName+"</title>", ourName+"</Name>"
	}
	return n
}

// Copy copies an answer of the administration API, or an error. It looks at one tag at a time, with
// the text before it; a text that is longer than its buffer passes unchanged.
func (n Naming) Copy(w io.Writer, r io.Reader) error {
	in, out := bufio.NewReaderSize(r, 64<<10), bufio.NewWriter(w)
	for {
		part, err := in.ReadSlice('>')
		text := string(part)
		if err == nil {
			text = n.translated(text)
		}
		_, failed := out.WriteString(text)
		switch {
		case failed != nil:
			return failed
		case errors.Is(err, io.EOF):
			return out.Flush()
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return errors.Join(err, out.Flush())
		}
	}
}

func (n Naming) translated(text string) string {
	switch tag := text[max(0, strings.LastIndexByte(text, '<')):]; {
	case tag == "</id>", strings.HasPrefix(tag, "<link "), strings.HasPrefix(tag, "<entry "):
		return n.ids.Replace(text)
	case tag == "</Detail>", tag == "</"+ForwardTo+">", tag == "</"+ForwardDeadLettersTo+">":
		return n.texts.Replace(text)
	}
	return cmp.Or(n.names[text], text)
}

// forwardHost is the host of what an entity is to forward to, behind what comes before it.
var forwardHost = regexp.MustCompile(`((?:` + ForwardTo + `|` + ForwardDeadLettersTo + `)[^<>]*>\s*[\w+.-]+://)([^/<\s]+)`)

// Forwards makes the namespace's host of the client's where a description forwards: a namespace
// takes no host but its own there.
func (n Naming) Forwards(description []byte) []byte {
	return forwardHost.ReplaceAllFunc(description, func(found []byte) []byte {
		m := forwardHost.FindSubmatch(found)
		theirs, ours := url.URL{Host: string(m[2])}, url.URL{Host: n.ours}
		if !strings.EqualFold(theirs.Hostname(), ours.Hostname()) {
			return found
		}
		return append(m[1], n.theirs...)
	})
}
