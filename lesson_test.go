package gateway

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"pgregory.net/rapid"

	"github.com/caddymcp/gateway/jsonrpc"
)

// lessonHandler is a handler that can learn, with a catalogue of its own.
func lessonHandler(t interface {
	rapid.TB
	Cleanup(func())
}) *Handler {
	own, err := newCatalogue(testSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = own.Destruct() })
	h := &Handler{logger: zap.NewNop(), catalogue: own}
	h.held.setLimit(defaultMaxHeld, 0)
	h.listing = budget{limit: defaultMaxHeld, part: true}
	return h
}

// lessonOf is a list that a caller was shown, as it is when it was relayed.
func lessonOf(t rapid.TB, h *Handler, key viewKey, list string, at time.Time) *lesson {
	text := listText{c: &call{h: h}}
	if !text.keep([]byte(list)) {
		t.Fatal("there is no room for the list")
	}
	return &lesson{h: h, text: text.handOver(), key: key, id: []byte("1"), at: at}
}

// listOfTool is a list of one tool with one binding, with more members.
func listOfTool(tool, header, more string) string {
	return `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"` + tool +
		`","inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"` + header + `"}}}}]` + more + `}}`
}

// said is what a catalogue says of a tool, in words.
func said(k knowledge) string {
	word := knowledgeStates[k.state]
	for _, b := range k.bindings.All() {
		word += " " + b.Name
	}
	return word
}

