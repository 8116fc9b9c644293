// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"overdue/internal/servicebus/namespace"
)

// Bounds of a configuration file. A YAML file of a few lines can unfold to billions of
// nodes through its aliases.
const (
	maxConfigFile  = 1 << 20
	maxConfigNodes = 50_000
	maxConfigErrs  = 10
)

// A layer is the settings that one source gives, by key, with the place of each.
type layer struct {
	place  func(line int) string
	folder string // of the file: relative paths in it start there; "" = in the working directory
	text   []byte // of the file
	values map[string]any
	origin map[string]string
	blank  map[string]bool // keys without a value
	errs   []error
	nodes  int
}

func newLayer(place func(line int) string) *layer {
	return &layer{place: place, values: map[string]any{}, origin: map[string]string{}, blank: map[string]bool{}}
}

// fail notes an error; reading goes on, so that all mistakes of a file come at once.
func (l *layer) fail(line int, format string, args ...any) {
	if len(l.errs) < maxConfigErrs {
		l.errs = append(l.errs, fmt.Errorf("%s: %w", l.place(line), fmt.Errorf(format, args...)))
	}
}

// readFile is the layer of a configuration file.
func readFile(name string) (*layer, error) {
	text, err := ReadBounded(name, maxConfigFile)
	if err != nil {
		return nil, fmt.Errorf("the configuration file cannot be read: %w; check --config", err)
	}
	if len(bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff")))) == 0 {
		return nil, fmt.Errorf("the configuration file %s is empty; write {} into it if every setting is to have its default", name)
	}
	shown := name
	if name == standardInput {
		shown = "standard input"
	}
	l := newLayer(func(line int) string { return fmt.Sprintf("%s:%d", shown, line) })
	l.folder = filepath.Dir(name)
	root, err := parseYAML(text)
	if err != nil {
		var s *yamlError
		if errors.As(err, &s) {
			l.fail(s.line, "%s", s.text)
		}
		return nil, errors.Join(l.errs...)
	}
	l.text = text
	if root != nil {
		l.section(root, "", "", l.values)
	}
	return l, errors.Join(l.errs...)
}

// standardInput is the name of standard input as a file.
const standardInput = "-"

// drained holds what was read of standard input and of pipes, by name. A process can read them
// once, and a configuration is read again and again.
var drained = struct {
	sync.Mutex
	texts map[string][]byte
}{texts: map[string][]byte{}}

// ReadBounded is os.ReadFile with a bound: the name may be that of a device or a pipe.
func ReadBounded(name string, limit int64) ([]byte, error) {
	drained.Lock()
	defer drained.Unlock()
	if text, ok := drained.texts[name]; ok {
		return text, nil
	}
	f := os.Stdin
	if name != standardInput {
		var err error
		if f, err = os.Open(name); err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // only read
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("%s is longer than %s", name, FormatSize(limit))
	}
	if info, err := f.Stat(); err == nil && (name == standardInput || !info.Mode().IsRegular()) {
		drained.texts[name] = text
	}
	return text, nil
}

// ReadsStandardInput reports whether the configuration has come from standard input.
func ReadsStandardInput() bool { return isDrained(standardInput) }

// isDrained reports whether a file was a pipe, or standard input: nobody can change it any more.
func isDrained(name string) bool {
	drained.Lock()
	defer drained.Unlock()
	_, ok := drained.texts[name]
	return ok
}

// A yamlError says what is wrong with a text, and in which line.
type yamlError struct {
	line int
	text string
}

func (e *yamlError) Error() string { return e.text }

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

// parseYAML is the root node of the only document in text, nil when it is empty. Its
// errors are of type *yamlError.
func parseYAML(text []byte) (*yaml.Node, error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		line, message := 1, err.Error()
		if m := yamlLine.FindStringSubmatch(message); m != nil {
			line, _ = strconv.Atoi(m[1]) // the expression allows digits only; 0 would do
			message = message[len(m[0]):]
			// The library counts the lines of its scanner from 1 and those of its parser from 0.
			if strings.HasPrefix(message, "did not find expected") {
				line++
			}
		}
		return nil, &yamlError{line, "this is not YAML: " + strings.TrimPrefix(message, "yaml: ")}
	}
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, &yamlError{max(second.Line, doc.Line), "there is more than one YAML document; keep one"}
	}
	return doc.Content[0], nil
}

