//go:build unix

package exchange

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// patience bounds the waits that only a failure makes long.
const patience = 20 * time.Second

// bare wants a refusal that tells a stranger nothing but its code and the state.
func (a answer) bare(t *testing.T, code int, state effect.State) {
	t.Helper()
	data := a.refusedWith(t, code)
	if data["state"] != state.String() || data["next"] == "" || len(data) != 2 {
		t.Errorf("a stranger is told %s, want the state %s and what to do", a.body, state)
	}
	for _, secret := range []string{"txn_1", "refund", "secret", "task_1"} {
		if strings.Contains(a.body, secret) {
			t.Errorf("a stranger is told %q: %s", secret, a.body)
		}
	}
}

// replays wants the stored result under an id, marked, and returns it.
func (a answer) replays(t *testing.T, id string) (result map[string]json.RawMessage) {
	t.Helper()
	var r struct {
		ID     json.RawMessage
		Result map[string]json.RawMessage
	}
	var meta map[string]struct {
		Outcome  string
		Replayed bool
	}
	if err := json.Unmarshal([]byte(a.body), &r); err != nil || a.status != http.StatusOK || string(r.ID) != id ||
		json.Unmarshal(r.Result["_meta"], &meta) != nil || !meta[outcomeMember].Replayed || meta[outcomeMember].Outcome != "committed" {
		t.Errorf("answered %d %s (%v), want the stored answer under id %s", a.status, a.body, err, id)
	}
	if got := a.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("the stored answer came as %q", got)
	}
	return r.Result
}

// asking is the answer of a tool that wants input, and gives a requestState as
// it is spelled.
func asking(state string) string {
	return `{"jsonrpc":"2.0","id":$id,"result":{"resultType":"input_required","inputRequests":{"sure":{"method":"elicitation/create",` +
		`"params":{"mode":"form","message":"secret?","requestedSchema":{"type":"object","properties":{"sure":{"type":"boolean"}}}}}},"requestState":` + state + `}}`
}

// continued is a call with the input that was asked for, and the requestState
// as the client spells it.
func continued(m message, state string) message {
	m.params = `,"inputResponses":{"sure":{"action":"accept","content":{"sure":true}}},"requestState":` + state
	return m
}

// secretAnswer is a result that is for its caller only.
const secretAnswer = `{"jsonrpc":"2.0","id":$id,"result":{"resultType":"complete","content":[{"type":"text","text":"secret"}]}}`

const taskAnswer = `{"jsonrpc":"2.0","id":$id,"result":{"resultType":"task","taskId":"task_1","status":"working","createdAt":"2026-07-28T00:00:00Z","lastUpdatedAt":"2026-07-28T00:00:00Z","ttlMs":60000}}`

// callers are two callers, and what tells them apart.
var callers = []struct {
	name, options string
	ann, bob      []string // headers
}{
	{"another token", "", []string{"Authorization: Bearer a"}, []string{"Authorization: Bearer expired"}},
	{"no token", "", []string{"Authorization: Bearer a"}, nil},
	{"a token where there was none", "", nil, []string{"Authorization: Bearer expired"}},
	{"one token more", "", []string{"Authorization: Bearer a"}, []string{"Authorization: Bearer a", "Authorization: Bearer expired"}},
	{"another cookie", "", []string{"Cookie: session=a"}, []string{"Cookie: session=b"}},
	{"a token as cookie", "", []string{"Authorization: a"}, []string{"Cookie: a"}},
	{"another header that is named", "caller x-api-key X-Tenant\n", []string{"X-API-Key: 1", "X-Tenant: a"}, []string{"X-API-Key: 1", "X-Tenant: b"}},
	{"the same in another header", "caller X-API-Key X-Tenant\n", []string{"X-API-Key: a"}, []string{"X-Tenant: a"}},
	{"another principal", "principal {http.request.header.X-User}\n", []string{"Authorization: Bearer a", "X-User: ann"}, []string{"Authorization: Bearer a", "X-User: bob"}},
	{"another principal of the same text", "principal {http.request.header.X-Tenant}:{http.request.header.X-User}\n", []string{"X-Tenant: acme", "X-User: eu:ann"}, []string{"X-Tenant: acme:eu", "X-User: ann"}},
}

