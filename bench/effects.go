package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// callers are how many clients send at the same time.
var callers = []int{1, 8, 64}

// protectedTool is a gateway of which every call is for an effect of its own.
const protectedTool = `mcp_gateway /mcp {
		tool ` + toolName + ` {
			effect refund {http.mcp.args.payment_id}
		}
	}`

// measureEffects compares calls of a protected tool with those of another one,
// and both with what the disk under the ledger can do. They take turns.
func measureEffects(ctx context.Context, o options, dir string, up *upstream, body []byte) error {
	variants := []*variant{
		{name: "unprotected", directive: "mcp_gateway /mcp"},
		{name: "protected", directive: protectedTool, serial: new(atomic.Int64)},
	}
	defer stopAll(variants)
	if err := startAll(ctx, o, dir, variants, up, body); err != nil {
		return err
	}

	samples := make(map[string][]sample)
	var syncs []float64
	for round := range o.rounds {
		rate, err := syncRate(dir, o.slice)
		if err != nil {
			return fmt.Errorf("measuring the disk: %w", err)
		}
		syncs = append(syncs, rate)
		for _, n := range callers {
			for _, v := range variants {
				s, err := v.slice(ctx, o.slice, n, body)
				if err != nil {
					return fmt.Errorf("measuring %s: %w", v.name, err)
				}
				samples[row(v, n)] = append(samples[row(v, n)], s)
			}
		}
		fmt.Printf("round %d/%d\n", round+1, o.rounds)
	}

	slices.Sort(syncs)
	fmt.Printf("\n%d rounds of %v, bodies of %d bytes; %s, %d CPUs, %s/%s\n", o.rounds, o.slice, o.size, runtime.Version(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	fmt.Printf("the disk: %.0f writes of 4 KiB a second, each synced (%.0f–%.0f)\n\n", quantile(syncs, .5), quantile(syncs, .25), quantile(syncs, .75))
	fmt.Printf("%-26s%-26s%-12s%-10s%s\n", "", "calls/s", "CPU µs/call", "p50 ms", "p99 ms")
	for _, n := range callers {
		for _, v := range variants {
			of := &variant{samples: samples[row(v, n)]}
			rate := of.spread(rateOf, nil)
			fmt.Printf("%-26s%-26s%-12.1f%-10.2f%.2f\n", row(v, n), fmt.Sprintf("%.0f (%.0f–%.0f)", rate.median, rate.low, rate.high),
				of.spread(cpuOf, nil).median, of.spread(p50Of, nil).median, of.spread(p99Of, nil).median)
		}
	}
	return nil
}

func row(v *variant, callers int) string { return fmt.Sprintf("%s, %d callers", v.name, callers) }

// syncRate is how many times a second the disk under a folder takes a page and
// keeps it: a file is written again and again, as a write-ahead log is.
func syncRate(dir string, d time.Duration) (float64, error) {
	f, err := os.CreateTemp(dir, "sync-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	page := make([]byte, 4096)
	n, begin := 0, time.Now()
	for ; time.Since(begin) < d; n++ {
		if _, err := f.WriteAt(page, int64(n%1000)*int64(len(page))); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(begin).Seconds(), nil
}
