package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A stack is the example server with Caddy in front of it, as child processes.
type stack struct {
	folder        string // with the binaries, and with what Caddy stores
	server, caddy *process

	endpoint string // the MCP endpoint, through the gateway
	admin    string // the address of Caddy's admin endpoint
	metrics  string
}

// startStack builds and starts the stack. If it fails, nothing is left behind.
func startStack(ctx context.Context) (*stack, error) {
	folder, err := os.MkdirTemp("", "mcp_gateway-quickstart-")
	if err != nil {
		return nil, err
	}
	s := &stack{folder: folder}
	if err := s.start(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *stack) start(ctx context.Context) error {
	fmt.Println(dim("building Caddy with mcp_gateway, and the example server (the first time takes some minutes)"))
	root, err := build(ctx, s.folder)
	if err != nil {
		return err
	}
	var ports [3]string
	for i, preferred := range [...]string{"9000", "8080", "2019"} {
		if ports[i], err = freePort(preferred); err != nil {
			return err
		}
	}
	serverPort, gatewayPort, adminPort := ports[0], ports[1], ports[2]
	s.endpoint = "http://127.0.0.1:" + gatewayPort + "/mcp"
	s.admin = "127.0.0.1:" + adminPort
	s.metrics = "http://" + s.admin + "/metrics"

	s.server, err = start(exec.CommandContext(ctx, filepath.Join(s.folder, "refunds"), "-listen", "127.0.0.1:"+serverPort))
	if err != nil {
		return err
	}
	if err := s.server.await(ctx, serverPort); err != nil {
		return err
	}

	caddy := exec.CommandContext(ctx, filepath.Join(s.folder, "caddy"), "run",
		"--config", filepath.Join(root, "examples", "local.Caddyfile"))
	caddy.Env = append(os.Environ(),
		"GATEWAY_PORT="+gatewayPort,
		"SERVER_PORT="+serverPort,
		"CADDY_ADMIN="+s.admin,
		"XDG_DATA_HOME="+filepath.Join(s.folder, "data"),
		"XDG_CONFIG_HOME="+filepath.Join(s.folder, "config"),
	)
	s.caddy, err = start(caddy)
	if err != nil {
		return err
	}
	if err := s.caddy.await(ctx, gatewayPort); err != nil {
		return err
	}
	fmt.Println(dim("client → Caddy with mcp_gateway (" + s.endpoint + ") → example server (port " + serverPort + ")"))
	return nil
}

// gateway runs `caddy mcp-gateway` and returns what it prints.
func (s *stack) gateway(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"mcp-gateway", "--address", s.admin}, args...)
	out, err := exec.CommandContext(ctx, filepath.Join(s.folder, "caddy"), args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("caddy %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// stop ends the processes, Caddy first, and removes the folder.
func (s *stack) stop() {
	s.caddy.stop()
	s.server.stop()
	os.RemoveAll(s.folder)
}

// build builds the binaries into folder and returns the root of the module.
func build(ctx context.Context, folder string) (root string, err error) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/caddymcp/gateway")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("finding the module: %w", err)
	}
	root = strings.TrimSpace(string(out))

	// The separator at the end tells go build that it is a folder.
	build := exec.CommandContext(ctx, "go", "build", "-o", folder+string(filepath.Separator), "./cmd/caddy", "./examples/refunds")
	build.Dir = root
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("building: %w", err)
	}
	return root, nil
}

// freePort returns the preferred port if nobody listens on it, or else any other.
func freePort(preferred string) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:"+preferred)
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// A process is a child process whose output is kept. A nil process is one that was not started.
type process struct {
	name   string
	cmd    *exec.Cmd
	exited chan struct{}

	mu     sync.Mutex
	output bytes.Buffer
}

// start starts cmd. When the context of cmd is done, it is interrupted, and killed if that does not end it.
func start(cmd *exec.Cmd) (*process, error) {
	p := &process{name: filepath.Base(cmd.Path), cmd: cmd, exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p, p
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = gracePeriod
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", p.name, err)
	}
	go func() {
		defer close(p.exited)
		_ = cmd.Wait() // how it ended is in its output
	}()
	return p, nil
}

// gracePeriod is how long a process has to end by itself.
const gracePeriod = 5 * time.Second

func (p *process) stop() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(os.Interrupt) // it may have ended
	select {
	case <-p.exited:
	case <-time.After(gracePeriod):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// Write keeps what the process writes.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(b)
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// await waits until the process accepts connections on port.
func (p *process) await(ctx context.Context, port string) error {
	return poll(ctx, func() error {
		select {
		case <-p.exited:
			return final(fmt.Errorf("%s ended:\n%s", p.name, p.log()))
		default:
		}
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			return fmt.Errorf("waiting for %s: %w", p.name, err)
		}
		return conn.Close()
	})
}

// poll tries something again and again until it succeeds or fails finally, for ten seconds at most.
func poll(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		err := try()
		var f finalError
		if err == nil || errors.As(err, &f) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// A finalError is one after which poll does not try again.
type finalError struct{ error }

func final(err error) error { return finalError{err} }
