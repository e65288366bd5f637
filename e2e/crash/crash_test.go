//go:build linux

// Package crash tests that the ledger of effects holds when Caddy is killed,
// reloaded, stopped or one of many, and when the ledger fails: calls that were
// acknowledged are on record, and no upstream acts twice.
//
// Caddy runs in processes of its own: this program, started again as Caddy.
package crash

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/effect/sqlite"

	_ "github.com/caddymcp/gateway"
	_ "github.com/caddymcp/gateway/internal/brokenup/incaddy" // with what Caddyfiles are made of
)

// asCaddy makes this program Caddy.
const asCaddy = "CRASH_TEST_AS_CADDY"

func TestMain(m *testing.M) {
	if os.Getenv(asCaddy) != "" {
		caddycmd.Main()
		return
	}
	os.Exit(m.Run())
}

// patience bounds every wait for another process. It is no part of any
// scenario: a test that meets it has failed.
const patience = 60 * time.Second

// place is where a Caddy, its ledger and its upstream meet.
type place struct {
	dir     string
	ledger  string
	options string // lines of mcp_gateway's block
	global  string // lines of the global block
	admin   string // the address of the admin endpoint, or off
}

// newPlace makes a folder whose name is short enough for sockets, in another one
// or where temporary files are.
func newPlace(t testing.TB, parent string) *place {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "crash")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &place{dir: dir, ledger: filepath.Join(dir, "effects.db"), admin: "off"}
}

func (p *place) upstream() string { return filepath.Join(p.dir, "up.sock") }

// caddyfile protects create_refund. A call with the header X-Refused meets an
// upstream that nobody listens for.
func (p *place) caddyfile(socket string) string {
	return fmt.Sprintf(`{
	admin %[7]s
	auto_https off
	persist_config off
	storage file_system %[1]s
	servers {
		protocols h1 h2c
	}
	%[5]s
	mcp_gateway {
		ledger sqlite %[2]s
	}
}
http:// {
	bind unix/%[3]s
	mcp_gateway {
		%[4]s
		tool create_refund {
			effect refund {http.mcp.args.payment_id}
			not_executed_on_error
		}
	}
	@refused header X-Refused *
	reverse_proxy @refused unix/%[1]s/none.sock
	reverse_proxy unix/%[6]s
}
`, p.dir, p.ledger, socket, p.options, p.global, p.upstream(), p.admin)
}

// process is a Caddy.
type process struct {
	cmd     *exec.Cmd
	socket  string
	client  *http.Client
	ending  atomic.Bool   // it was killed or told to stop
	serving chan struct{} // closed when it serves
	lingers chan struct{} // closed when it waits for outcomes before it ends
	ended   chan struct{} // closed when it has said its last word

	// What it said last. They may be read when it has ended.
	said  []string
	races int
}

// start starts a Caddy and waits until it serves.
func (p *place) start(t testing.TB) *process {
	t.Helper()
	c := p.launch(t, "caddy")
	c.await(t, c.serving)
	return c
}

// launch starts a Caddy. Each name has a socket of its own.
func (p *place) launch(t testing.TB, name string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &process{socket: filepath.Join(p.dir, name+".sock"), serving: make(chan struct{}), lingers: make(chan struct{}), ended: make(chan struct{})}
	config := filepath.Join(p.dir, name+".caddyfile")
	if err := os.WriteFile(config, []byte(p.caddyfile(c.socket)), 0o600); err != nil {
		t.Fatal(err)
	}
	c.cmd = exec.Command(self, "run", "--config", config, "--adapter", "caddyfile")
	c.cmd.Env = append(os.Environ(), asCaddy+"=1", "HOME="+p.dir, "XDG_CONFIG_HOME="+p.dir, "XDG_DATA_HOME="+p.dir)
	out, err := c.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go c.listen(bufio.NewScanner(out))
	c.client = newClient(c.socket, false)
	t.Cleanup(func() {
		c.kill()
		if c.races > 0 {
			t.Errorf("%d data races in %s:\n%s", c.races, name, strings.Join(c.said, "\n"))
		}
	})
	return c
}

// newClient returns a client of a server that listens on a socket.
func newClient(socket string, http2 bool) *http.Client {
	transport := &http.Transport{
		DisableCompression:  true,
		MaxIdleConnsPerHost: 16,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		Protocols: new(http.Protocols),
	}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	return &http.Client{Transport: transport}
}

// await waits until the process has come so far.
func (c *process) await(t testing.TB, point <-chan struct{}) {
	t.Helper()
	select {
	case <-point:
	case <-c.ended:
		t.Fatalf("Caddy ended:\n%s", strings.Join(c.said, "\n"))
	case <-time.After(patience):
		t.Fatal("Caddy does not come so far")
	}
}

// listen reads what the process says.
func (c *process) listen(lines *bufio.Scanner) {
	defer close(c.ended)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.Contains(line, `"serving initial configuration"`):
			close(c.serving)
		case strings.Contains(line, `"waiting until the outcomes of all tool calls are on record"`):
			close(c.lingers)
		}
		if strings.Contains(line, "WARNING: DATA RACE") {
			c.races++
		}
		if c.races == 0 || len(c.said) < 2000 {
			c.said = append(c.said, line)
		}
		if c.races == 0 {
			c.said = c.said[max(0, len(c.said)-1000):]
		}
	}
}

// kill ends the process as a loss of power would, but for the disk.
func (c *process) kill() {
	c.ending.Store(true)
	_ = c.cmd.Process.Kill()
	c.wait()
}

// explain fails the test with what all goroutines of a process do that does
// nothing any more.
func (c *process) explain(t testing.TB) {
	c.ending.Store(true)
	_ = c.cmd.Process.Signal(syscall.SIGQUIT)
	<-c.ended
	t.Errorf("nothing happens any more:\n%s", strings.Join(c.said, "\n"))
}

// terminate tells the process to stop, as a service manager would.
func (c *process) terminate(t testing.TB) {
	t.Helper()
	c.ending.Store(true)
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// refuses waits until the process takes no connections any more.
func (c *process) refuses(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		conn, err := net.Dial("unix", c.socket)
		if err != nil {
			return
		}
		conn.Close()
	}
	t.Fatal("Caddy still takes connections")
}

// wait waits for the end of the process.
func (c *process) wait() {
	defer c.client.CloseIdleConnections()
	<-c.ended
	_ = c.cmd.Wait() // it says how it was killed, or that it was waited for
}

// exited waits for the process to have stopped by itself.
func (c *process) exited(t testing.TB) {
	t.Helper()
	select {
	case <-c.ended:
	case <-time.After(patience):
		t.Fatal("Caddy does not stop")
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("Caddy stopped: %v\n%s", err, strings.Join(c.said, "\n"))
	}
}

// open opens the ledger beside Caddy, as another process would.
func (p *place) open(t testing.TB, o sqlite.Options) effect.Ledger {
	t.Helper()
	l, err := sqlite.Open(context.Background(), p.ledger, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// keyOf is the key of the effect of a payment's refund.
func keyOf(payment string) effect.Key { return effect.NewKey("", "refund", payment) }
