package gateway

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddymcp/gateway/outcome"
)

// The collectors are made once for the process and registered again with every
// configuration, which has a registry of its own: so they keep their values
// over a reload. All their labels come from bounded sets.
var (
	callsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "mcp_gateway", Name: "calls_total",
		Help: "Tool calls that ended, by outcome and by the observation that decided it.",
	}, []string{"outcome", "observation"})

	callDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "caddy", Subsystem: "mcp_gateway", Name: "call_duration_seconds",
		Help:    "Time from the admission of a tool call to its outcome.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300},
	}, []string{"outcome"})

	refusalsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "mcp_gateway", Name: "refusals_total",
		Help: "Requests that failed admission, by reason; enforced is false for those that went on because enforce is off.",
	}, []string{"refusal", "enforced"})

	repeatsStopped = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "mcp_gateway", Name: "repeats_stopped_total",
		Help: "Second deliveries of a tool call that the handlers beneath attempted and that were stopped.",
	})

	heldBytes = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "mcp_gateway", Name: "held_bytes",
		Help: "Bytes of requests and responses that are held now.",
	})
)

func registerMetrics(registry prometheus.Registerer) error {
	for _, collector := range []prometheus.Collector{callsTotal, callDuration, refusalsTotal, repeatsStopped, heldBytes} {
		err := registry.Register(collector)
		// A second handler of the same configuration finds them registered.
		var registered prometheus.AlreadyRegisteredError
		if err != nil && !errors.As(err, &registered) {
			return err
		}
	}
	return nil
}

// callSeries holds the series of each verdict: all begin at zero, so that a
// rate over the first ambiguous call shows it, and none is looked up by its
// labels when a call ends.
var callSeries = func() map[outcome.Verdict]series {
	all := make(map[outcome.Verdict]series)
	for _, v := range outcome.Verdicts() {
		all[v] = series{
			calls:    callsTotal.WithLabelValues(v.Outcome.String(), v.Observation),
			duration: callDuration.WithLabelValues(v.Outcome.String()),
		}
	}
	return all
}()

type series struct {
	calls    prometheus.Counter
	duration prometheus.Observer
}

func countCall(v outcome.Verdict, took time.Duration) {
	s := callSeries[v]
	s.calls.Inc()
	s.duration.Observe(took.Seconds())
}

func countRefusal(reason string, enforced bool) {
	refusalsTotal.WithLabelValues(reason, strconv.FormatBool(enforced)).Inc()
}
