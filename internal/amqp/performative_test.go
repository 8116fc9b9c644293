// SPDX-License-Identifier: Apache-2.0

package amqp

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// goldenPerformatives are written by hand from part 2 section 7, part 3 sections 4 and 5, part 4
// section 5 and part 5 section 3.3 of the standard.
var goldenPerformatives = []struct {
	hex, trace string
	p          Performative
}{
	{"005310 c0 17 0a a10163 40 7000010000 60ffff 7000007530 40 40 40 40 40",
		"open container=c max-frame=65536 channel-max=65535 idle-ms=30000",
		&Open{ContainerID: "c", MaxFrameSize: 65536, ChannelMax: 65535, IdleTimeout: 30000}},
	{"005311 c0 12 08 40 43 7000001388 5201 70ffffffff 40 40 40",
		"begin next-out=0 in-window=5000 out-window=1 handle-max=4294967295",
		&Begin{IncomingWindow: 5000, OutgoingWindow: 1, HandleMax: DefaultHandleMax}},
	{"005312 c0 3a 0e a1016c 43 41 5002 5001" +
		" 005328 c0 0e 0b a10171 40 40 40 40 40 40 40 40 40 40" +
		" 005329 c0 09 07 a100 40 40 40 40 40 40 40 40 40 80 0000000000040000 40 40 40",
		`attach name=l handle=0 role=receiver snd=2 rcv=1 source="q" target="" max-message=262144`,
		&Attach{
			Name: "l", Role: RoleReceiver, SndSettleMode: SndMixed, RcvSettleMode: RcvSecond, MaxMessageSize: 262144,
			Source: &Source{Address: "q", HasAddress: true}, Target: &Target{HasAddress: true},
		}},
	// As Service Bus wrote it to a client that left out its settle modes.
	{"005312 c0 3b 0e a1016c 5201 42 40 40" +
		" 005328 c0 11 0b a10424636273 40 40 40 40 40 40 40 40 40 40" +
		" 005329 c0 08 07 40 40 40 40 40 40 40 40 40 43 80 ffffffffffffffff 40 40 40",
		`attach name=l handle=1 role=sender source="$cbs" target=none initial-count=0 max-message=18446744073709551615`,
		&Attach{
			Name: "l", Handle: 1, Role: RoleSender, SndSettleMode: SndDefault, RcvSettleMode: RcvDefault, MaxMessageSize: math.MaxUint64,
			Source: &Source{Address: "$cbs", HasAddress: true}, Target: &Target{},
		}},
	{"005313 c0 17 0b 43 7000001388 5201 7000010000 5201 43 5264 43 40 42 40",
		"flow handle=1 count=0 credit=100 available=0 next-in=0 in-window=5000 next-out=1 out-window=65536",
		&Flow{
			HasNextIncomingID: true, IncomingWindow: 5000, NextOutgoingID: 1, OutgoingWindow: 65536, Handle: 1, HasHandle: true,
			HasDeliveryCount: true, LinkCredit: 100, HasLinkCredit: true, HasAvailable: true,
		}},
	{"005313 c0 0e 0b 43 5205 43 52ff 40 40 40 40 40 41 40",
		"flow next-in=0 in-window=5 next-out=0 out-window=255 echo",
		&Flow{HasNextIncomingID: true, IncomingWindow: 5, OutgoingWindow: 255, Echo: true}},
	{"005314 c0 0c 0b 43 40 40 40 40 41 40 40 40 40 40", "transfer handle=0 more len=3", &Transfer{More: true}},
	{"005314 c0 11 0b 43 43 a00401000000 43 40 42 40 40 40 40 42",
		"transfer handle=0 id=0 tag=01000000 len=3",
		&Transfer{HasDeliveryID: true, DeliveryTag: []byte{1, 0, 0, 0}, HasMessageFormat: true}},
	{"005314 c0 10 0b 43 5207 a0020102 43 42 41 40 40 40 40 42",
		"transfer handle=0 id=7 tag=0102 more settled=false len=3",
		&Transfer{DeliveryID: 7, HasDeliveryID: true, DeliveryTag: []byte{1, 2}, HasMessageFormat: true, HasSettled: true, More: true}},
	{"005315 c0 0c 06 41 5201 5203 41 00532445 40",
		"disposition role=receiver first=1 last=3 settled=true state=accepted",
		&Disposition{Role: RoleReceiver, First: 1, Last: 3, Settled: true, State: Accepted{}}},
	{"005315 c0 0a 06 42 43 40 41 00532445 40",
		"disposition role=sender first=0 settled=true state=accepted",
		&Disposition{Settled: true, State: Accepted{}}},
	{"005315 c0 1b 06 42 43 40 42 005325 c0 10 01 00531d c0 0a 03 a305 61 3a 62 2d 63 40 40 40",
		"disposition role=sender first=0 settled=false state=rejected error=a:b-c",
		&Disposition{State: &Rejected{Error: &Error{Condition: "a:b-c"}}}},
	{"005316 c0 05 03 5202 41 40", "detach handle=2 closed", &Detach{Handle: 2, Closed: true}},
	{"005317 c0 02 01 40", "end", &End{}},
	{"005318 c0 02 01 40", "close", &Close{}},
	{"005340 c0 0f 01 e0 0c 01 a3 09 414e4f4e594d4f5553", "sasl-mechanisms offer=ANONYMOUS",
		&SASLMechanisms{Mechanisms: []Symbol{"ANONYMOUS"}}},
	{"005341 c0 0e 03 a309 414e4f4e594d4f5553 40 40", "sasl-init mechanism=ANONYMOUS", &SASLInit{Mechanism: "ANONYMOUS"}},
	{"005344 c0 04 02 5000 40", "sasl-outcome code=0", &SASLOutcome{}},
}

