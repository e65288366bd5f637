package effect

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddymcp/gateway/jsonrpc"
)

// parsed returns a call of a tool with arguments that admission lets through.
func parsed(t testing.TB, tool, arguments string) *jsonrpc.Message {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":` + tool
	if arguments != "" {
		body += `,"arguments":` + arguments
	}
	m := new(jsonrpc.Message)
	if err := m.Parse([]byte(body + `}}`)); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return m
}

// What is digested is the canonical JSON of the tool's name and the arguments.
func TestFingerprintInput(t *testing.T) {
	for _, c := range []struct{ name, tool, arguments, want string }{
		{"as it is", `"pay"`, `{"a":1}`, `["pay",{"a":1}]`},
		{"white space", `"pay"`, "{ \"a\" :\t[ 1 ,\r\n2 ] }", `["pay",{"a":[1,2]}]`},
		{"order", `"pay"`, `{"b":{"d":1,"c":2},"a":[{"z":1,"y":2}]}`, `["pay",{"a":[{"y":2,"z":1}],"b":{"c":2,"d":1}}]`},
		{"a name that begins another", `"pay"`, `{"ab":1,"a":2,"":3}`, `["pay",{"":3,"a":2,"ab":1}]`},
		{"order of an escaped name", `"pay"`, `{"b":1,"\u0061":2}`, `["pay",{"a":2,"b":1}]`},
		{"order by UTF-16", `"pay"`, `{"` + "\ufb33" + `":1,"😀":2,"€":3,"\r":4,"1":5,"ö":6,"` + "\u0080" + `":7}`,
			`["pay",{"\r":4,"1":5,"` + "\u0080" + `":7,"ö":6,"€":3,"😀":2,"` + "\ufb33" + `":1}]`},
		{"short escapes", `"pay"`, `{"a":"\u0008\u0009\u000a\u000C\u000d\u0022\u005C\/\u002f"}`, `["pay",{"a":"\b\t\n\f\r\"\\//"}]`},
		{"long escapes", `"pay"`, `{"a":"\u0000\u001F\u0020\u007f\u2028\u003c"}`, `["pay",{"a":"\u0000\u001f ` + "\x7f\u2028" + `<"}]`},
		{"a surrogate pair", `"pay"`, `{"a":"\ud83D\uDe00x"}`, `["pay",{"a":"😀x"}]`},
		{"backslashes at the end", `"pay"`, `{"a":"\\\\","b":"\\\""}`, `["pay",{"a":"\\\\","b":"\\\""}]`},
		{"words", `"pay"`, `{"a":[true,false,null]}`, `["pay",{"a":[true,false,null]}]`},
		{"the largest integers", `"pay"`, `{"a":[9007199254740991,-9007199254740991,0]}`, `["pay",{"a":[9007199254740991,-9007199254740991,0]}]`},
		{"a number is no string", `"pay"`, `{"a":"1"}`, `["pay",{"a":"1"}]`},
		{"nothing inside", `"pay"`, `{"a":{ },"b":[ ]}`, `["pay",{"a":{},"b":[]}]`},
		{"no arguments", `"pay"`, ``, `["pay",{}]`},
		{"null arguments", `"pay"`, `null`, `["pay",{}]`},
		{"empty arguments", `"pay"`, `{}`, `["pay",{}]`},
		{"arguments that are not admitted", `"pay"`, `[ 1 ]`, `["pay",[1]]`},
		{"a tool that is not admitted", ` 1 `, `{}`, `[1,{}]`},
		{"no tool", `null`, `{}`, `[null,{}]`},
		{"an escaped tool", `"p\u0061y"`, `{}`, `["pay",{}]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := parsed(t, c.tool, c.arguments)
			if got := string(AppendIdentified(nil, m)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if got, _, refusal := Identify(m); refusal != nil || got != sha256.Sum256([]byte(c.want)) {
				t.Errorf("another fingerprint, or refused: %v", refusal)
			}
		})
	}
}

// A message that only "enforce off" lets through has a fingerprint too.
func TestFingerprintOfWhatIsNotAdmitted(t *testing.T) {
	for body, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`:                                                   `[null,{}]`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"a":1,"a":2}}}`: `["pay",{"a":1,"a":2}]`,
	} {
		var m jsonrpc.Message
		_ = m.Parse([]byte(body))
		if got := string(AppendIdentified(nil, &m)); got != want {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
		if _, _, refusal := Identify(&m); refusal != nil {
			t.Errorf("%s: %v", body, refusal)
		}
	}
}

// Numbers that have another spelling refuse the call, and say where they are.
func TestNumbersThatAreRefused(t *testing.T) {
	for _, c := range []struct{ name, arguments, pointer string }{
		{"a fraction", `{"items":[{"price":1},{"price":0.1}]}`, "/items/1/price"},
		{"an integer with a fraction", `{"a":2.0}`, "/a"},
		{"an exponent", `{"a":2e0}`, "/a"},
		{"negative zero", `{"a":-0}`, "/a"},
		{"2^53", `{"a":9007199254740992}`, "/a"},
		{"5,000 digits", `{"a":` + strings.Repeat("7", 5000) + `}`, "/a"},
		{"too large for a double", `{"a":1e999}`, "/a"},
		{"the first of several", `{"a/b~":[1.5,2.5]}`, "/a~1b~0/0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, outline, refusal := Identify(parsed(t, `"pay"`, c.arguments))
			if refusal == nil || refusal.Code != CodeNotInteger || refusal.Pointer != c.pointer {
				t.Errorf("got %+v, want -41008 at %s", refusal, c.pointer)
			}
			if outline != nil {
				t.Error("a refused call has an outline")
			}
		})
	}
}

func TestOutlineDiffers(t *testing.T) {
	outline := func(arguments string) Outline {
		_, o, refusal := Identify(parsed(t, `"pay"`, arguments))
		if refusal != nil {
			t.Fatal(refusal)
		}
		return o
	}
	many := func(n, size int) string {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf(`"%0*d":%d`, size, i, i))
		}
		return "{" + strings.Join(names, ",") + "}"
	}
	for _, c := range []struct {
		name, a, b string
		want       []string
	}{
		{"none", `{"a":1,"b":{"c":2,"d":3}}`, `{"b":{"d":3,"c":2},"\u0061":1}`, nil},
		{"values", `{"b":1,"a":[1],"c":2}`, `{"a":[2],"b":2,"c":2}`, []string{"a", "b"}},
		{"types", `{"a":1}`, `{"a":"1"}`, []string{"a"}},
		{"one more", `{"a":1}`, `{"a":1,"b":null}`, []string{"b"}},
		{"one less", `{"a":1,"b":2}`, ``, []string{"a", "b"}},
		{"as many as are kept", many(maxOutlined, 2), `{}`, []string{"00", "01"}},
		{"too many", many(maxOutlined+1, 2), `{}`, nil},
		{"too long", many(2, maxNames/2+1), `{}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := outline(c.a).Differs(outline(c.b))
			if c.name == "as many as are kept" {
				got = got[:2]
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// FuzzCanonical compares the canonical form with jsontext's, and asks that it
// does not depend on what was canonicalized before.
func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{
		`{"b":1,"a":{"d":[{}, {"f":"","e":-1}],"c":null}}`, `{"\ud83d\ude00":1,"\ufb33":2,"a\\":"\"\\\\"}`, `{"a":0.5}`, `{"a":1E400}`,
		`[true ,[[]],"\u00e9\/\b",false]`, ` "x" `, `{"a":-0,"b":12345678901234567890}`, `{"":{"\u0000":"\u001f"}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, arguments string) {
		var m jsonrpc.Message
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"x":` + arguments + `}}}`
		if m.Parse([]byte(body)) != nil {
			return
		}
		_, _, refusal := Identify(&m)
		_, _, inexact := m.NonInteger()
		if (refusal != nil) != inexact {
			t.Fatalf("%q: refused: %v, but there is a number to refuse: %v", arguments, refusal, inexact)
		}
		if refusal != nil {
			return
		}
		want := jsontext.Value(`["pay",` + string(m.Params.Arguments.Raw) + `]`)
		if err := want.Canonicalize(); err != nil {
			t.Fatalf("%q: %v", arguments, err)
		}
		for range 2 {
			if got := AppendIdentified(nil, &m); string(got) != string(want) {
				t.Fatalf("%q:\n got %s\nwant %s", arguments, got, want)
			}
		}
	})
}