// section reads a mapping. path names it in the table, shown in messages: they differ by
// the index of a list's element. Both end in a dot unless they are empty.
func (l *layer) section(n *yaml.Node, path, shown string, into map[string]any) {
	if n = l.follow(n); n == nil || isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		what := strings.TrimSuffix(shown, ".")
		if what == "" {
			what = "the configuration"
		}
		l.fail(n.Line, "%s has to be a mapping of keys such as %q", what, children(path)[0])
		return
	}
	if len(n.Content) == 0 && shown != "" {
		l.origin[strings.TrimSuffix(shown, ".")] = l.place(n.Line) // it has no key that could say where it is
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], l.follow(n.Content[i+1])
		if value == nil {
			return
		}
		if !l.first(seen, key, shown) {
			continue
		}
		l.key(key, value, path, shown, into)
	}
}

// first reports whether a mapping has this key for the first time, and fails if not. seen has the
// lines of its keys.
func (l *layer) first(seen map[string]int, key *yaml.Node, shown string) bool {
	if line, ok := seen[key.Value]; ok {
		l.fail(key.Line, "%s%s is given a second time, after line %d; keep one", shown, Clip(key.Value), line)
		return false
	}
	seen[key.Value] = key.Line
	return true
}

// key reads one key of a mapping into what the table says that it is.
func (l *layer) key(key, value *yaml.Node, path, shown string, into map[string]any) {
	name := path + key.Value
	s := byPath[name]
	switch {
	case s != nil && isNull(value): // a key without a value is a key not given
		l.blank[shown+key.Value] = true
	case s != nil && s.Kind == kindList:
		if list, ok := l.list(value, name, shown+key.Value); ok {
			into[key.Value] = list
			l.origin[shown+key.Value] = l.place(key.Line)
		}
	case s != nil && s.Kind.isMap():
		if m, ok := l.mapping(s, value, shown+key.Value); ok {
			into[key.Value] = m
			l.origin[shown+key.Value] = l.place(key.Line)
		}
	case s != nil && value.Kind == yaml.SequenceNode && s.Kind.several():
		l.sequence(s, value, key.Value, shown, into)
	case s != nil && value.Kind != yaml.ScalarNode:
		l.fail(value.Line, "%s has to be a single value of kind %s", shown+key.Value, s.Kind)
	case s != nil && l.refersToVariable(s, value, shown+key.Value):
	case s != nil:
		v, err := s.Parse(value.Value)
		if err != nil {
			l.fail(value.Line, "%s: %w", shown+key.Value, err)
			return
		}
		if path, _ := v.(string); s.Kind == kindFile && isFileName(path) && !filepath.IsAbs(path) {
			v = filepath.Join(l.folder, path)
		}
		into[key.Value] = v
		l.origin[shown+key.Value] = l.place(key.Line)
	case children(name+".") != nil:
		inner := map[string]any{}
		l.section(value, name+".", shown+key.Value+".", inner)
		into[key.Value] = inner
	default:
		l.fail(key.Line, "%s is not a known key%s", Clip(shown+key.Value), l.hint(key.Value, path))
	}
}

// refersToVariable fails if a value of the file refers to a variable. Templates may say what they
// like. The value is not shown, as it may be a secret.
func (l *layer) refersToVariable(s *Setting, value *yaml.Node, shown string) bool {
	if s.template || !namespace.Reference.MatchString(value.Value) {
		return false
	}
	root, _, _ := strings.Cut(s.Path, "[]") // of a list, which has a variable as a whole
	cure := "set " + SettingAt(root).Env()
	if file := SettingAt(s.Path + "File"); file != nil {
		cure += ", or name a file that holds the value with " + file.Path[strings.LastIndexByte(file.Path, '.')+1:]
	}
	l.fail(value.Line, "%s %s, %s", Clip(shown), namespace.ReferenceFault, cure)
	return true
}

