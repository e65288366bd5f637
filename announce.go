package gateway

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/caddymcp/gateway/effect"
)

// The events that the app emits. Their data name the effect and what happened
// to it, and carry no arguments and no results.
const (
	eventAmbiguous = "mcp_gateway.ambiguous" // nobody knows whether an effect happened
	eventResolved  = "mcp_gateway.resolved"  // that is known now, or a committed effect was reopened
	eventAlarm     = "mcp_gateway.alarm"     // an attempt that the record has left behind happened: perhaps twice
)

// announcement is an event to be emitted.
type announcement struct {
	event string
	data  map[string]any
}

// announcementOf says what a receipt announces, nil for most.
func announcementOf(r *effect.Receipt) *announcement {
	data := map[string]any{
		"namespace":   r.Key.Namespace,
		"key":         r.Key.Text,
		"tool":        r.Tool,
		"attempt":     r.Attempt,
		"since":       r.At.Format(time.RFC3339Nano),
		"state":       r.To.String(),
		"observation": r.Observation,
	}
	switch moved := r.From != r.To; {
	case r.Answer == effect.Alarm:
		return &announcement{eventAlarm, data}
	case moved && r.To == effect.Ambiguous:
		return &announcement{eventAmbiguous, data}
	case moved && (r.From == effect.Ambiguous || r.Event == effect.Reopen):
		if r.Answer == effect.Settled {
			data["who"], data["why"] = r.Who, r.Why
		}
		return &announcement{eventResolved, data}
	}
	return nil
}

// log logs the announcement: it is worth a line with no event handler, too.
func (a *announcement) log() {
	logger := ledgerLogger().With(zap.Any("effect", a.data))
	switch a.event {
	case eventAlarm:
		logger.Error("an effect may have happened twice: an attempt that was settled otherwise or given up has happened")
	case eventAmbiguous:
		logger.Warn("nobody knows whether an effect happened")
	case eventResolved:
		logger.Info("an effect is not ambiguous or not committed any more")
	}
}

// announcer emits events one after the other, in the order in which they
// happened. A handler of an event may take its time, and no call waits for it.
type announcer struct {
	queue chan *announcement
	done  chan struct{}
}

// maxAnnouncements is how many events wait for the handlers of those before
// them; more are lost, but for the log.
const maxAnnouncements = 1024

func newAnnouncer() *announcer {
	a := &announcer{make(chan *announcement, maxAnnouncements), make(chan struct{})}
	go a.run()
	return a
}

// stop ends the announcer, which does not wait for a handler that is at work.
func (a *announcer) stop() { close(a.done) }

func (a *announcer) announce(receipts []effect.Receipt) {
	for i := range receipts {
		announcement := announcementOf(&receipts[i])
		if announcement == nil {
			continue
		}
		announcement.log()
		select {
		case a.queue <- announcement:
		default:
			ledgerLogger().Error("an event is lost: the handlers of those before it have not come to an end", zap.String("event", announcement.event))
		}
	}
}

func (a *announcer) run() {
	for {
		select {
		case announcement := <-a.queue:
			announcement.emit()
		case <-a.done:
			return
		}
	}
}

// emit emits the event in the newest configuration: a request of an older one
// has a context that is over.
func (a *announcement) emit() {
	app := running.newest()
	if app == nil || !app.events.ShouldEmit(a.event) {
		return
	}
	defer func() {
		if v := recover(); v != nil { // as in the goroutine of a request, it is not the end of Caddy
			app.logger.Error("a handler of an event panicked", zap.String("event", a.event), zap.String("panic", fmt.Sprint(v)))
		}
	}()
	app.events.Emit(app.ctx, a.event, a.data)
}
