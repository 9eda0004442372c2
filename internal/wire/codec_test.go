package wire

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// messages are one of each kind of payload.
func messages() []Message {
	return []Message{new(Hello), new(Request), new(Event), new(Control), new(Outcome), new(WatchEvent)}
}

// fill gives every field of a message, and of all within it, another value.
func fill(v reflect.Value, n *int64) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), n)
		}
	case reflect.String:
		v.SetString(strings.Repeat("é<&>\x00", int(*n)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(math.MinInt64 + *n)
	case reflect.Uint8:
		v.SetUint(uint64(*n) % 256)
	case reflect.Uint32:
		v.SetUint(math.MaxUint32 - uint64(*n))
	case reflect.Uint64:
		v.SetUint(math.MaxUint64 - uint64(*n))
	default:
		panic("a field of a kind that cannot travel: " + v.Kind().String())
	}
}

// A field that the fields method has forgotten would be lost here.
func TestEveryFieldTravels(t *testing.T) {
	for _, m := range messages() {
		n := int64(0)
		fill(reflect.ValueOf(m).Elem(), &n)
		got := reflect.New(reflect.TypeOf(m).Elem()).Interface().(Message)
		if err := Decode(Encode(m), got); err != nil {
			t.Errorf("%T: %v", m, err)
		}
		if diff := cmp.Diff(m, got); diff != "" {
			t.Errorf("%T (-sent +received):\n%s", m, diff)
		}
		// And what is not there does not stay.
		empty := reflect.New(reflect.TypeOf(m).Elem()).Interface().(Message)
		if err := Decode(Encode(empty), got); err != nil || !cmp.Equal(empty, got) {
			t.Errorf("%T: an empty message leaves %+v, %v", m, got, err)
		}
	}
}

// No message that is cut short, or that has more, is taken for one.
func TestDecodeWantsTheWhole(t *testing.T) {
	for _, m := range messages() {
		n := int64(0)
		fill(reflect.ValueOf(m).Elem(), &n)
		whole := Encode(m)
		step := 1 + len(whole)/500
		for k := 0; k < len(whole); k += step {
			refused(t, "cut", whole[:k], m)
		}
		refused(t, "with more", append(bytes.Clone(whole), 0), m)
	}
}

func refused(t *testing.T, name string, b []byte, m Message) {
	t.Helper()
	var v *Violation
	if err := Decode(b, reflect.New(reflect.TypeOf(m).Elem()).Interface().(Message)); !errors.As(err, &v) {
		t.Errorf("%T, %s (%d bytes): %v, want a *Violation", m, name, len(b), err)
	}
}

func TestDecodeIsStrict(t *testing.T) {
	good := "\x06exited\x00\x01\x06\x00\x0a\x02\x00\x00"
	var e Event
	if err := Decode([]byte(good), &e); err != nil {
		t.Fatal(err)
	}
	want := Event{Kind: EventExited, Exit: &Exit{Code: 3, WallNS: 5, CPUNS: 1}}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Fatalf("event (-want +got):\n%s", diff)
	}
	for name, bad := range map[string]string{
		"empty":                 "",
		"JSON":                  `{"kind":"exited"}`,
		"two":                   good + good,
		"number in a long form": "\x06exited\x80\x00\x01\x06\x00\x0a\x02\x00\x00",
		"length in a long form": "\x86\x00exited\x00\x01\x06\x00\x0a\x02\x00\x00",
		"number without end":    "\x06exited" + strings.Repeat("\xff", 5000),
		"number of 65 bits":     "\x06exited\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00",
		"bool of two":           "\x06exited\x00\x02\x06\x00\x0a\x02\x00\x00",
		"not UTF-8":             "\x06exite\xff\x00\x01\x06\x00\x0a\x02\x00\x00",
		"long text":             "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01exited",
		"list without elements": "\x05files\x00\x00\x05",
		"list of all ones":      "\x05files\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + strings.Repeat("\x00", 4000),
	} {
		refused(t, name, []byte(bad), &e)
	}
	mode := Encode(&Outcome{Stat: &Stat{Mode: math.MaxUint32}})
	refused(t, "mode of 33 bits", bytes.Replace(mode, []byte("\xff\xff\xff\xff\x0f"), []byte("\xff\xff\xff\xff\x1f"), 1), new(Outcome))
}

// A list that claims to be long costs no memory before its elements are there.
func TestDecodeAllocatesLittle(t *testing.T) {
	claim := append([]byte("\x05files\x00\x00\xff\xff\xff\xff\x0f"), make([]byte, 4000)...)
	if n := testing.AllocsPerRun(10, func() { _ = Decode(claim, new(Event)) }); n > 40 {
		t.Errorf("%v allocations", n)
	}
}

func TestEncodeMakesTextUTF8(t *testing.T) {
	var got FileRequest
	if err := Decode(Encode(&FileRequest{Path: "a\xffb"}), &got); err != nil || got.Path != "a\uFFFDb" {
		t.Fatalf("%q, %v", got.Path, err)
	}
}

func TestWatchEventsAreCut(t *testing.T) {
	want := WatchEvent{Kind: WatchCreated, Path: "a", Dir: true}
	b := AppendWatchEvent(nil, &want)
	for n := range b {
		if _, rest, whole, err := CutWatchEvent(b[:n]); whole || err != nil || len(rest) != n {
			t.Fatalf("after %d of %d bytes: %v, %v", n, len(b), whole, err)
		}
	}
	m, rest, whole, err := CutWatchEvent(append(b, "next"...))
	if err != nil || !whole || string(rest) != "next" {
		t.Fatalf("%v, %q, %v", whole, rest, err)
	}
	var got WatchEvent
	if err := Decode(m, &got); err != nil || got != want {
		t.Fatalf("%+v, %v", got, err)
	}
	if len(AppendWatchEvent(nil, &WatchEvent{Kind: WatchMovedFrom, Path: strings.Repeat("p", MaxPath)})) > 2+MaxWatchEvent {
		t.Error("the longest change does not fit")
	}
}

// There is one way to write each message: whatever is accepted is what we
// would have sent.
func FuzzDecode(f *testing.F) {
	for _, m := range messages() {
		n := int64(0)
		fill(reflect.ValueOf(m).Elem(), &n)
		f.Add(Encode(m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range messages() {
			if Decode(b, m) != nil {
				continue
			}
			if again := Encode(m); !bytes.Equal(again, b) {
				t.Fatalf("%T: %x came and %x is sent", m, b, again)
			}
		}
	})
}