// What a caller did, another one never learns of, in whatever state it is. The
// upstream, which would refuse him, is not asked.
func TestEffectOfAnotherCaller(t *testing.T) {
	for _, who := range callers {
		for _, c := range []struct {
			state effect.State
			reply string // none if empty
			code  int
		}{
			{effect.Committed, secretAnswer, effect.CodeInProgress},
			{effect.Ambiguous, "", effect.CodeAmbiguous},
			{effect.Held, asking(`"secret"`), effect.CodeInProgress},
			{effect.Deferred, taskAnswer, effect.CodeInProgress},
		} {
			t.Run(who.name+"/"+c.state.String(), func(t *testing.T) {
				up := brokenup.TCP(t, func(conn *brokenup.Conn) {
					r, ok := conn.Read()
					switch {
					case !ok || c.reply == "":
					case strings.Contains(fmt.Sprint(r.Header["Authorization"]), "expired"):
						conn.Reply(brokenup.JSON("{}").With(http.StatusUnauthorized, "WWW-Authenticate: Bearer"))
					default:
						conn.Reply(brokenup.JSON(c.reply).For(r))
					}
				})
				p := protect(t, refundTool+who.options, proxy(up.Addr()))
				call(t, p.Site, with(refund(), who.ann...))
				p.wantState(t, c.state, 1)
				if n := deliveries(up); n != 1 {
					t.Fatalf("%d deliveries of the first call", n)
				}

				call(t, p.Site, with(refund(), who.bob...)).bare(t, c.code, c.state)
				call(t, p.Site, with(message{args: `{"payment_id":"txn_1","amount":1}`}, who.bob...)).bare(t, c.code, c.state)
				stray := c.code
				if c.state == effect.Held {
					stray = effect.CodeNoContinuation
				}
				call(t, p.Site, with(continued(refund(), `"secret"`), who.bob...)).bare(t, stray, c.state)

				a := call(t, p.Site, with(message{id: `"mine"`, args: refund().args}, who.ann...))
				if c.state == effect.Committed {
					if result := a.replays(t, `"mine"`); !strings.Contains(string(result["content"]), "secret") {
						t.Errorf("the answer that was stored is %s", a.body)
					}
				} else if data := a.refusedWith(t, c.code); data["key"] != refundKey.Text || data["attempt"] != 1.0 || data["since"] == "" {
					t.Errorf("the caller himself is told %v", data)
				} else if c.state == effect.Deferred && data["taskId"] != "task_1" {
					t.Errorf("the caller himself is told %v, want his task", data)
				}
				p.wantState(t, c.state, 1)
				if n := deliveries(up); n != 1 {
					t.Errorf("%d deliveries, want the first", n)
				}
			})
		}
	}
}

// A call that may wait for the outcome of one that is under way does so for its
// own caller only: that it came would tell another when the call ended.
func TestEffectOfAnotherCallerIsNotJoined(t *testing.T) {
	release := make(chan struct{})
	up := brokenup.TCP(t, func(c *brokenup.Conn) {
		r, _ := c.Read()
		<-release
		c.Reply(brokenup.JSON(secretAnswer).For(r))
	})
	p := protect(t, refundTool+"join 1h", proxy(up.Addr()))
	ann := with(refund(), "Authorization: Bearer a")
	answers := make(chan answer, 2)
	for range 2 {
		go func() { answers <- call(t, p.Site, ann) }()
	}
	up.AwaitRequest(1)

	bob := with(refund(), "Authorization: Bearer b")
	for _, m := range []message{bob, continued(bob, `"secret"`)} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		a := send(incaddy.Client(t, false), m.request(ctx, p.URL), m.uri)
		cancel()
		a.bare(t, effect.CodeInProgress, effect.Executing)
	}
	close(release)
	for range 2 {
		if a := <-answers; !strings.Contains(a.body, "secret") {
			t.Errorf("a caller of the call got %d %s", a.status, a.body)
		}
	}
	if n := deliveries(up); n != 1 {
		t.Errorf("%d deliveries, want 1", n)
	}
}

