// SPDX-License-Identifier: Apache-2.0

package filter

// A Filter is a condition, ready to be put to messages.
type Filter struct{ root predicate }

// ParseFilter reads a condition of at most [MaxLength] characters. params are
// what its @parameters stand for; keys may have the @ or not. The error is a
// [*SyntaxError].
func ParseFilter(text string, params map[string]Value) (*Filter, error) {
	return parseFilter(text, params, MaxLength)
}

func parseFilter(text string, params map[string]Value, most int) (*Filter, error) {
	p := newParser(text, params, most)
	root := p.predicate(p.or())
	if p.tok.kind != tokenEnd {
		p.fail("an operator or the end")
	}
	if p.err != nil {
		return nil, p.err
	}
	return &Filter{root}, nil
}

// Match reports whether the condition is true of m, which what is unknown is
// not. The error is an [*EvalError].
func (f *Filter) Match(m Message) (bool, error) {
	t, err := f.root.test(m)
	return t == isTrue && err == nil, err
}
