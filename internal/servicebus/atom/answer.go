// SPDX-License-Identifier: Apache-2.0

package atom

import (
	"fmt"
	"io"
)

// An Answer is what the administration API answers with: one entry, or a feed of entries.
type Answer struct {
	IsFeed  bool
	Title   string  // of a feed
	Entries []Entry // exactly one if it is not a feed
}

// PublicServices is the title of the feed that stands for "there is no such queue or topic".
const PublicServices = "Publicly Listed Services"

// An Entry is one entity of an answer.
type Entry struct {
	Title       string
	Description *Node // such as QueueDescription or NamespaceInfo; nil if there is none
}

// ParseAnswer reads an answer. The caller bounds its length. The error is one of reading, or says
// what the document is instead.
func ParseAnswer(r io.Reader) (Answer, error) {
	root, err := parse(r, maxAnswerElements, false)
	if err != nil {
		return Answer{}, err
	}
	switch root.Name.Local {
	case "entry":
		return Answer{Entries: []Entry{root.entry()}}, nil
	case "feed":
		a := Answer{IsFeed: true, Title: root.ChildText("title")}
		for _, c := range root.Children {
			if c.Name.Local == "entry" {
				a.Entries = append(a.Entries, c.entry())
			}
		}
		return a, nil
	}
	return Answer{}, fmt.Errorf("it is a document of %.50q", root.Name.Local)
}

func (n *Node) entry() Entry {
	e := Entry{Title: n.ChildText("title")}
	if content := n.Child("content"); content != nil && len(content.Children) > 0 {
		e.Description = content.Children[0]
	}
	return e
}

// ErrorDetail returns what an answer of the administration API says of a failure. It is "" for any
// other document.
func ErrorDetail(r io.Reader) string {
	root, err := parse(r, maxAnswerElements, false)
	if err != nil || root.Name.Local != "Error" {
		return ""
	}
	return root.ChildText("Detail")
}
