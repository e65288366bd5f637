package main

import (
	"fmt"
	"io"
	"math"
	"slices"
)

// report prints what every variant did, and what it did in comparison with plain in the same round.
func report(w io.Writer, variants []*variant) {
	fmt.Fprintf(w, "%-13s%-26s%-26s%-18s%-10s%s\n", "", "CPU µs/request", "requests/s", "allocs/request", "p50 ms", "p99 ms")
	for _, v := range variants {
		cpu, rate := v.spread(cpuOf, nil), v.spread(rateOf, nil)
		fmt.Fprintf(w, "%-13s%-26s%-26s%-18.1f%-10.2f%.2f\n", v.name,
			fmt.Sprintf("%.1f (%.1f–%.1f)", cpu.median, cpu.low, cpu.high),
			fmt.Sprintf("%.0f (%.0f–%.0f)", rate.median, rate.low, rate.high),
			v.spread(allocsOf, nil).median, v.spread(p50Of, nil).median, v.spread(p99Of, nil).median)
	}

	plain := variants[0]
	fmt.Fprintf(w, "\n%-13s%-26s%-26s%-18s%-10s%s\n", "÷ plain", "CPU", "requests/s", "allocs", "p50", "p99")
	for _, v := range variants[1:] {
		fmt.Fprintf(w, "%-13s%-26s%-26s%-18.3f%-10.2f%.2f\n", v.name,
			v.spread(cpuOf, plain), v.spread(rateOf, plain),
			v.spread(allocsOf, plain).median, v.spread(p50Of, plain).median, v.spread(p99Of, plain).median)
	}
	fmt.Fprintf(w, "%-13s%-26s%s\n", "goal", "at most 1.08", "at least 0.97")
}

func cpuOf(s sample) float64    { return s.cpu }
func rateOf(s sample) float64   { return s.rate }
func allocsOf(s sample) float64 { return s.allocs }
func p50Of(s sample) float64    { return s.p50 }
func p99Of(s sample) float64    { return s.p99 }

// spread is the median of some values, and the quartiles around it.
type spread struct{ median, low, high float64 }

func (s spread) String() string { return fmt.Sprintf("%.3f (%.3f–%.3f)", s.median, s.low, s.high) }

// spread sums up one figure of all rounds. With another variant it is the ratio to that one's figure in the same
// round.
func (v *variant) spread(figure func(sample) float64, to *variant) spread {
	values := make([]float64, 0, len(v.samples))
	for i, s := range v.samples {
		value := figure(s)
		if to != nil {
			value /= figure(to.samples[i])
		}
		values = append(values, value)
	}
	slices.Sort(values)
	return spread{quantile(values, 0.5), quantile(values, 0.25), quantile(values, 0.75)}
}

// quantile returns the value below which the given part of the sorted values lies, between two of them if need be.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	below, part := math.Modf(at)
	i := int(below)
	if part == 0 {
		return sorted[i]
	}
	return sorted[i] + part*(sorted[i+1]-sorted[i])
}
