package mcpheaders

import (
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/caddymcp/gateway/jsonrpc"
)

// agreementFile is testdata/agreement.json.
type agreementFile struct {
	About     string `json:"about"`
	Agreement []struct {
		Value     string `json:"value"`
		Text      string `json:"text"`
		Canonical bool   `json:"canonical"`
		Lenient   bool   `json:"lenient"`
		Source    string `json:"source"`
	} `json:"agreement"`
	Encoding []struct {
		Text   string `json:"text"`
		Header string `json:"header"`
	} `json:"encoding"`
	Decoding []struct {
		Text   string `json:"text"`
		Header string `json:"header"`
		Source string `json:"source"`
	} `json:"decoding"`
	Malformed []struct {
		Header string `json:"header"`
		Source string `json:"source"`
	} `json:"malformed"`
	Literal []string `json:"literal"`
}

func agreementCases(tb testing.TB) *agreementFile {
	tb.Helper()
	var file agreementFile
	load(tb, "agreement.json", &file)
	return &file
}

// argument parses value as an argument of a call, since that is where it would
// come from.
func argument(tb rapid.TB, value string) jsonrpc.Member {
	tb.Helper()
	var msg jsonrpc.Message
	if err := msg.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"v":` + value + `}}}`)); err != nil {
		tb.Fatal(err)
	}
	return msg.Argument("v")
}

func TestAgree(t *testing.T) {
	for _, test := range agreementCases(t).Agreement {
		t.Run(test.Value+" as "+strconv.Quote(test.Text), func(t *testing.T) {
			value := argument(t, test.Value)
			if got := agree(value, test.Text, Canonical); got != test.Canonical {
				t.Errorf("canonical: agrees: %t, want %t (%s)", got, test.Canonical, test.Source)
			}
			if got := agree(value, test.Text, Lenient); got != test.Lenient {
				t.Errorf("lenient: agrees: %t, want %t (%s)", got, test.Lenient, test.Source)
			}
		})
	}
}

func TestAbsentAgreesWithNothing(t *testing.T) {
	for _, text := range []string{"", "null", "0"} {
		if agree(jsonrpc.Member{}, text, Lenient) {
			t.Errorf("an absent value agrees with %q", text)
		}
	}
}

// TestOneRendering shows that of all texts exactly one agrees with a value that
// has a rendering.
func TestOneRendering(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var token, rendering string
		switch rapid.SampledFrom([]string{"integer", "bool", "string"}).Draw(t, "type") {
		case "integer":
			const safe = 1<<53 - 1
			rendering = strconv.FormatInt(rapid.Int64Range(-safe, safe).Draw(t, "integer"), 10)
			token = rendering
		case "bool":
			rendering = strconv.FormatBool(rapid.Bool().Draw(t, "bool"))
			token = rendering
		case "string":
			rendering = rapid.String().Draw(t, "string")
			token = quoteJSON(rendering)
		}
		value := argument(t, token)
		if !agree(value, rendering, Canonical) || !agree(value, rendering, Lenient) {
			t.Fatalf("%s does not agree with its rendering %q", token, rendering)
		}
		other := rapid.OneOf(
			rapid.String(),
			rapid.SampledFrom([]string{
				rendering + " ", " " + rendering, "+" + rendering, "0" + rendering, rendering + ".0", rendering + "e0", rendering + "\n",
				strings.ToUpper(rendering), strings.ToLower(rendering), strconv.Quote(rendering), token,
			}),
		).Draw(t, "other")
		if other != rendering && agree(value, other, Canonical) {
			t.Fatalf("%s, rendered %q, agrees with %q too", token, rendering, other)
		}
	})
}

// quoteJSON writes a JSON string, escaping more than it must.
func quoteJSON(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\' || r < 0x20 || r%5 == 0 && r < 0x10000:
			b.WriteString(`\u`)
			hex := strconv.FormatInt(int64(r), 16)
			b.WriteString(strings.Repeat("0", 4-len(hex)) + hex)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func TestEncode(t *testing.T) {
	for _, test := range agreementCases(t).Encoding {
		if got := encode(test.Text); got != test.Header {
			t.Errorf("%q is carried by %q, want %q", test.Text, got, test.Header)
		}
		if got, ok := decode(test.Header); !ok || got != test.Text {
			t.Errorf("%q carries %q, %t, want %q", test.Header, got, ok, test.Text)
		}
	}
}

func TestDecode(t *testing.T) {
	file := agreementCases(t)
	for _, test := range file.Decoding {
		if got, ok := decode(test.Header); !ok || got != test.Text {
			t.Errorf("%q carries %q, %t, want %q (%s)", test.Header, got, ok, test.Text, test.Source)
		}
	}
	for _, test := range file.Malformed {
		if got, ok := decode(test.Header); ok {
			t.Errorf("%q carries %q, want a refusal (%s)", test.Header, got, test.Source)
		}
	}
	for _, header := range file.Literal {
		if got, ok := decode(header); !ok || got != header {
			t.Errorf("%q carries %q, %t, want itself", header, got, ok)
		}
	}
}

// TestRoundTrip shows that every text can be carried, safely, and that what
// decodes has one encoded spelling.
func TestRoundTrip(t *testing.T) {
	text := rapid.OneOf(
		rapid.String(),
		rapid.StringMatching(`[ \t]?[!-~]{0,4}[ \t]?`),
		rapid.StringMatching(`=\?base64\?.{0,6}\?=`),
	)
	rapid.Check(t, func(t *rapid.T) {
		text := text.Draw(t, "text")
		header := encode(text)
		if !isPlain(header) || trim(header) != header {
			t.Fatalf("%q is carried by %q, which no header can hold", text, header)
		}
		if got, ok := decode(header); !ok || got != text {
			t.Fatalf("%q comes back as %q, %t", text, got, ok)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		header := rapid.StringMatching(`=\?base64\?[A-Za-z0-9+/=]{0,8}\?=`).Draw(t, "header")
		text, ok := decode(header)
		if !ok {
			return
		}
		if again, marked := cutSentinel(encode(text)); marked && sentinelPrefix+again+sentinelSuffix != header {
			t.Fatalf("%q and %q both carry %q", header, encode(text), text)
		}
	})
}
