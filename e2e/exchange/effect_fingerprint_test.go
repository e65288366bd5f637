//go:build unix

package exchange

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// TestFingerprintIsWhatArrived sends random calls of a protected tool. What the
// upstream received are the bytes that the client sent, and the canonical form
// of what a server reads in them is what the fingerprint on record is of.
// Another spelling of the call has the same fingerprint.
func TestFingerprintIsWhatArrived(t *testing.T) {
	up := newTaker(t)
	p := protect(t, refundTool+"keep_arguments", proxy(up.addr))
	ledger := p.ledger(t)
	client := incaddy.Client(t, true)
	rapid.Check(t, func(rt *rapid.T) {
		id := fmt.Sprint("txn_", serial.Add(1))
		drawn := drawArguments(rt, id)
		m := message{args: drawn.spelled(rt)}
		a := send(client, m.request(t.Context(), p.URL), m.uri)
		if a.err != nil || a.status != http.StatusOK || !strings.Contains(a.body, `"committed"`) {
			rt.Fatalf("called with %s: answered %d %s %v", m.args, a.status, a.body, a.err)
		}
		bodies := up.take()
		if len(bodies) != 1 || !bytes.Contains(bodies[0], []byte(`"arguments":`+m.args)) {
			rt.Fatalf("called with %s: received %q", m.args, bodies)
		}
		// As a server reads it, which has not our parser.
		var received struct {
			Params struct{ Name, Arguments json.RawMessage }
		}
		if err := json.Unmarshal(bodies[0], &received); err != nil {
			rt.Fatal(err)
		}
		input := jsontext.Value(fmt.Sprintf("[%s,%s]", received.Params.Name, received.Params.Arguments))
		if err := input.Canonicalize(); err != nil {
			rt.Fatal(err)
		}
		record, receipts, err := ledger.Load(t.Context(), effect.NewKey("", "refund", id))
		if err != nil {
			rt.Fatal(err)
		}
		if want := effect.Fingerprint(sha256.Sum256(input)); record.State != effect.Committed || record.Fingerprint != want || receipts[0].Fingerprint != want {
			rt.Fatalf("called with %s: on record is %s %s, want committed %s, of %s", m.args, record.State, record.Fingerprint, want, input)
		}
		if string(receipts[0].Arguments) != m.args {
			rt.Fatalf("called with %s: kept are %s", m.args, receipts[0].Arguments)
		}

		again := message{args: drawn.spelled(rt)}
		if a := send(client, again.request(t.Context(), p.URL), again.uri); !strings.Contains(a.body, `"replayed":true`) {
			rt.Fatalf("%s is not taken for %s: answered %d %s %v", again.args, m.args, a.status, a.body, a.err)
		}
		if bodies := up.take(); len(bodies) != 0 {
			rt.Fatalf("%s was forwarded after %s", again.args, m.args)
		}
	})
}

// taker is a server that does what it is asked and keeps what it was asked.
type taker struct {
	addr string

	mu     sync.Mutex
	bodies [][]byte
}

func newTaker(t *testing.T) *taker {
	up := new(taker)
	server := httptest.NewServer(up)
	t.Cleanup(server.Close)
	up.addr = strings.TrimPrefix(server.URL, "http://")
	return up
}

func (up *taker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	up.mu.Lock()
	up.bodies = append(up.bodies, body)
	up.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, strings.ReplaceAll(complete, "$id", "1"))
}

// take returns the bodies that came since it was called last.
func (up *taker) take() [][]byte {
	up.mu.Lock()
	defer up.mu.Unlock()
	bodies := up.bodies
	up.bodies = nil
	return bodies
}

// drawnValue is a JSON value, apart from its spelling.
type drawnValue struct {
	token  string // of what has one spelling
	text   *string
	array  []drawnValue
	names  []string // of an object
	values []drawnValue
	kind   byte
}

func drawArguments(t *rapid.T, id string) drawnValue {
	d := drawObjectValue(t, 0)
	d.names = append(d.names, "payment_id")
	d.values = append(d.values, drawnValue{kind: '"', text: &id})
	return d
}

func drawObjectValue(t *rapid.T, depth int) drawnValue {
	d := drawnValue{kind: '{'}
	name := rapid.OneOf(
		rapid.SampledFrom([]string{"", "a", "b", "\r", "1", "\u0080", "ö", "€", "\U0001F600", "\ufb33", "\uffff", "</script>", "__proto__", `q"\`, "a.b", "_meta"}),
		rapid.StringMatching(`[a-z]{1,3}`),
		rapid.String(),
	).Filter(func(name string) bool { return !strings.EqualFold(strings.SplitN(name, "\x00", 2)[0], "payment_id") })
	d.names = rapid.SliceOfNDistinct(name, 0, 5, func(name string) string { return name }).Draw(t, "names")
	for range d.names {
		d.values = append(d.values, drawValue(t, depth+1))
	}
	return d
}

func drawValue(t *rapid.T, depth int) drawnValue {
	kinds := 6
	if depth == 4 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return drawnValue{token: rapid.SampledFrom([]string{"true", "false", "null", "{}", "[]", "0"}).Draw(t, "word")}
	case 1:
		return drawnValue{token: strconv.FormatInt(rapid.Int64Range(-1<<53+1, 1<<53-1).Draw(t, "integer"), 10)}
	case 2, 3:
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ -~]{0,12}`)).Draw(t, "text")
		return drawnValue{kind: '"', text: &text}
	case 4:
		d := drawnValue{kind: '['}
		for range rapid.IntRange(0, 4).Draw(t, "length") {
			d.array = append(d.array, drawValue(t, depth+1))
		}
		return d
	default:
		return drawObjectValue(t, depth)
	}
}

// spelled draws one of the JSON texts of a value.
func (d *drawnValue) spelled(t *rapid.T) string {
	space := rapid.SampledFrom([]string{"", "", "", " ", "\n\t", "\r\n"})
	var b strings.Builder
	between := func(n int, open, end string, item func(i int)) {
		b.WriteString(open + space.Draw(t, "space"))
		for i := range n {
			if i > 0 {
				b.WriteString("," + space.Draw(t, "space"))
			}
			item(i)
			b.WriteString(space.Draw(t, "space"))
		}
		b.WriteString(end)
	}
	switch d.kind {
	case '"':
		return spelledText(t, *d.text)
	case '[':
		between(len(d.array), "[", "]", func(i int) { b.WriteString(d.array[i].spelled(t)) })
	case '{':
		order := rapid.Permutation(indexes(len(d.names))).Draw(t, "order")
		between(len(order), "{", "}", func(i int) {
			b.WriteString(spelledText(t, d.names[order[i]]) + space.Draw(t, "space") + ":" + space.Draw(t, "space") + d.values[order[i]].spelled(t))
		})
	default:
		return d.token
	}
	return b.String()
}

func indexes(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// spelledText draws one of the JSON strings of a text.
func spelledText(t *rapid.T, text string) string {
	escape := rapid.SampledFrom([]string{"", "", "u", "U"}).Draw(t, "escapes")
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch short := strings.IndexRune("\"\\/\b\f\n\r\t", r); {
		case short >= 0 && (escape == "" || r == '/'):
			b.WriteString(`\` + string("\"\\/bfnrt"[short]))
		case escape == "" && r >= ' ':
			b.WriteRune(r)
		default:
			format := `\u%04x`
			if escape == "U" {
				format = `\u%04X`
			}
			for _, unit := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&b, format, unit)
			}
		}
	}
	return b.String() + `"`
}
