// SPDX-License-Identifier: Apache-2.0

// Package atom reads the Atom documents of the administration API: the bodies that create and
// change entities (Parse, Forwards), and the answers (ParseAnswer). It translates what they call
// the namespace (Naming).
//
// The proxy and the broker both read a body, so it must have one reading. Parse refuses document
// types, processing instructions, comments within text, and text beside elements. Of what is stated
// twice, Forwards returns both; the service goes by the first. Answers come from servers of all
// kinds, so ParseAnswer skips what it does not know. Both bound the elements, their depth and their
// attributes, and know no entities but those of XML.
package atom

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"overdue/internal/servicebus/address"
)

// Bounds for the cost of a document. The largest body of a client is a rule of a few kilobytes, 7
// elements deep. The largest answer is a page of 100 subscriptions, with some 40 elements each.
const (
	maxDepth          = 16 // elements within elements
	maxElements       = 10_000
	maxAnswerElements = 100_000
	maxAttributes     = 16 // of one element
)

// A Node is an element. Elements are known by their local names: the SDKs do not agree on prefixes.
type Node struct {
	Name     xml.Name
	Attrs    []xml.Attr
	Children []*Node
	Text     []byte // of the element itself; blank where it has children

	commented bool // there is a comment in it
}

// Parse reads the document of a body, in UTF-8. The error is one of reading, or says what is not
// plain.
func Parse(r io.Reader) (*Node, error) { return parse(r, maxElements, true) }

// parse reads one document of at most that many elements. If plain is set, it refuses what others
// might read in another way.
func parse(r io.Reader, most int, plain bool) (*Node, error) {
	d, p := xml.NewDecoder(r), parser{most: most, plain: plain}
	for first := true; ; first = false {
		token, err := d.Token()
		switch {
		case errors.Is(err, io.EOF) && p.root != nil && len(p.path) == 0:
			return p.root, nil
		case errors.Is(err, io.EOF):
			return nil, errors.New("it ends early")
		case err != nil:
			return nil, err
		}
		if err := p.take(token, first); err != nil {
			return nil, err
		}
	}
}

// parser is a document that has been read in part.
type parser struct {
	most     int // elements
	plain    bool
	root     *Node
	path     []*Node // the open elements
	elements int
}

// take adds a token, which may be the first of the document.
func (p *parser) take(token xml.Token, first bool) error {
	switch t := token.(type) {
	case xml.StartElement:
		return p.begin(t)
	case xml.EndElement:
		last := p.path[len(p.path)-1]
		p.path = p.path[:len(p.path)-1]
		if p.plain {
			return last.checkText()
		}
	case xml.CharData:
		switch {
		case len(p.path) > 0:
			at := p.path[len(p.path)-1]
			at.Text = append(at.Text, t...)
		case !isBlank(t):
			return errors.New("there is text outside of the document element")
		}
	case xml.Comment:
		if len(p.path) > 0 {
			p.path[len(p.path)-1].commented = true
		}
	case xml.ProcInst:
		if p.plain && (!first || t.Target != "xml") {
			return errors.New("processing instructions are not supported")
		}
	case xml.Directive:
		return errors.New("directives are not supported")
	}
	return nil
}

// begin opens an element.
func (p *parser) begin(t xml.StartElement) error {
	p.elements++
	switch {
	case len(p.path) == maxDepth:
		return fmt.Errorf("elements are nested more than %d deep", maxDepth)
	case p.elements > p.most:
		return fmt.Errorf("there are more than %d elements", p.most)
	case len(t.Attr) > maxAttributes:
		return fmt.Errorf("an element has more than %d attributes", maxAttributes)
	case len(p.path) == 0 && p.root != nil:
		return errors.New("there is more than one document element")
	}
	n := &Node{Name: t.Name, Attrs: slices.Clone(t.Attr)}
	if len(p.path) == 0 {
		p.root = n
	} else {
		at := p.path[len(p.path)-1]
		at.Children = append(at.Children, n)
	}
	p.path = append(p.path, n)
	return nil
}

// checkText refuses text that others might read in another way.
func (n *Node) checkText() error {
	switch {
	case isBlank(n.Text):
		return nil
	case len(n.Children) > 0:
		return fmt.Errorf("'%.100s' has text beside elements", n.Name.Local)
	case n.commented:
		return fmt.Errorf("'%.100s' has a comment within its text", n.Name.Local)
	}
	return nil
}

// Child returns the last child of that name, nil if there is none.
func (n *Node) Child(name string) *Node {
	for _, c := range slices.Backward(n.Children) {
		if c.Name.Local == name {
			return c
		}
	}
	return nil
}

// ChildText returns the text of a child without the space around it, "" if there is no such child.
func (n *Node) ChildText(name string) string {
	c := n.Child(name)
	if c == nil {
		return ""
	}
	return strings.TrimSpace(string(c.Text))
}

func isBlank(text []byte) bool { return strings.TrimSpace(string(text)) == "" }

// Description returns the element that describes an entity, the only one in the content of an Atom
// entry.
func (n *Node) Description() (*Node, error) {
	if n.Name.Local != "entry" {
		return nil, fmt.Errorf("the body is no Atom entry but '%.100s'", n.Name.Local)
	}
	var content *Node
	for _, c := range n.Children {
		if c.Name.Local != "content" {
			continue
		}
		if content != nil {
			return nil, errors.New("the Atom entry has more than one content")
		}
		content = c
	}
	if content == nil || len(content.Children) != 1 {
		return nil, errors.New("the Atom entry has no content that describes one entity")
	}
	return content.Children[0], nil
}

// Elements of descriptions that say where messages go.
const (
	ForwardTo            = "ForwardTo"
	ForwardDeadLettersTo = "ForwardDeadLetteredMessagesTo"
)

// A Forward is where the messages of an entity, or its dead letters, are to go.
type Forward struct {
	Element string // ForwardTo or ForwardDeadLettersTo
	To      address.Address
}

// Forwards reads where the description in a body forwards to. Errors: what Parse and Description
// return, and address.ErrNotPlain.
func Forwards(body io.Reader) (forwards []Forward, err error) {
	root, err := Parse(body)
	if err != nil {
		return nil, err
	}
	d, err := root.Description()
	if err != nil {
		return nil, err
	}
	own := map[*Node]bool{}
	for _, c := range d.Children {
		if c.Name.Local == ForwardTo || c.Name.Local == ForwardDeadLettersTo {
			own[c] = true
		}
	}
	if name := root.strayForward(own); name != "" {
		return nil, fmt.Errorf("%.100s stands where it is not expected", name)
	}
	for _, c := range d.Children {
		if !own[c] {
			continue
		}
		if len(c.Children) > 0 {
			return nil, fmt.Errorf("%s has elements in it", c.Name.Local)
		}
		to, err := address.Parse(strings.TrimSpace(string(c.Text)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name.Local, err)
		}
		if !to.IsNamespace() {
			forwards = append(forwards, Forward{c.Name.Local, to})
		}
	}
	return forwards, nil
}

// strayForward returns the name of an element that is called like one that says where messages go,
// in whatever case, and is none of those that do.
func (n *Node) strayForward(own map[*Node]bool) string {
	if !own[n] && (strings.EqualFold(n.Name.Local, ForwardTo) || strings.EqualFold(n.Name.Local, ForwardDeadLettersTo)) {
		return n.Name.Local
	}
	for _, c := range n.Children {
		if name := c.strayForward(own); name != "" {
			return name
		}
	}
	return ""
}

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
