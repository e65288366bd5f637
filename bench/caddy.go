package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// caddyfile is the configuration of every variant: they differ in the directive only, and in their ports.
const caddyfile = `{
	admin %s
	default_bind 127.0.0.1
	auto_https off
	persist_config off
	log {
		level ERROR
	}
	servers {
		protocols h1
	}
}

http://%s {
	%s
	reverse_proxy %s
}
`

// caddy is a Caddy process.
type caddy struct {
	addr   string // of the site
	admin  string // of the admin endpoint
	cmd    *exec.Cmd
	exited chan struct{}
	log    bytes.Buffer // to be read after exited
}

// startCaddy runs a Caddy whose files are in dir until stop is called or ctx is done, and waits until it serves.
func startCaddy(ctx context.Context, binary, dir, directive, upstream string) (*caddy, error) {
	addrs, err := freeAddrs(2)
	if err != nil {
		return nil, err
	}
	c := &caddy{addr: addrs[0], admin: addrs[1], exited: make(chan struct{})}
	config := filepath.Join(dir, "Caddyfile")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(config, fmt.Appendf(nil, caddyfile, c.admin, c.addr, directive, upstream), 0o600); err != nil {
		return nil, err
	}
	c.cmd = exec.CommandContext(ctx, binary, "run", "--config", config)
	c.cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = c.cmd.Wait() // how it ended is in its log
		close(c.exited)
	}()
	if err := c.waitReady(ctx); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// waitReady returns when the site takes connections, within 30 seconds.
func (c *caddy) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-c.exited:
			return fmt.Errorf("it ended by itself:\n%s", &c.log)
		case <-ctx.Done():
			return fmt.Errorf("it does not listen: %w", err)
		case <-retry.C:
		}
	}
}

// stop ends the process and waits for its end.
func (c *caddy) stop() {
	_ = c.cmd.Process.Kill() // it may have ended already
	<-c.exited
}

// usage is what a process has used since it started.
type usage struct {
	cpu    float64 // seconds of user and system time
	allocs float64 // heap objects
}

// usage asks the process itself, so that it works on every system. Asking costs some of both, the same in every slice.
func (c *caddy) usage(ctx context.Context) (usage, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.admin+"/metrics", http.NoBody)
	if err != nil {
		return usage{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return usage{}, err
	}
	defer resp.Body.Close()

	found := make(map[string]float64)
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			found[name] = value
		}
	}
	if err := lines.Err(); err != nil {
		return usage{}, err
	}
	u := usage{cpu: found["process_cpu_seconds_total"], allocs: found["go_memstats_mallocs_total"]}
	if u.cpu == 0 || u.allocs == 0 {
		return usage{}, errors.New("its metrics do not tell CPU time and allocations")
	}
	return u, nil
}

// freeAddrs returns n loopback addresses with ports that are free at the moment.
func freeAddrs(n int) (addrs []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // only after the last one is found: no port twice
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}
