// Command bench measures what mcp_gateway costs. It runs three Caddys on this machine: plain reverse_proxy, the same
// with mcp_gateway ahead of it, and plain again, to show what the measurement itself is worth. They take turns in short
// slices, so that whatever else the machine does strikes all of them alike.
//
//	go run ./bench
//	go run ./bench -effects
//
// All traffic is on 127.0.0.1. The README beside this file says how to read the result.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

type options struct {
	rounds int
	slice  time.Duration
	conns  int
	size   int    // bytes of a request body
	caddy  string // the binary; empty to build it

	effects bool // compare protected calls with others, instead of the gateway with plain Caddy
}

// variant is one of the things compared.
type variant struct {
	name      string
	directive string // what stands ahead of reverse_proxy in the Caddyfile
	caddy     *caddy
	samples   []sample // one per round

	serial *atomic.Int64 // of the payments that its calls are for; nil for one payment
}

// sample is what one slice showed of one variant.
type sample struct {
	rate     float64 // requests per second
	cpu      float64 // µs of the Caddy process's CPU time per request, user and system
	allocs   float64 // heap objects allocated by the Caddy process per request
	p50, p99 float64 // ms from a request's first byte out to its answer's last byte in
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 30, "how many slices every variant gets")
	flag.DurationVar(&o.slice, "slice", time.Second, "how long a slice is")
	flag.IntVar(&o.conns, "conns", 16, "how many connections send at the same time")
	flag.IntVar(&o.size, "size", 400, "bytes of a request's body")
	flag.StringVar(&o.caddy, "caddy", "", "a Caddy `binary` with the module; built from ./cmd/caddy if empty")
	flag.BoolVar(&o.effects, "effects", false, "compare calls of a protected tool with others, and with the disk")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := run(ctx, o)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// run is apart from main so that its deferred calls, which end the child processes, come before os.Exit.
func run(ctx context.Context, o options) error {
	if o.rounds < 1 || o.slice <= 0 || o.conns < 1 {
		return errors.New("-rounds, -slice and -conns must be positive")
	}
	body, err := callBody(o.size)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mcp_gateway-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.caddy == "" {
		o.caddy = filepath.Join(dir, "caddy")
		if err := build(ctx, o.caddy); err != nil {
			return fmt.Errorf("building Caddy: %w", err)
		}
	}
	up, err := startUpstream()
	if err != nil {
		return fmt.Errorf("starting the upstream: %w", err)
	}
	defer up.close()

	if o.effects {
		return measureEffects(ctx, o, dir, up, body)
	}
	variants := []*variant{
		{name: "plain"},
		{name: "gateway", directive: "mcp_gateway /mcp"},
		{name: "plain again"},
	}
	defer stopAll(variants)
	if err := startAll(ctx, o, dir, variants, up, body); err != nil {
		return err
	}
	if err := measure(ctx, o, variants, body); err != nil {
		return err
	}
	fmt.Printf("\n%d rounds of %v, %d connections, bodies of %d bytes; %s, %d CPUs, %s/%s\n\n",
		o.rounds, o.slice, o.conns, o.size, runtime.Version(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	report(os.Stdout, variants)
	return nil
}

// startAll starts a Caddy for each variant, and looks at an answer of it.
func startAll(ctx context.Context, o options, dir string, variants []*variant, up *upstream, body []byte) (err error) {
	for _, v := range variants {
		v.caddy, err = startCaddy(ctx, o.caddy, filepath.Join(dir, v.name), v.directive, up.addr)
		if err != nil {
			return fmt.Errorf("starting %s: %w", v.name, err)
		}
		if err := check(ctx, v, body); err != nil {
			return fmt.Errorf("checking %s: %w", v.name, err)
		}
	}
	return nil
}

// stopAll stops those that were started.
func stopAll(variants []*variant) {
	for _, v := range variants {
		if v.caddy != nil {
			v.caddy.stop()
		}
	}
}

// build makes a Caddy with the module of the folder that bench runs in.
func build(ctx context.Context, path string) error {
	fmt.Println("building Caddy, which takes minutes the first time ...")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/caddymcp/gateway/cmd/caddy")
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// measure gives every variant a slice per round. Each round begins with another variant: what a slice leaves behind,
// such as a warm or a hot processor, is not always the next one's.
func measure(ctx context.Context, o options, variants []*variant, body []byte) error {
	for _, v := range variants { // not counted: connections are made and heaps grow
		if _, err := v.slice(ctx, time.Second, o.conns, body); err != nil {
			return fmt.Errorf("warming up %s: %w", v.name, err)
		}
	}
	for round := range o.rounds {
		first := round % len(variants)
		for _, v := range slices.Concat(variants[first:], variants[:first]) {
			s, err := v.slice(ctx, o.slice, o.conns, body)
			if err != nil {
				return fmt.Errorf("measuring %s: %w", v.name, err)
			}
			v.samples = append(v.samples, s)
			fmt.Printf("round %d/%d  %-12s %8.0f req/s  %6.1f µs CPU  p99 %5.1f ms\n",
				round+1, o.rounds, v.name, s.rate, s.cpu, s.p99)
		}
	}
	return nil
}

// slice loads the variant for that long.
func (v *variant) slice(ctx context.Context, d time.Duration, conns int, body []byte) (sample, error) {
	clients, err := dial(ctx, v.caddy.addr, conns, body, v.serial)
	if err != nil {
		return sample{}, err
	}
	defer closeAll(clients)

	before, err := v.caddy.usage(ctx)
	if err != nil {
		return sample{}, err
	}
	latencies, took, err := load(clients, d)
	if err != nil {
		return sample{}, err
	}
	after, err := v.caddy.usage(ctx)
	if err != nil {
		return sample{}, err
	}
	n := float64(len(latencies))
	slices.Sort(latencies)
	return sample{
		rate:   n / took.Seconds(),
		cpu:    (after.cpu - before.cpu) * 1e6 / n,
		allocs: (after.allocs - before.allocs) / n,
		p50:    quantile(latencies, 0.50) * 1e3,
		p99:    quantile(latencies, 0.99) * 1e3,
	}, nil
}