// sequence reads what may be written as a list, too.
func (l *layer) sequence(s *Setting, n *yaml.Node, key, shown string, into map[string]any) {
	all := []string{}
	for _, e := range n.Content {
		if e = l.follow(e); e == nil {
			return
		}
		if e.Kind != yaml.ScalarNode {
			l.fail(e.Line, "%s has to be a list of single values", shown+key)
			return
		}
		if l.refersToVariable(s, e, shown+key) {
			continue
		}
		v, err := s.Parse(e.Value)
		if err != nil {
			l.fail(e.Line, "%s: %w", shown+key, err)
			return
		}
		all = append(all, v.([]string)...) // what such kinds parse to
	}
	into[key] = all
	l.origin[shown+key] = l.place(n.Line)
}

// mapping reads names that are the user's own. Values are texts as written, or what YAML takes them
// for.
func (l *layer) mapping(s *Setting, n *yaml.Node, shown string) (map[string]any, bool) {
	if n.Kind != yaml.MappingNode {
		l.fail(n.Line, "%s has to be a mapping of names to values", shown)
		return nil, false
	}
	m, seen := map[string]any{}, map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], l.follow(n.Content[i+1])
		if value == nil {
			return nil, false
		}
		if !l.first(seen, key, shown+".") {
			continue
		}
		var v any
		if value.Kind != yaml.ScalarNode || value.Decode(&v) != nil {
			l.fail(value.Line, "%s.%s has to be a single value", shown, Clip(key.Value))
			return nil, false
		}
		if l.refersToVariable(s, value, shown+"."+key.Value) {
			continue
		}
		if s.Kind == kindTexts {
			v = value.Value
		}
		m[key.Value] = v
	}
	return m, true
}

// hint suggests the key that was meant: a neighbour, or one that is at home elsewhere.
func (l *layer) hint(word, path string) string {
	if near := Nearest(word, children(path)); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	for _, s := range Settings {
		if strings.HasSuffix(s.Path, "."+word) {
			return fmt.Sprintf("; did you mean %s?", s.Path)
		}
	}
	return "; the keys here are " + strings.Join(children(path), ", ")
}

// list reads the elements of a list and gives them their defaults.
func (l *layer) list(n *yaml.Node, path, shown string) ([]any, bool) {
	if n.Kind != yaml.SequenceNode {
		l.fail(n.Line, "%s has to be a list; begin each element with a dash", shown)
		return nil, false
	}
	list := make([]any, 0, len(n.Content))
	for i, e := range n.Content {
		element, name := map[string]any{}, fmt.Sprintf("%s[%d].", shown, i)
		l.section(e, path+"[].", name, element)
		for _, s := range Settings {
			key, ok := strings.CutPrefix(s.Path, path+"[].")
			if !ok || has(element, key) || strings.Contains(key, "[].") {
				continue
			}
			if s.need {
				if len(l.errs) == 0 {
					l.fail(e.Line, "%s[%d] lacks %s", shown, i, key)
				}
				continue
			}
			if section, _, _ := strings.Cut(key, "."); s.optional && !has(element, section) {
				continue
			}
			put(element, key, s.standard())
		}
		list = append(list, element)
	}
	return list, true
}

// follow resolves an alias; nil once the file unfolds to more nodes than it may, and for a tag that
// is none of YAML's own.
func (l *layer) follow(n *yaml.Node) *yaml.Node {
	if l.nodes++; l.nodes > maxConfigNodes {
		if l.nodes == maxConfigNodes+1 {
			l.fail(n.Line, "the file unfolds to more than %d values", maxConfigNodes)
		}
		return nil
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if strings.HasPrefix(n.Tag, "!") && !strings.HasPrefix(n.Tag, "!!") { // !audit* without quotes is a tag and no value
		l.fail(n.Line, "%s is a YAML tag; put a value that begins with ! in quotes", Clip(n.Tag))
		return nil
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }
