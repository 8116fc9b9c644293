// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"cmp"
	"encoding/xml"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"overdue/internal/servicebus/atom"
)

// maxBody bounds a body, in bytes. The largest of a client is a rule of a few kilobytes.
const maxBody = 256 << 10

// Namespaces of XML.
const (
	nsAtom     = "http://www.w3.org/2005/Atom"
	nsEntity   = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
	nsCounts   = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
	nsSchema   = "http://www.w3.org/2001/XMLSchema"
	nsInstance = "http://www.w3.org/2001/XMLSchema-instance"
	// of the types of .NET that XML Schema does not have
	nsSerialization = "http://schemas.microsoft.com/2003/10/Serialization/"
	nsXML           = "http://www.w3.org/XML/1998/namespace"
)

// A node is an element of a body. Elements are known by their local names: the
// SDKs do not agree on prefixes.
type node struct {
	name     xml.Name
	attrs    []xml.Attr
	parent   *node
	children []*node
	text     []byte // of the element itself, without that of its children

	// Of a description, see apply. The values are by the name of the element before, and after.
	unapplied map[string]string // XML
	behind    map[string]string
}

// description reads the body and returns the one element of its content, which
// has to have one of these names.
func (c *call) description(names ...string) (*node, error) {
	read, err := atom.Parse(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, refusef(http.StatusRequestEntityTooLarge, "The body is larger than %d bytes.", maxBody)
		}
		return nil, badRequest("The body is not well-formed: %v.", err)
	}
	if _, err := read.Description(); err != nil {
		return nil, badRequest("The body is refused: %v.", err)
	}
	d := nodeOf(read, nil).child("content").children[0]
	if !slices.Contains(names, d.name.Local) {
		return nil, badRequest("'%.100s' is not what can be here; expected is %s.", d.name.Local, strings.Join(names, " or "))
	}
	if atom.Elements[d.name.Local] != nil {
		d.apply()
	}
	return d, nil
}

// apply leaves d with the elements that the service applies, see atom.Elements.
func (d *node) apply() {
	order := atom.OrderOf(d.name.Local)
	d.children = slices.DeleteFunc(d.children, func(n *node) bool {
		if order.Applies(n.name.Local) {
			return false
		}
		if d.unapplied == nil {
			d.unapplied, d.behind = map[string]string{}, map[string]string{}
		}
		d.unapplied[order.Last()] += markup(n.write)
		d.behind[n.name.Local] = order.Last()
		return true
	})
}

func nodeOf(read *atom.Node, parent *node) *node {
	n := &node{name: read.Name, attrs: read.Attrs, parent: parent, text: read.Text}
	for _, c := range read.Children {
		n.children = append(n.children, nodeOf(c, n))
	}
	return n
}

// child returns the first child of that name: where a client repeats an element,
// the service keeps to that. nil: none.
func (n *node) child(name string) *node {
	for _, c := range n.children {
		if c.name.Local == name && !c.null() {
			return c
		}
	}
	return nil
}

// attribute is "" where there is none.
func (n *node) attribute(local string) string {
	for _, a := range n.attrs {
		if a.Name.Local == local && a.Name.Space != "xmlns" {
			return a.Value
		}
	}
	return ""
}

// kind is the local part of i:type.
func (n *node) kind() string {
	t := n.attribute("type")
	return t[strings.LastIndexByte(t, ':')+1:]
}

func (n *node) null() bool { return n.attribute("nil") == "true" }

// write writes an element as it was read, into one that has nsEntity for its
// namespace and `i` for nsInstance. Prefixes that values use, as in `d6p1:int`,
// keep their meaning. Text beside elements is lost: there is none in what
// describes an entity.
func (n *node) write(w writer) {
	declared := map[string]string{}
	for p := n.parent; p != nil; p = p.parent {
		for prefix, ns := range p.prefixes() {
			if _, inner := declared[prefix]; !inner {
				declared[prefix] = ns
			}
		}
	}
	maps.Copy(declared, n.prefixes())
	n.writeIn(w, nsEntity, declared, map[string]string{})
}

// writeIn writes n where outer is the namespace of names without a prefix, with
// declarations of these prefixes; scope are those that its parents have made.
func (n *node) writeIn(w writer, outer string, declared, scope map[string]string) {
	if len(declared) > 0 {
		scope = maps.Clone(scope)
		maps.Copy(scope, declared)
	}
	var own []string // names and values in turn
	for _, a := range n.attrs {
		switch {
		case a.Name.Space == "xmlns" || a.Name.Space == "" && a.Name.Local == "xmlns":
		case a.Name.Space == "":
			own = append(own, a.Name.Local, a.Value)
		case a.Name.Space == nsInstance:
			own = append(own, "i:"+a.Name.Local, a.Value)
		case a.Name.Space == nsXML:
			own = append(own, "xml:"+a.Name.Local, a.Value)
		default:
			prefix := prefixOf(scope, a.Name.Space)
			if scope[prefix] == "" { // the body uses a prefix that it does not declare
				scope = maps.Clone(scope)
				scope[prefix], declared[prefix] = a.Name.Space, a.Name.Space
			}
			own = append(own, prefix+":"+a.Name.Local, a.Value)
		}
	}
	var attributes []string
	namespace := cmp.Or(n.name.Space, nsEntity) // a body may do without any
	if namespace != outer {
		attributes = append(attributes, "xmlns", namespace)
	}
	for _, prefix := range sortedKeys(declared) {
		attributes = append(attributes, "xmlns:"+prefix, declared[prefix])
	}
	attributes = append(attributes, own...)
	w.open(n.name.Local, attributes...)
	if len(n.children) == 0 {
		w.escape(string(n.text), false)
	}
	for _, c := range n.children {
		c.writeIn(w, namespace, c.prefixes(), scope)
	}
	w.close(n.name.Local)
}

// prefixes are those that n declares, but for `i`, which is ours, and those that
// no document may declare.
func (n *node) prefixes() map[string]string {
	declared := map[string]string{}
	for _, a := range n.attrs {
		if a.Name.Space == "xmlns" && a.Value != "" && !slices.Contains([]string{"i", "xml", "xmlns"}, a.Name.Local) {
			declared[a.Name.Local] = a.Value
		}
	}
	return declared
}

// prefixOf returns a prefix that stands for a namespace in scope, or one that can
// be made to.
func prefixOf(scope map[string]string, namespace string) string {
	for _, prefix := range sortedKeys(scope) {
		if scope[prefix] == namespace {
			return prefix
		}
	}
	prefix := "ns"
	for scope[prefix] != "" {
		prefix += "_"
	}
	return prefix
}