func TestPerformativesHaveTheirBytes(t *testing.T) {
	for _, g := range goldenPerformatives {
		want := unhex(t, g.hex)
		if got := g.p.Append(nil); !bytes.Equal(got, want) {
			t.Errorf("Append of %s\n got %x\nwant %x", g.trace, got, want)
		}
		p, payload, err := DecodePerformative(append(want, 1, 2, 3))
		if err != nil || len(payload) != 3 {
			t.Errorf("decoding %s: payload of %d bytes, %v", g.trace, len(payload), err)
			continue
		}
		if diff := cmp.Diff(g.p, p); diff != "" {
			t.Errorf("decoding %s (-want +got):\n%s", g.trace, diff)
		}
		if got := Trace(p, len(payload)); got != g.trace {
			t.Errorf("Trace = %s\n want %s", got, g.trace)
		}
	}
}

var (
	rawSymbols = Raw(AppendSymbols(nil, "a", "b"))
	rawMap     = Raw(EndMap(AppendBool(AppendSymbol(begun(BeginMap(nil)), "k"), true), 0, 1))
)

func begun(b []byte, _ int) []byte { return b }

// fullPerformatives have every field set to something but its default.
func fullPerformatives() []Performative {
	e := &Error{Condition: ErrCondNotFound, Description: "no such queue\nhere", Info: Map{{Symbol("k"), List{nil, uint64(7)}}}}
	source := &Source{
		Address: "orders", HasAddress: true, Durable: 2, ExpiryPolicy: "never", Timeout: 9, Dynamic: true,
		DynamicNodeProperties: rawMap, DistributionMode: "copy", Filter: rawMap,
		DefaultOutcome: Raw(Released{}.Append(nil)), Outcomes: rawSymbols, Capabilities: rawSymbols,
	}
	target := &Target{
		OtherAddress: Raw(AppendUint(nil, 7)), Durable: 1, ExpiryPolicy: "link-detach", Timeout: 3,
		Dynamic: true, DynamicNodeProperties: rawMap, Capabilities: rawSymbols,
	}
	attach := Attach{
		Name: "link", Handle: 3, Role: RoleSender, SndSettleMode: SndSettled, RcvSettleMode: RcvSecond,
		Source: source, Target: target, Unsettled: rawMap, IncompleteUnsettled: true, InitialDeliveryCount: 5,
		MaxMessageSize: 1 << 20, OfferedCapabilities: rawSymbols, DesiredCapabilities: rawSymbols, Properties: rawMap,
	}
	control := Attach{Name: "txn", Role: RoleReceiver, Coordinator: &Coordinator{Capabilities: rawSymbols}}
	all := []Performative{
		&Open{"c", "h", 512, 7, 60000, rawSymbols, rawSymbols, rawSymbols, rawSymbols, rawMap},
		&Begin{9, true, 1, 2, 3, 4, rawSymbols, rawSymbols, rawMap},
		&attach, &control,
		&Flow{1, true, 2, 3, 4, 5, true, 6, true, 7, true, 8, true, true, true, rawMap},
		&Detach{7, true, e}, &End{e}, &Close{e},
		&SASLMechanisms{[]Symbol{"ANONYMOUS", "EXTERNAL"}}, &SASLInit{"PLAIN", []byte{0}, "h"},
		&SASLOutcome{SASLAuth, []byte("a")},
	}
	for _, s := range []DeliveryState{
		nil, Accepted{}, Released{}, &Received{1, 1 << 33}, &Rejected{e}, &Rejected{},
		&Modified{true, true, Map{{Symbol("x-opt"), "v"}}}, &Modified{}, &Declared{[]byte{1}},
		&TransactionalState{TxnID: []byte{1}}, &TransactionalState{[]byte{1}, Accepted{}},
		&TransactionalState{[]byte{1}, &Rejected{e}},
	} {
		all = append(all,
			&Transfer{1, 2, true, []byte("tag"), BatchMessageFormat, true, true, true, true, RcvSecond, true, s, true, true, true},
			&Disposition{RoleReceiver, 1, 1 << 31, true, s, true})
	}
	return all
}