func TestIdentifyAllocatesLittle(t *testing.T) {
	m := parsed(t, `"create_refund"`, `{"payment_id":"txn_1","amount":2000,"note":"caf\u00e9","lines":[{"b":1,"a":2}]}`)
	Identify(m)
	// Under the race detector a pool forgets what it is given now and then.
	if got := testing.AllocsPerRun(100, func() { AppendIdentified(nil, m) }); got > 8 {
		t.Errorf("%v allocations for a canonical form", got)
	}
	if got := testing.AllocsPerRun(100, func() { Identify(m) }); got > 20 {
		t.Errorf("%v allocations for a fingerprint and an outline", got)
	}
}

func BenchmarkIdentify(b *testing.B) {
	for _, size := range []int{1, 100, 5000} {
		lines := strings.Repeat(`{"price":1200,"item":"a cup of \u0074ea"},`, size)
		m := parsed(b, `"pay"`, `{"payment_id":"txn_1","lines":[`+strings.TrimSuffix(lines, ",")+`]}`)
		b.Run(fmt.Sprintf("%d", len(m.Params.Arguments.Raw)), func(b *testing.B) {
			b.SetBytes(int64(len(m.Params.Arguments.Raw)))
			b.ReportAllocs()
			for b.Loop() {
				Identify(m)
			}
		})
	}
}
