package gateway

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddymcp/gateway/effect"
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

	toolLists = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "mcp_gateway", Name: "tool_lists_total",
		Help: "Pages of tools/list results that were relayed: learned anew, seen before, or not learned and why.",
	}, []string{"result"})

	toolDefinitions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "mcp_gateway", Name: "tool_definitions_total",
		Help: "Definitions of tools on pages that were learned anew: valid, or what is wrong with their mirrored parameters.",
	}, []string{"result"})

	toolLookups = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "mcp_gateway", Name: "tool_lookups_total",
		Help: "Tool calls by what was known of the tool's definition: declared, learned, stale or unknown.",
	}, []string{"result"})

	paramHeaders = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "mcp_gateway", Name: "param_headers_total",
		Help: "Mcp-Param headers of requests that were admitted, by whether they were verified.",
	}, []string{"verified"})

	ledgerWrites = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "caddy", Subsystem: "mcp_gateway", Name: "ledger_write_seconds",
		Help:    "Time until a change of a record was durable, with the wait for those it shared the write with.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
	})

	ledgerBatches = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "caddy", Subsystem: "mcp_gateway", Name: "ledger_batch_size",
		Help:    "How many changes of records shared one write to the disk.",
		Buckets: prometheus.ExponentialBuckets(1, 2, 10),
	})

	effectReplays = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "mcp_gateway", Name: "effect_replays_total",
		Help: "Calls that were answered with the stored result of an earlier one.",
	})

	effectRefusals = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "mcp_gateway", Name: "effect_refusals_total",
		Help: "Calls of protected tools that were refused for what is on record of their effect, or since nothing could be, by the reason.",
	}, []string{"refusal"})
)

// What became of a page of a list.
const (
	pageLearned    = "learned"
	pageSeen       = "seen"
	pageNoTools    = "no_tools"
	pageUnreadable = "unreadable"
	pageTooLarge   = "too_large" // or past what lists may hold together
	pageEncoded    = "encoded"
)

// validDefinition is the result of a definition without a fault.
const validDefinition = "valid"

func countPage(result string) { toolLists.WithLabelValues(result).Inc() }

func countDefinitions(result string, n int) {
	toolDefinitions.WithLabelValues(result).Add(float64(n))
}

func countParams(verified, unverified int) {
	if verified > 0 {
		paramHeaders.WithLabelValues("true").Add(float64(verified))
	}
	if unverified > 0 {
		paramHeaders.WithLabelValues("false").Add(float64(unverified))
	}
}

// lookupSeries holds the series of each state of knowledge.
var lookupSeries = func() (series [len(knowledgeStates)]prometheus.Counter) {
	for state, word := range knowledgeStates {
		series[state] = toolLookups.WithLabelValues(word)
	}
	return series
}()

func registerMetrics(registry prometheus.Registerer) error {
	for _, collector := range []prometheus.Collector{
		callsTotal, callDuration, refusalsTotal, repeatsStopped, heldBytes, toolLists, toolDefinitions, toolLookups, paramHeaders,
		ledgerWrites, ledgerBatches, effectReplays, effectRefusals, ledgerCollector{},
	} {
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

func observeBatch(size int) { ledgerBatches.Observe(float64(size)) }

func countReplay() { effectReplays.Inc() }

// All reasons begin at zero, so that a rate over the first refusal shows it.
func init() {
	for _, reason := range effectReasons() {
		effectRefusals.WithLabelValues(reason)
	}
}

// countEffectRefusal counts a refused call by a word of a bounded set.
func countEffectRefusal(word string) { effectRefusals.WithLabelValues(word).Inc() }

var (
	effectsDesc = prometheus.NewDesc("caddy_mcp_gateway_effects",
		"Effects on record, by state.", []string{"state"}, nil)
	oldestAmbiguousDesc = prometheus.NewDesc("caddy_mcp_gateway_oldest_ambiguous_seconds",
		"For how long the oldest ambiguous effect has been so, 0 if there is none.", nil, nil)
	ledgerUpDesc = prometheus.NewDesc("caddy_mcp_gateway_ledger_up",
		"Whether the last command or sweep of the ledger succeeded.", nil, nil)
)

// ledgerCollector shows the ledger of the newest configuration as it was found
// last, and nothing if there is none.
type ledgerCollector struct{}

// Describe implements prometheus.Collector.
func (ledgerCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- effectsDesc
	descs <- oldestAmbiguousDesc
	descs <- ledgerUpDesc
}

// Collect implements prometheus.Collector.
func (ledgerCollector) Collect(metrics chan<- prometheus.Metric) {
	app := running.newest()
	if app == nil {
		return
	}
	ledger := app.shared.ledger
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	up := 1.0
	if ledger.down.Load() {
		up = 0
	}
	gauge(ledgerUpDesc, up)
	if census := ledger.census.Load(); census != nil {
		for _, state := range effect.States()[1:] { // there is no record in state none
			gauge(effectsDesc, float64(census.Records[state]), state.String())
		}
	}
	oldest := ledger.oldest.Load()
	if oldest == nil {
		return
	}
	age := 0.0
	if len(*oldest) > 0 {
		age = max(0, time.Since((*oldest)[0].Since).Seconds())
	}
	gauge(oldestAmbiguousDesc, age)
}