func TestPerformativesComeBackWhole(t *testing.T) {
	for _, want := range fullPerformatives() {
		b := want.Append(nil)
		got, payload, err := DecodePerformative(b)
		if err != nil || len(payload) != 0 {
			t.Errorf("decoding %s: %d bytes left, %v", Trace(want, 0), len(payload), err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", Trace(want, 0), diff)
		}
		if line := Trace(got, 0); strings.ContainsAny(line, "\r\n") || line == "" {
			t.Errorf("Trace of %T is not one line: %q", got, line)
		}
	}
}

func TestDecodedPerformativesOutliveTheirFrame(t *testing.T) {
	for _, want := range fullPerformatives() {
		if _, aliases := want.(*Transfer); aliases {
			continue
		}
		b := want.Append(nil)
		got, _, err := DecodePerformative(b)
		if err != nil {
			t.Fatal(err)
		}
		clear(b)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s after the frame was overwritten (-want +got):\n%s", Trace(want, 0), diff)
		}
	}
}

// Python's SDK reads open[9], begin[7], attach[13] and the payload of a transfer behind field 10.
func TestFieldListsAreFull(t *testing.T) {
	for want, p := range map[int]Performative{
		10: &Open{}, 8: &Begin{}, 14: &Attach{}, 11: &Transfer{}, 6: &Disposition{}, 3: &Error{}, 7: &Target{}, 1: &End{},
	} {
		r := NewReader(p.Append(nil))
		r.Descriptor()
		if _, n := r.List(); n != want || r.Err() != nil {
			t.Errorf("empty %T has %d fields, %v, want %d", p, n, r.Err(), want)
		}
	}
}