// What is found is the same whether lists are read when they are relayed or when
// somebody asks for what they say, whatever happens in between.
func TestLessonsReadLater(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		early, late := lessonHandler(t), lessonHandler(t)
		late.catalogue.lessons.timed = true // by nobody
		keys := []viewKey{{1, 1}, {1, 2}, {2, 1}}
		tools := []string{"a", "b"}
		now := noon
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			now = now.Add(rapid.SampledFrom([]time.Duration{time.Millisecond, 6 * time.Second, 40 * time.Minute}).Draw(t, "pause"))
			key := rapid.SampledFrom(keys).Draw(t, "caller")
			tool := rapid.SampledFrom(tools).Draw(t, "tool")
			switch rapid.SampledFrom([]string{"list", "list", "list", "event", "find", "changed", "doubt", "again"}).Draw(t, "step") {
			case "list":
				more := rapid.SampledFrom([]string{"", `,"cacheScope":"public"`, `,"ttlMs":7000`, `,"tools":[]`}).Draw(t, "more")
				list := listOfTool(tool, rapid.SampledFrom([]string{"Region", "Zone"}).Draw(t, "header"), more)
				early.catalogue.teach(lessonOf(t, early, key, list, now))
				early.catalogue.readLessons()
				late.catalogue.teach(lessonOf(t, late, key, list, now))
			case "event":
				message := rapid.SampledFrom([]string{
					`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
					listOfTool(tool, "Area", ""),
					strings.Replace(listOfTool(tool, "Area", ""), `"id":1`, `"id":2`, 1),
				}).Draw(t, "message")
				for _, h := range []*Handler{early, late} {
					l := lessonOf(t, h, key, message, now)
					l.event = true
					h.catalogue.teach(l)
				}
				early.catalogue.readLessons()
			case "changed":
				early.catalogue.changed(key, now)
				late.catalogue.changed(key, now)
			case "doubt":
				early.catalogue.doubt(key, tool, now)
				late.catalogue.doubt(key, tool, now)
			case "again":
				more := rapid.SampledFrom([]string{"", `,"cacheScope":"public"`}).Draw(t, "more")
				list := []byte(listOfTool(tool, "Region", more))
				want := early.catalogue.recognize(key, early.catalogue.digest(list, []byte("1")), now)
				if got := late.catalogue.recognize(key, late.catalogue.digest(list, []byte("1")), now); got != want {
					t.Fatalf("recognized: %v, want %v", got, want)
				}
			case "find":
				want := said(early.catalogue.find(key, tool, now))
				if got := said(late.catalogue.find(key, tool, now)); got != want {
					t.Fatalf("found %q, want %q", got, want)
				}
			}
		}
		for _, key := range keys {
			for _, tool := range tools {
				want := said(early.catalogue.find(key, tool, now))
				if got := said(late.catalogue.find(key, tool, now)); got != want {
					t.Fatalf("in the end %v found %q, want %q", key, got, want)
				}
			}
		}
	})
}

// Callers who are shown lists all the time, in whatever memory, find what they
// were shown last.
func TestLessonsAtOnce(t *testing.T) {
	h := lessonHandler(t)
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			key := viewKey{1, uint64(caller + 1)}
			for i := range 60 {
				header := fmt.Sprintf("H-%d-%d", caller, i)
				pad := fmt.Sprintf(`,"_":"%0*d"`, 20_000+5_000*i, caller) // in memory of its own, and of another
				h.catalogue.teach(lessonOf(t, h, key, listOfTool("t", header, pad), noon))
				if got := said(h.catalogue.find(key, "t", noon)); got != "learned "+header {
					t.Errorf("caller %d found %q, was shown %s", caller, got, header)
				}
			}
		})
	}
	callers.Wait()
	if q := &h.catalogue.lessons; q.size != 0 || len(q.queue) != 0 {
		t.Errorf("%d lists wait, of %d bytes", len(q.queue), q.size)
	}
}

// A list is read a moment after it passed, also if nobody asks for it, and the next
// one, too.
func TestLessonIsReadUnasked(t *testing.T) {
	core, logs := observer.New(zapcore.WarnLevel)
	logged := make(chan struct{})
	h := lessonHandler(t)
	h.logger = zap.New(zapcore.RegisterHooks(core, func(zapcore.Entry) error { logged <- struct{}{}; return nil }))
	for i := range 2 {
		h.catalogue.teach(lessonOf(t, h, alice, "<html>", noon))
		<-logged
		if got := logs.All()[i].Message; got != "a tools/list result could not be read: its tools' parameters are not verified" {
			t.Errorf("logged %q", got)
		}
		for !h.catalogue.lessons.idle() {
			runtime.Gosched() // until its reader has seen that there is no more
		}
	}
}

// idle reports whether nothing waits and nobody is to read.
func (q *lessons) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.timed
}

// However many lists pass, no more of them wait than may: the oldest is read
// before another one goes on.
func TestLessonsPile(t *testing.T) {
	h := lessonHandler(t)
	q := &h.catalogue.lessons
	q.timed = true // by nobody
	third := strings.Repeat("x", maxUnread/3-perLesson-1000)
	for i, tt := range []struct {
		pad     string
		waiting int
	}{
		{third, 1}, {third, 2}, {third, 3}, {third, 3}, {"", 3},
		{strings.Repeat("x", maxUnread), 1}, // alone
		{"", 1},
	} {
		h.catalogue.teach(lessonOf(t, h, viewKey{1, uint64(i + 1)}, listOfTool("t", "Region", `,"_":"`+tt.pad+`"`), noon))
		if len(q.queue) != tt.waiting {
			t.Errorf("after list %d, %d wait, want %d", i, len(q.queue), tt.waiting)
		}
	}
	for range 1000 {
		h.catalogue.teach(lessonOf(t, h, alice, "{}", noon))
	}
	if most := maxUnread / perLesson; len(q.queue) > most {
		t.Errorf("%d small lists wait, want at most %d", len(q.queue), most)
	}
	h.catalogue.readLessons()
	if q.size != 0 || q.some.Load() {
		t.Errorf("none waits, and %d bytes count as waiting", q.size)
	}
}

// readsUntil has lists that cannot be read take until read is closed. Each says when
// it begins.
func (h *Handler) readsUntil() (reading <-chan struct{}, read chan<- struct{}) {
	begun, end := make(chan struct{}, 10), make(chan struct{})
	core, _ := observer.New(zapcore.WarnLevel)
	h.logger = zap.New(zapcore.RegisterHooks(core, func(zapcore.Entry) error { begun <- struct{}{}; <-end; return nil }))
	return begun, end
}

// Lists that come at once do not wait in more room than one after the other.
func TestLessonsPileAtOnce(t *testing.T) {
	h := lessonHandler(t)
	q := &h.catalogue.lessons
	q.timed = true // by nobody
	reading, read := h.readsUntil()
	var lists sync.WaitGroup
	for i := range 10 {
		l := lessonOf(t, h, viewKey{1, uint64(i + 1)}, "<"+strings.Repeat("x", maxUnread/2), noon)
		lists.Go(func() { h.catalogue.teach(l) })
	}
	<-reading // the oldest, for which all others wait
	q.mu.Lock()
	if q.size > maxUnread {
		t.Errorf("%d lists wait, of %d bytes", len(q.queue), q.size)
	}
	q.mu.Unlock()
	close(read)
	lists.Wait()
}

// A caller waits for no list that says nothing of its tools.
func TestLessonsOfOthers(t *testing.T) {
	h := lessonHandler(t)
	q := &h.catalogue.lessons
	q.timed = true // by nobody
	now := noon
	teach := func(key viewKey, tool, more string) {
		now = now.Add(time.Second)
		h.catalogue.teach(lessonOf(t, h, key, listOfTool(tool, "Region", more), now))
	}
	find := func(key viewKey, tool, want string, waiting int) {
		t.Helper()
		if got := said(h.catalogue.find(key, tool, now)); got != want || len(q.queue) != waiting {
			t.Errorf("found %q and %d lists wait, want %q and %d", got, len(q.queue), want, waiting)
		}
	}
	elsewhere := viewKey{endpoint: 2, caller: 1}
	teach(bob, "b", `,"cacheScope":"public"`)
	teach(alice, "a", "")
	teach(bob, "b", "")
	teach(elsewhere, "a", "")
	find(alice, "a", "learned Region", 2) // and what was shown before
	find(alice, "b", "learned Region", 1) // it is public
	find(elsewhere, "a", "learned Region", 0)
}

// What makes the reader of a list panic teaches nothing and ends nothing else.
func TestLessonPanics(t *testing.T) {
	core, logs := observer.New(zapcore.WarnLevel)
	h := lessonHandler(t)
	h.logger = zap.New(zapcore.RegisterHooks(core, func(e zapcore.Entry) error {
		if e.Level == zapcore.WarnLevel {
			panic("no room for the log")
		}
		return nil
	}))
	h.catalogue.teach(lessonOf(t, h, alice, listOfTool("t", "Region", ""), noon))
	h.catalogue.teach(lessonOf(t, h, alice, "<html>", noon.Add(1)))
	if got := said(h.catalogue.find(alice, "t", noon.Add(1))); got != "stale" {
		t.Errorf("after it: %s", got)
	}
	h.catalogue.teach(lessonOf(t, h, alice, listOfTool("t", "Region", ""), noon.Add(2)))
	if got := said(h.catalogue.find(alice, "t", noon.Add(2))); got != "learned Region" {
		t.Errorf("after the next list: %s", got)
	}
	if faults := logs.FilterLevelExact(zapcore.ErrorLevel).All(); len(faults) != 1 || faults[0].ContextMap()["panic"] != "no room for the log" {
		t.Errorf("logged %v", faults)
	}
}

// What waits when its configuration ends is read while that has a log.
func TestLessonsEnd(t *testing.T) {
	h, logs := provisioned(t, new(Handler))
	h.catalogue.teach(lessonOf(t, h, alice, "<html>", noon))
	if _, err := useCatalogue(h.MaxLearned); err != nil { // since it is released once more in the end
		t.Fatal(err)
	}
	if err := h.Cleanup(); err != nil {
		t.Fatal(err)
	}
	if logs.Len() != 1 {
		t.Errorf("logged %v", logs.All())
	}
}

// A list of which the last piece cannot wait passes, and is not learned when it
// is too late.
func TestListThatCannotWait(t *testing.T) {
	h := lessonHandler(t)
	list := listOfTool("t", "Region", "")
	h.listing.limit = int64(len(list) + len(list)/2)
	r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
	c := &call{h: h, request: r, message: jsonrpc.Message{Method: toolsList, ID: []byte("1")}}
	recorder := httptest.NewRecorder()
	w := c.beside(recorder)
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write([]byte(list)); err != nil {
		t.Fatal(err)
	}
	w.end(false)
	if got := recorder.Body.String(); got != list {
		t.Errorf("relayed %q", got)
	}
	if got := said(h.catalogue.find(c.viewKey(), "t", time.Now())); got != "unknown" {
		t.Errorf("learned when it had passed: %s", got)
	}
}

// A configuration that ends does not read what comes after it, without end.
func TestCleanupEnds(t *testing.T) {
	h, _ := provisioned(t, new(Handler))
	other := &Handler{catalogue: h.catalogue}
	core, logs := observer.New(zapcore.WarnLevel)
	n := 0
	other.logger = zap.New(zapcore.RegisterHooks(core, func(zapcore.Entry) error {
		if n++; n < 1000 { // the next one has come meanwhile
			inAnother(func() { h.catalogue.teach(lessonOf(t, other, alice, "<html>", noon)) })
		}
		return nil
	}))
	other.held.setLimit(defaultMaxHeld, 0)
	other.listing = budget{limit: defaultMaxHeld, part: true}
	h.catalogue.teach(lessonOf(t, other, alice, "<html>", noon))
	if _, err := useCatalogue(h.MaxLearned); err != nil {
		t.Fatal(err)
	}
	if err := h.Cleanup(); err != nil {
		t.Fatal(err)
	}
	if logs.Len() > 1 {
		t.Errorf("the reload read %d lists, of another handler, that came after it began", logs.Len())
	}
}

// inAnother runs f in another goroutine and waits for it.
func inAnother(f func()) {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	<-done
}

// What waits for room in the queue counts as held.
func TestLessonsThatWaitForRoomCount(t *testing.T) {
	h := lessonHandler(t)
	q := &h.catalogue.lessons
	q.timed = true // by nobody
	reading, read := h.readsUntil()
	var sum int64
	next := func() func() {
		c := &call{h: h, request: httptest.NewRequest(http.MethodPost, "/mcp", http.NoBody), message: jsonrpc.Message{ID: []byte("1")}}
		text := &listText{c: c}
		if !text.keep([]byte("<" + strings.Repeat("x", maxUnread/2))) {
			t.Fatal("there is no room for the list")
		}
		sum += int64(cap(text.text))
		return func() { c.learnTools(text, false) }
	}
	next()()
	second := next()
	var lists sync.WaitGroup
	lists.Go(second)
	<-reading // the first one, by the second one, which waits for room
	q.mu.Lock()
	counted := h.listing.used.Load() + int64(q.size)
	q.mu.Unlock()
	if counted < sum {
		t.Errorf("lists of %d bytes are in memory, %d count", sum, counted)
	}
	close(read)
	lists.Wait()
}