// A principal is known whatever token it has at the moment.
func TestEffectOfTheSamePrincipal(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(ok))
	p := protect(t, refundTool+"principal {http.request.header.X-User}", proxy(up.Addr()))
	call(t, p.Site, with(refund(), "X-User: ann", "Authorization: Bearer a", "Cookie: a=1"))
	call(t, p.Site, with(refund(), "X-User: ann", "Authorization: Bearer b")).replays(t, "1")
	if r, receipts := p.record(t); r.Who != "ann" || len(receipts) == 0 || receipts[0].Who != "ann" {
		t.Errorf("on record as %q: %+v", r.Who, receipts)
	}
}

func TestEffectOfNobody(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(ok))
	for name, principal := range map[string]string{
		"empty":   "{http.request.header.X-User}",
		"unknown": "{http.auth.user.id}",
		"partly":  "user-{http.request.header.X-User}",
	} {
		t.Run(name, func(t *testing.T) {
			p := protect(t, refundTool+"principal "+principal, proxy(up.Addr()))
			for _, m := range []message{refund(), {}, {args: `{"payment_id":0.5}`}, continued(refund(), `"s"`)} {
				if data := call(t, p.Site, m).refusedWith(t, effect.CodeNoPrincipal); data != nil {
					t.Errorf("it is told %v", data)
				}
			}
			p.wantState(t, effect.None, 0)
			// Only what is protected needs to be somebody's.
			committed.check(t, p.Site, call(t, p.Site, message{tool: "list_refunds"}))
		})
	}
	if n := len(slices.DeleteFunc(up.Requests(), func(r *brokenup.Request) bool { return strings.Contains(string(r.Body), "list_refunds") })); n != 0 {
		t.Errorf("%d deliveries of nobody's calls", n)
	}
}

func TestEffectOfAnotherCertificate(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(brokenup.JSON(secretAnswer)))
	port := freePort(t)
	dir := t.TempDir()
	gateway := newCertificate(t, "gateway")
	writePEM(t, filepath.Join(dir, "cert.pem"), "CERTIFICATE", gateway.Certificate[0])
	key, err := x509.MarshalPKCS8PrivateKey(gateway.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, filepath.Join(dir, "key.pem"), "PRIVATE KEY", key)
	cfg := incaddy.Config{
		Global: fmt.Sprintf("mcp_gateway {\nledger sqlite %q\n}", filepath.Join(dir, "effects.db")),
		Also: fmt.Sprintf("https://gateway:%s {\nbind 127.0.0.1\ntls %s/cert.pem %s/key.pem {\nclient_auth {\nmode request\n}\n}\nmcp_gateway /mcp {\n%s}\n%s\n}",
			port, dir, dir, refundTool, proxy(up.Addr())),
	}
	s := incaddy.Run(t, cfg)
	s.URL = "https://gateway:" + port
	as := func(certificates ...tls.Certificate) answer {
		m := refund()
		transport := &http.Transport{
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, "127.0.0.1:"+port)
			},
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}, //nolint:gosec // the test's own server
		}
		defer transport.CloseIdleConnections()
		return send(&http.Client{Transport: transport}, m.request(t.Context(), s.URL), m.uri)
	}
	ann, bob := newCertificate(t, "ann"), newCertificate(t, "ann")
	if a := as(ann); !strings.Contains(a.body, "secret") {
		t.Fatalf("answered %d %s %v", a.status, a.body, a.err)
	}
	as(bob).bare(t, effect.CodeInProgress, effect.Committed)
	as().bare(t, effect.CodeInProgress, effect.Committed)
	as(ann).replays(t, "1")
	if n := deliveries(up); n != 1 {
		t.Errorf("%d deliveries, want 1", n)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return port
}

// newCertificate makes a certificate that its holder signed.
func newCertificate(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