func TestShortFieldListsAndSymbolicDescriptorsAreRead(t *testing.T) {
	names := map[uint64]Symbol{}
	for name, code := range descriptorNames {
		names[code] = name
	}
	for _, want := range fullPerformatives() {
		b := want.Append(nil)
		r := NewReader(b)
		named := append(AppendSymbol([]byte{codeDescribed}, names[r.Descriptor()]), r.Rest()...)
		got, _, err := DecodePerformative(named)
		if err != nil {
			t.Errorf("%s by name: %v", Trace(want, 0), err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s by name (-want +got):\n%s", Trace(want, 0), diff)
		}
	}
	for hex, want := range map[string]Performative{
		"005310 c0 04 01 a10163":                      &Open{ContainerID: "c", MaxFrameSize: DefaultMaxFrameSize, ChannelMax: DefaultChannelMax},
		"005311 c0 05 04 40434343":                    &Begin{HandleMax: DefaultHandleMax},
		"005312 c0 06 03 a1016c 43 42":                &Attach{Name: "l", SndSettleMode: SndDefault, RcvSettleMode: RcvDefault},
		"005313 c0 05 04 40434343":                    &Flow{},
		"005314 c0 02 01 43":                          &Transfer{},
		"005315 c0 04 02 41 5209":                     &Disposition{Role: RoleReceiver, First: 9, Last: 9},
		"005316 c0 02 01 43":                          &Detach{},
		"005317 45":                                   &End{},
		"00 80 0000000000000018 d0 00000004 00000000": &Close{},
		"005315 c0 0a 05 41 5209 40 42 00532545":      &Disposition{Role: RoleReceiver, First: 9, Last: 9, State: &Rejected{}},
		"005315 c0 0a 05 41 5209 40 42 00532745":      &Disposition{Role: RoleReceiver, First: 9, Last: 9, State: &Modified{}},
		"005318 c0 05 01 00531d45":                    &Close{Error: &Error{}},
		"005340 c0 04 01 a30158":                      &SASLMechanisms{Mechanisms: []Symbol{"X"}},
		"005317 c0 03 02 40 41":                       &End{}, // a field of the future
	} {
		if got, _, err := DecodePerformative(unhex(t, hex)); err != nil {
			t.Errorf("%s: %v", hex, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", hex, diff)
		}
	}
}

func TestMalformedPerformativesAreRefused(t *testing.T) {
	for name, hex := range map[string]string{
		"nothing":                        "",
		"no descriptor":                  "45",
		"unknown descriptor":             "00535045",
		"unknown name":                   "00a3017845",
		"descriptor of text":             "00a1017845",
		"section of a message":           "00537045",
		"no list":                        "00531440",
		"open without container-id":      "00531045",
		"open of frames of no size":      "005310 c0 06 03 a10163 40 43",
		"attach without name":            "005312 c0 04 03 404342",
		"attach without role":            "005312 c0 06 03 a1016c 43 40",
		"attach of settle mode 3":        "005312 c0 08 04 a1016c 43 42 5003",
		"attach to nothing known":        "005312 c0 0e 07 a1016c 43 42 5002 5000 40 00532445",
		"flow without windows":           "00531345",
		"transfer without handle":        "005314 c0 02 01 40",
		"transfer of handle true":        "005314 c0 02 01 41",
		"transfer of a tag of 256 bytes": "005314 d0 0000010b 00000003 4343 b000000100" + strings.Repeat("00", 256),
		"disposition without first":      "005315 c0 02 01 41",
		"state that is none":             "005315 c0 08 05 41 43 40 42 00531045",
		"transaction in a transaction":   "005315 c0 12 05 41 43 40 42 005334 c0 09 02 a000 005334 c0 01 00",
		"rejected with a bare error":     "005315 c0 0b 05 41 43 40 42 005325 c0 02 01 45",
		"modified with list annotations": "005315 c0 0d 05 41 43 40 42 005327 c0 04 03 4242 45",
		"declared without txn-id":        "005315 c0 09 05 41 43 40 42 00533345",
		"outcome without code":           "00534445",
	} {
		p, _, err := DecodePerformative(unhex(t, hex))
		if !errors.Is(err, ErrMalformed) || p != nil {
			t.Errorf("%s: %v, %v, want ErrMalformed", name, p, err)
		} else if c := AsError(err).Condition; c != ErrCondDecodeError {
			t.Errorf("%s: condition %s", name, c)
		}
	}
}

func TestErrorsAlwaysHaveACondition(t *testing.T) {
	r := NewReader((&Error{Description: "d"}).Append(nil))
	var e Error
	if err := e.Decode(&r); err != nil || e.Condition != ErrCondInternalError || e.Error() != "amqp:internal-error: d" {
		t.Errorf("error without condition came back as %q, %v", e.Error(), err)
	}
	bad := &Error{Condition: "c", Info: Map{{Symbol("bad"), struct{}{}}, {Symbol("good"), true}}}
	r = NewReader(bad.Append(nil))
	if err := e.Decode(&r); err != nil || len(e.Info) != 1 {
		t.Errorf("info with a pair that cannot be encoded came back as %v, %v, want the other pair", e.Info, err)
	}
	wrapped := errors.Join(errors.New("attach"), Errorf(ErrCondNotFound, "queue %s", "q"))
	if got := AsError(wrapped); got.Condition != ErrCondNotFound || got.Description != "queue q" {
		t.Errorf("AsError of a wrapped error = %v", got)
	}
	if AsError(nil) != nil || AsError(errors.New("x")).Condition != ErrCondInternalError {
		t.Error("AsError of nil or of a foreign error is wrong")
	}
}

func TestDecoderReusesTheFrequentPerformatives(t *testing.T) {
	var d Decoder
	var last Performative
	for _, want := range fullPerformatives() {
		got, _, err := d.Decode(want.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s after %T (-want +got):\n%s", Trace(want, 0), last, diff)
		}
		last = got
	}
}

func TestTransactionRequestsComeBack(t *testing.T) {
	for _, want := range []decodable{&Declare{}, &Declare{GlobalID: rawMap}, &Discharge{TxnID: []byte{1}, Fail: true}} {
		got := map[bool]decodable{true: &Discharge{}, false: &Declare{}}[want.Append(nil)[2] == byte(CodeDischarge)]
		r := NewReader(want.Append(nil))
		if err := got.Decode(&r); err != nil {
			t.Errorf("decoding %+v: %v", want, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}
