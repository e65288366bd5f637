package brokenup

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// peek blocks until bytes have arrived and copies them without taking them
// out of the socket; 0 means that the connection ended.
func peek(conn net.Conn, p []byte) int {
	return recv(conn, p, true)
}

// glance is peek that does not wait.
func glance(conn net.Conn, p []byte) int {
	return recv(conn, p, false)
}

func recv(conn net.Conn, p []byte, wait bool) int {
	rc, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return 0
	}
	var n int
	var failed error
	err = rc.Read(func(fd uintptr) bool {
		n, _, failed = syscall.Recvfrom(int(fd), p, syscall.MSG_PEEK)
		return !wait || failed != syscall.EAGAIN
	})
	if err != nil || failed != nil {
		return 0
	}
	return n
}

// linger makes the next Close send an RST.
func linger(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
}

// Refused is a loopback address on which connecting is refused. The port is
// bound and never listened on, so that nobody else can get it.
func Refused(t testing.TB) string {
	t.Helper()
	fd := bound(t)
	t.Cleanup(func() { syscall.Close(fd) })
	addr, _ := address(t, fd)
	return addr
}

// Full is a loopback address on which connecting neither succeeds nor fails:
// the queue of connections to accept is full, and the system drops what else
// comes.
type Full struct {
	Addr string

	ln     net.Listener
	port   int
	filler net.Conn
	filled chan struct{}
	closed chan struct{}
	close  func()
}

// NewFull makes such an address.
func NewFull(t testing.TB) *Full {
	t.Helper()
	f := listenShort(t)
	f.fill()
	return f
}

// AcceptsOne is an upstream whose address is full after one connection. The
// Full's Await tells when.
func AcceptsOne(t testing.TB, s Script) (*Upstream, *Full) {
	t.Helper()
	f := listenShort(t)
	return start(t, &oneConnection{full: f}, nil, s), f
}

func listenShort(t testing.TB) *Full {
	t.Helper()
	fd := bound(t)
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatalf("listening: %v", err)
	}
	f := &Full{filled: make(chan struct{}), closed: make(chan struct{})}
	f.Addr, f.port = address(t, fd)
	file := os.NewFile(uintptr(fd), "listener")
	ln, err := net.FileListener(file)
	file.Close()
	if err != nil {
		t.Fatalf("listening: %v", err)
	}
	f.ln = ln
	f.close = sync.OnceFunc(func() { close(f.closed); ln.Close() })
	t.Cleanup(func() {
		f.close()
		if f.filler != nil {
			f.filler.Close()
		}
	})
	return f
}

// fill takes the one place that a queue of length 0 has.
func (f *Full) fill() {
	if conn, err := net.Dial("tcp", f.Addr); err == nil {
		f.filler = conn
	}
	close(f.filled)
}

// Await waits until the queue is full.
func (f *Full) Await() { <-f.filled }

// AwaitDial waits until somebody tries to connect.
func (f *Full) AwaitDial() { f.awaitDialing(true) }

// Refuse ends the listener. Who is connecting gets an RST when the system next
// repeats its SYN, within a second or so; Refuse waits for that.
func (f *Full) Refuse() {
	f.close()
	f.awaitDialing(false)
}

// awaitDialing polls the kernel's table of sockets (proc(5)) for a connection
// to the port in state SYN_SENT: it tells nobody when it changes.
func (f *Full) awaitDialing(want bool) {
	entry := fmt.Appendf(nil, " 0100007F:%04X 02 ", f.port)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); runtime.Gosched() {
		table, err := os.ReadFile("/proc/net/tcp")
		if err != nil || bytes.Contains(table, entry) == want {
			return
		}
	}
}

// oneConnection is a listener that fills its queue after the first Accept.
type oneConnection struct {
	full     *Full
	accepted bool
}

func (o *oneConnection) Accept() (net.Conn, error) {
	if !o.accepted {
		o.accepted = true
		return o.full.ln.Accept()
	}
	o.full.fill()
	<-o.full.closed
	return nil, net.ErrClosed
}

func (o *oneConnection) Addr() net.Addr { return o.full.ln.Addr() }

func (o *oneConnection) Close() error {
	o.full.close()
	return nil
}

// MissingSocket is the address of a Unix socket that does not exist.
func MissingSocket(t testing.TB) string {
	t.Helper()
	return "unix/" + socketDir(t) + "/missing.sock"
}

func bound(t testing.TB) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("opening a socket: %v", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatalf("binding: %v", err)
	}
	return fd
}

func address(t testing.TB, fd int) (addr string, port int) {
	t.Helper()
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatalf("reading the bound address: %v", err)
	}
	port = sa.(*syscall.SockaddrInet4).Port
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), port
}

// socketDir is a directory whose path is short enough for a socket address
// (108 bytes), which that of t.TempDir with a long test name is not.
func socketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "up")
	if err != nil {
		t.Fatalf("making a directory: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// NoNames starts a DNS server that knows no name and returns its address, for
// a proxy to resolve names at without leaving the machine.
func NoNames(t testing.TB) string {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listening: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p := make([]byte, 1500)
		for {
			n, from, err := pc.ReadFrom(p)
			if err != nil {
				return
			}
			if n < 12 {
				continue
			}
			p[2] |= 0x80 // a response
			p[3] = 0x83  // recursion available, NXDOMAIN
			pc.WriteTo(p[:n], from)
		}
	}()
	t.Cleanup(func() { pc.Close(); <-done })
	return pc.LocalAddr().String()
}
